# SPDX-License-Identifier: Apache-2.0
"""One spatial axis of a windowed contraction."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AxisGeometry:
    """Windows of `kernel` taps, `dilation` apart, every `stride` positions along `size` ones.

    `pad_after` may be negative in the view of a transposed convolution (see `Correlation`):
    that many trailing positions lie beyond the last window.
    """

    size: int
    kernel: int
    stride: int
    dilation: int
    pad_before: int
    pad_after: int

    @property
    def extent(self) -> int:
        """Positions that one window spans."""
        return self.dilation * (self.kernel - 1) + 1

    @property
    def out(self) -> int:
        """Number of windows; 0 or less where none fits."""
        return (self.size + self.pad_before + self.pad_after - self.extent) // self.stride + 1
