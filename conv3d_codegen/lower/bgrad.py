# SPDX-License-Identifier: Apache-2.0
"""db: the sum of dy over samples and positions, taken from the windows that are resident anyway."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from conv3d_codegen.program.instructions import dma_copy, reduce_add

if TYPE_CHECKING:
    from conv3d_codegen.lower.builder import Builder
    from conv3d_codegen.lower.windows import Box, Window
    from conv3d_codegen.program.views import Buffer


@dataclass(slots=True)
class BgradLowering:
    """Emits db: one column of partial sums per slab and sample, reduced at the end.

    first_channel: where the pack's channels start in db.
    columns: how many (slab, sample) pairs there will be.
    """

    builder: Builder
    db: Buffer
    out_dtype: str
    first_channel: int
    columns: int
    sums: dict[int, Buffer] = field(default_factory=dict)
    _used: int = 0

    def slab(self, box: Box, windows: tuple[Window, ...]) -> None:
        """Reduce the dy rows that belong to one slab; box is in dy rows."""
        for sample in range(*box.n):
            for number, window in enumerate(windows):
                self._reduce(number, window, box, sample)
            self._used += 1

    def _reduce(self, number: int, window: Window, box: Box, sample: int) -> None:
        if number not in self.sums:
            shape = (window.buffer.shape[0], self.columns)
            self.sums[number] = self.builder.allocate("db_part", shape, "fp32", "sbuf")
        (d_origin, h_origin), (f_d, f_h) = window.block_origin, window.fold
        data = window.buffer[
            :,
            sample - window.box.n[0],
            box.d[0] // f_d - d_origin : -(-box.d[1] // f_d) - d_origin,
            box.h[0] // f_h - h_origin : -(-box.h[1] // f_h) - h_origin,
            box.w[0] - window.box.w[0] : box.w[1] - window.box.w[0],
        ]
        column = self.sums[number][:, self._used : self._used + 1]
        self.builder.add(reduce_add(column, data))

    def finish(self, windows: tuple[Window, ...]) -> None:
        """Add the partial sums up, bring folded rows together, round and store."""
        for number, window in enumerate(windows):
            c0, c1 = window.channels
            total = self._total(self.sums[number])
            rows = window.fold[0] * window.fold[1]
            if rows > 1:
                total = self._total(self._unfold(total, rows, c1 - c0))
            rounded = self.builder.allocate("db_out", (c1 - c0, 1), self.out_dtype, "sbuf")
            self.builder.copy(rounded.whole(), total.whole())
            dst = self.db.pattern(((1, c1 - c0), (1, 1)), self.first_channel + c0)
            self.builder.add(dma_copy(dst, rounded.whole()))

    def _total(self, parts: Buffer) -> Buffer:
        total = self.builder.allocate("db_sum", (parts.shape[0], 1), "fp32", "sbuf")
        self.builder.add(reduce_add(total.whole(), parts.whole()))
        return total

    def _unfold(self, total: Buffer, rows: int, channels: int) -> Buffer:
        """[rows · channels, 1] → [channels, rows]: only DMA moves data to arbitrary partitions."""
        parts = self.builder.allocate("db_rows", (channels, rows), "fp32", "sbuf")
        for row in range(rows):
            src = total[row * channels : (row + 1) * channels, :]
            self.builder.add(dma_copy(parts[:, row : row + 1], src))
        return parts
