# SPDX-License-Identifier: Apache-2.0
"""dw in an order with the taps innermost: rows gathered on chip until all taps are there.

Stored tap by tap, such rows would be moved one element at a time. Engines write them to their place
in [narrow channels, wide channels, taps] instead, rounding on the way, and one transfer of long runs
stores the whole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from conv3d_codegen.dtypes import dtype
from conv3d_codegen.lower.tensors import Block
from conv3d_codegen.program.instructions import dma_copy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from conv3d_codegen.lower.builder import Builder
    from conv3d_codegen.lower.tap_chains import Chain
    from conv3d_codegen.lower.tensors import FilterTensor
    from conv3d_codegen.program.views import Buffer

Range = tuple[int, int]
Triple = tuple[int, int, int]

MOST_BYTES = 32 * 1024  # per partition, of rows being gathered
QUADRANT = 32  # engines start at multiples of it: AWS NKI guide, partition starts


@dataclass(slots=True)
class TapRows:
    """Rows of dw whose taps arrive chain by chain."""

    builder: Builder
    dw: FilterTensor
    out_dtype: str
    _open: dict[tuple[Range, Range], tuple[Buffer, int]] = field(default_factory=dict)

    def take(self, chain: Chain) -> bool:
        """Whether chains with narrow channels on partitions can be gathered: all of a plan, or none."""
        width = chain.stationary[1] - chain.stationary[0]
        columns = (chain.moving[1] - chain.moving[0]) * math.prod(self.dw.kernel)
        fits = columns * dtype(self.out_dtype).bytes <= MOST_BYTES
        return fits and (not chain.packs or width % QUADRANT == 0)

    def add(self, chain: Chain, total: Buffer, cells: Iterable[tuple[Triple, Triple]]) -> None:
        """Round a chain's sums to their place; cells: (filter tap, cell of the chain) pairs."""
        taps = math.prod(self.dw.kernel)
        width = chain.stationary[1] - chain.stationary[0]
        key = chain.stationary, chain.moving
        if key not in self._open:
            shape = (width, chain.moving[1] - chain.moving[0], taps)
            self._open[key] = self.builder.allocate("dw_rows", shape, self.out_dtype, "sbuf"), taps
        rows, missing = self._open[key]
        _, k_h, k_w = self.dw.kernel
        for (d, h, w), (packed, first, second) in cells:
            src = total[packed * width : (packed + 1) * width, first, second, :]
            self.builder.copy(rows[:, :, (d * k_h + h) * k_w + w], src)
            missing -= 1
        self._open[key] = rows, missing
        if missing == 0:
            del self._open[key]
            dst = self.dw.taps(Block(wide=chain.moving, narrow=chain.stationary), 0, taps)
            self.builder.add(dma_copy(dst, rows.whole()))
