# SPDX-License-Identifier: Apache-2.0
"""dw as a correlation of an owner with a halo tensor.

dw[t] = sum over positions of owner(position) · halo(position·stride + t·dilation - pad). With the taps' shifts on x this is
the definition, owner dy. With unit stride the shifts may lie on dy instead: x row i = o + t·dilation - pad gives
o = i + t'·dilation - ((K - 1)·dilation - pad) with t' = K - 1 - t, the same form with the taps in reverse.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conv3d_codegen.geometry import AxisGeometry
    from conv3d_codegen.plan.schedule import HaloTensor


@dataclass(frozen=True, slots=True)
class CorrelationAxis:
    """One axis of the correlation; reversed_taps says that tap t of it is tap K - 1 - t of dw."""

    owner_size: int
    halo_size: int
    kernel: int
    stride: int
    dilation: int
    pad: int
    reversed_taps: bool

    def filter_tap(self, tap: int) -> int:
        """Which tap of dw a tap of the correlation is."""
        return self.kernel - 1 - tap if self.reversed_taps else tap


def correlation_axis(axis: AxisGeometry, halo: HaloTensor) -> CorrelationAxis:
    """Set one axis up with the taps' shifts on the named tensor; on dy only for unit stride or one tap and position."""
    if halo == "x":
        return CorrelationAxis(
            owner_size=axis.out,
            halo_size=axis.size,
            kernel=axis.kernel,
            stride=axis.stride,
            dilation=axis.dilation,
            pad=axis.pad_before,
            reversed_taps=False,
        )
    return CorrelationAxis(
        owner_size=axis.size,
        halo_size=axis.out,
        kernel=axis.kernel,
        stride=1,
        dilation=axis.dilation,
        pad=(axis.kernel - 1) * axis.dilation - axis.pad_before,
        reversed_taps=True,
    )
