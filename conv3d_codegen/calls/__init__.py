# SPDX-License-Identifier: Apache-2.0
"""Calling kernels: `conv3d_bwd` finds the kernel of its arguments and runs it.

Kernels come from packs (`use_pack`, or installed as wheels), then from the cache, and are emitted
where neither has them. On a Neuron host they run on the device, through nki. Elsewhere numpy arrays
go through the bundled simulator, which is exact and slow: for tests and small shapes.
"""

from __future__ import annotations

from conv3d_codegen.calls.backward import conv3d_bwd, use_pack
from conv3d_codegen.calls.policy import simulate_on_cpu
from conv3d_codegen.calls.run import run_kernel

__all__ = ["conv3d_bwd", "run_kernel", "simulate_on_cpu", "use_pack"]
