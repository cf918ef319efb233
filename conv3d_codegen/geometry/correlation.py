# SPDX-License-Identifier: Apache-2.0
"""The contraction behind a convolution and its transpose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conv3d_codegen.geometry.axes import AxisGeometry


@dataclass(frozen=True, slots=True)
class Correlation:
    """A windowed contraction between a wide tensor, a narrow one and the filters.

    With i = o*stride + t*dilation - pad_before on each axis, per group,

        narrow[n, m, o] = sum over c, t of wide[n, c, i] * filters[t, c, m].

    An ordinary convolution reads x through windows (wide is x, narrow is dy); a transposed one is
    the same contraction read the other way (wide is dy, narrow is x). So the gradients are:

    * of the wide tensor (dx of an ordinary convolution): every (i, o, t) scattered back from
      narrow, a dense convolution per stride phase;
    * of the narrow tensor (dx of a transposed one): the formula above, evaluated on dy;
    * dw: sum over n, o of wide[n, c, i] * narrow[n, m, o], the same for both;
    * db: the sum of dy over batch and positions, whichever side dy is.

    The filters' axis O (N in DHWCN) runs over the narrow channels, I (C) over the wide ones of one
    group. `axes[a].size` is the wide extent, `axes[a].out` the narrow one.
    """

    wide: str
    narrow: str
    wide_channels: int
    narrow_channels: int
    groups: int
    axes: tuple[AxisGeometry, AxisGeometry, AxisGeometry]
