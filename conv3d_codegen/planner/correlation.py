# SPDX-License-Identifier: Apache-2.0
"""dw as a correlation, axis by axis.

dw[t] = sum over positions of x(o·stride + t·dilation - pad) · dy(o): dy is read as it is, x with the tap's shift. With
unit stride the shift of an axis may lie on dy instead: row i of x meets dy row
i + t'·dilation - ((K - 1)·dilation - pad) with t' = K - 1 - t, the same form with the taps in reverse.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conv3d_codegen.geometry import AxisGeometry
    from conv3d_codegen.planner.schedule import Side


@dataclass(frozen=True, slots=True)
class CorrelationAxis:
    """One axis: `shifted` is the side read with the taps' shifts (extent halo_size), the other owns positions."""

    shifted: Side
    owner_size: int
    halo_size: int
    kernel: int
    stride: int
    dilation: int
    pad: int

    def filter_tap(self, tap: int) -> int:
        """Which tap of dw a tap of the correlation is."""
        return self.kernel - 1 - tap if self.shifted == "narrow" else tap

    def unit(self, positions: int) -> int:
        """Distance in rows between neighbouring rows of the shifted tensor that `positions` neighbours read."""
        steps = [self.stride] if positions > 1 else []
        if self.kernel > 1:
            steps.append(self.dilation)
        return math.gcd(*steps) or 1

    def entries(self, position: int, taps: tuple[int, int], unit: int) -> slice:
        """Entries of the shifted tensor, rows a unit apart, that a run of taps reads at a position."""
        first, stop = taps
        start = (position * self.stride + first * self.dilation) // unit
        step = max(1, self.dilation // unit)
        return slice(start, start + (stop - 1 - first) * step + 1, step)

    def reach(self, positions: int) -> int:
        """How many such rows they read."""
        span = (positions - 1) * self.stride + (self.kernel - 1) * self.dilation
        return span // self.unit(positions) + 1


def fixed_axis(kernel: Sequence[int]) -> int:
    """Tell which axis's taps are taken one by one, if none are packed: the fewest, and rather those of D than of W.

    Taps along W lie next to each other in dw, so that results are stored together.
    """
    return min((0, 2, 1), key=lambda axis: kernel[axis])


def correlation_axis(axis: AxisGeometry, shifted: Side) -> CorrelationAxis:
    """Set one axis up with the taps' shifts on the named tensor; on the narrow side only where the stride is 1."""
    if shifted == "wide":
        return CorrelationAxis(
            shifted=shifted,
            owner_size=axis.out,
            halo_size=axis.size,
            kernel=axis.kernel,
            stride=axis.stride,
            dilation=axis.dilation,
            pad=axis.pad_before,
        )
    return CorrelationAxis(
        shifted=shifted,
        owner_size=axis.size,
        halo_size=axis.out,
        kernel=axis.kernel,
        stride=1,
        dilation=axis.dilation,
        pad=(axis.kernel - 1) * axis.dilation - axis.pad_before,
    )
