# SPDX-License-Identifier: Apache-2.0
"""db: the sum of dy over samples and positions, taken from the windows that are resident anyway."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from conv3d_codegen.lower.cores import add_other_core
from conv3d_codegen.lower.windows import Box
from conv3d_codegen.planner.blocks import ceil_div, split_even, split_upto
from conv3d_codegen.program.instructions import dma_copy, reduce_add, tensor_add

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conv3d_codegen.lower.builder import Builder
    from conv3d_codegen.lower.tensors import Vector
    from conv3d_codegen.lower.windows import Window
    from conv3d_codegen.program.views import Buffer, SliceView


PIECE = 512  # positions per reduction: about half a us of Vector, so that evictions never wait long


@dataclass(slots=True)
class BgradLowering:
    """Emits db: one column of partial sums per piece, reduced at the end; in loops, one column that all slabs add to.

    exchanges: whether the other core has the rest of the sum.
    boxes: dy rows of all slabs.
    """

    builder: Builder
    db: Vector
    out_dtype: str
    exchanges: bool
    boxes: tuple[Box, ...]
    fold: tuple[int, int]
    is_rolled: bool
    sums: dict[int, Buffer] = field(default_factory=dict)
    windows: tuple[Window, ...] = ()
    _used: int = 0

    def slab(self, box: Box, windows: tuple[Window, ...]) -> None:
        """Reduce the dy rows that belong to one slab, in pieces that fit between evictions."""
        self.builder.comment("db: partial sums of dy ride along, spread over the slab")
        pieces = list(self._pieces(box))
        parts = [self._parts(number, window, len(pieces)) for number, window in enumerate(windows)]
        for column, piece in enumerate(pieces, start=self._used):
            for buffer, window in zip(parts, windows, strict=True):
                data = _rows_of(window, piece)
                self.builder.add(reduce_add(buffer[:, column : column + 1], data))
        if not self.is_rolled:
            self._used += len(pieces)
            return
        for number, buffer in enumerate(parts):
            total = self.sums[number].whole()
            added = self._total(buffer).whole() if len(pieces) > 1 else buffer.whole()
            self.builder.add(tensor_add(total, total, added, "vector"))

    def _pieces(self, box: Box) -> Iterator[Box]:
        """Cut a box into samples and whole rows of about PIECE positions per partition."""
        f_d, f_h = self.fold
        _, d, h, w = box.extents
        columns = split_even(w, PIECE)
        rows = split_even(ceil_div(h, f_h), max(1, PIECE // columns)) if columns == w else 1
        planes = 1
        if columns == w and rows * f_h >= h:
            planes = split_even(ceil_div(d, f_d), max(1, PIECE // (columns * rows)))
        for sample in range(*box.n):
            for d_range in split_upto(box.d, planes * f_d):
                for h_range in split_upto(box.h, rows * f_h):
                    for w_range in split_upto(box.w, columns):
                        yield Box((sample, sample + 1), d_range, h_range, w_range)

    def _parts(self, number: int, window: Window, pieces: int) -> Buffer:
        """Make room for the partial sums of one block of channels: of a slab in a loop, of all slabs otherwise."""
        rows = window.buffer.shape[0]
        if self.is_rolled:
            if number not in self.sums:
                with self.builder.outside():
                    self.sums[number] = self.builder.allocate("db_sum", (rows, 1), "fp32", "sbuf")
                    self.builder.zero(self.sums[number].whole())
            return self.builder.allocate("db_part", (rows, pieces), "fp32", "sbuf")
        if number not in self.sums:
            columns = sum(1 for slab in self.boxes for _ in self._pieces(slab))
            shape = (rows, columns)
            self.sums[number] = self.builder.allocate("db_part", shape, "fp32", "sbuf")
        return self.sums[number]

    def gather(self, windows: tuple[Window, ...]) -> None:
        """Add the partial sums up, and bring folded rows together."""
        for number, window in enumerate(windows):
            c0, c1 = window.channels
            parts = self.sums[number]
            total = self._total(parts) if parts.shape[1] > 1 else parts
            rows = window.fold[0] * window.fold[1]
            if rows > 1:
                total = self._unfold(total, rows, c1 - c0)
            self.sums[number] = total
        self.windows = windows

    def store(self) -> None:
        """Add what was folded up, round and store: apart from gathering, which takes a while."""
        for number, window in enumerate(self.windows):
            c0, c1 = window.channels
            total = self.sums[number]
            if total.shape[1] > 1:
                total = self._total(total)
            if self.exchanges:
                total = add_other_core(self.builder, total)
            rounded = self.builder.allocate("db_out", (c1 - c0, 1), self.out_dtype, "sbuf")
            self.builder.copy(rounded.whole(), total.whole())
            self.builder.add(dma_copy(self.db.view(window.channels), rounded.whole()))

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


def _rows_of(window: Window, box: Box) -> SliceView:
    """Address a box of a window's rows."""
    (d_origin, h_origin), (f_d, f_h) = window.block_origin, window.fold
    return window.buffer[
        :,
        box.n[0] - window.box.n[0],
        box.d[0] // f_d - d_origin : ceil_div(box.d[1], f_d) - d_origin,
        box.h[0] // f_h - h_origin : ceil_div(box.h[1], f_h) - h_origin,
        box.w[0] - window.box.w[0] : box.w[1] - window.box.w[0],
    ]
