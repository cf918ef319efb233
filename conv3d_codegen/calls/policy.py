# SPDX-License-Identifier: Apache-2.0
"""When tensors of a framework on the CPU go through the simulator: only where asked for."""

from __future__ import annotations

import math
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conv3d_codegen.geometry import ConvGeometry

# The simulator does some 10**8 multiply-accumulates a second: a few seconds for the largest.
DEFAULT_MAX_MACS = 2**28

_max_macs: ContextVar[int] = ContextVar("max_macs", default=0)


@contextmanager
def simulate_on_cpu(max_macs: int = DEFAULT_MAX_MACS) -> Iterator[None]:
    """Let convolutions made inside the block compute their gradients in the simulator.

    It holds for layers of `conv3d_codegen.torch` and `conv3d_codegen.jax` whose forward pass (for
    JAX: whose trace) runs in the block, on the CPU. Layers whose gradients take more than
    `max_macs` multiply-accumulates keep the framework's own gradients.
    """
    token = _max_macs.set(max_macs)
    try:
        yield
    finally:
        _max_macs.reset(token)


def simulates(geometry: ConvGeometry) -> bool:
    """Say whether a layer on the CPU is to use the simulator here."""
    return is_simulating() and macs(geometry) <= _max_macs.get()


def macs(geometry: ConvGeometry) -> int:
    """Return multiply-accumulates: every tap of every window, for each gradient."""
    contraction = geometry.as_correlation()
    windows = math.prod(axis.out for axis in contraction.axes)
    channels = contraction.wide_channels * contraction.narrow_channels // geometry.groups
    each = geometry.batch * windows * math.prod(geometry.kernel_size) * channels
    return each * len(geometry.gradients)


def is_simulating() -> bool:
    """Say whether any layer on the CPU may use the simulator here."""
    return _max_macs.get() > 0
