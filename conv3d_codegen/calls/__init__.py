# SPDX-License-Identifier: Apache-2.0
"""Calling kernels: `conv3d_bwd` finds the kernel of its arguments and runs it.

On a Neuron host the kernel runs on the device through nki. Elsewhere numpy arrays go through the
bundled simulator, which is exact and slow: for tests and small shapes.
"""

from __future__ import annotations

from conv3d_codegen.calls.backward import conv3d_bwd
from conv3d_codegen.calls.policy import simulate_on_cpu
from conv3d_codegen.calls.run import run_kernel

__all__ = ["conv3d_bwd", "run_kernel", "simulate_on_cpu"]
