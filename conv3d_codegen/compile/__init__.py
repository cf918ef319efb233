# SPDX-License-Identifier: Apache-2.0
"""The one place that deals with AWS's Neuron toolchain: finds it, compiles and runs with it.

Everything that imports nki happens in a process of its own, with limits on time and memory, except
for calls on a Neuron device (`loading`). This package follows the public documentation of the
Neuron SDK; it has been tried with stand-ins for that toolchain, not yet with the real one.
"""
