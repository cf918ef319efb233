# SPDX-License-Identifier: Apache-2.0
"""Windows: boxes of dy or x in SBUF with channels on partitions, zero where they reach beyond the tensor.

With fold (f_d, f_h) the rows of f_d·f_h neighbouring (d, h) positions lie on partitions beside the channels, so that
tensors of few channels still fill 128 partitions. Partition (u_d·f_h + u_h)·channels + c of block (b_d, b_h) holds
channel c of row (b_d·f_d + u_d, b_h·f_h + u_h).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

from conv3d_codegen.dtypes import dtype
from conv3d_codegen.lower.channels_last import AxisRows, Part, load_turned
from conv3d_codegen.planner.blocks import ceil_div, even_pieces, split_upto
from conv3d_codegen.program.instructions import dma_copy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conv3d_codegen.lower.builder import Builder
    from conv3d_codegen.lower.tensors import Activation
    from conv3d_codegen.program.views import Buffer

Range = tuple[int, int]

WIDTH = 2  # of D, H, W
LONG_RUN = 2048  # bytes that a DMA moves at nearly its whole rate (AWS NKI DMA guide)


@dataclass(frozen=True, slots=True)
class Box:
    """Half-open ranges along (N, D, H, W)."""

    n: Range
    d: Range
    h: Range
    w: Range

    @property
    def ranges(self) -> tuple[Range, Range, Range, Range]:
        """The four ranges in order."""
        return self.n, self.d, self.h, self.w

    @property
    def extents(self) -> tuple[int, int, int, int]:
        """The four lengths in order."""
        n, d, h, w = (max(0, high - low) for low, high in self.ranges)
        return n, d, h, w

    @property
    def is_empty(self) -> bool:
        """Whether the box holds no position."""
        return 0 in self.extents

    def union(self, other: Box) -> Box:
        """Smallest box that holds both; an empty box adds nothing."""
        if self.is_empty:
            return other
        if other.is_empty:
            return self
        n, d, h, w = (
            (min(a[0], b[0]), max(a[1], b[1]))
            for a, b in zip(self.ranges, other.ranges, strict=True)
        )
        return Box(n, d, h, w)


@dataclass(frozen=True, slots=True)
class Window:
    """A loaded box of one channel block.

    buffer: [fold_d·fold_h·channels, N, blocks of D, blocks of H, W]; box is in rows, its d and h starts and lengths
    are multiples of the fold.
    """

    buffer: Buffer
    box: Box
    fold: tuple[int, int]
    channels: Range

    @property
    def block_origin(self) -> tuple[int, int]:
        """Block indices of the first blocks held."""
        return self.box.d[0] // self.fold[0], self.box.h[0] // self.fold[1]


def aligned(box: Box, fold: tuple[int, int]) -> Box:
    """Widen a box so that its d and h ranges are whole blocks."""
    d, h = (
        (low // f * f, -(-high // f) * f)
        for (low, high), f in zip((box.d, box.h), fold, strict=True)
    )
    return Box(box.n, d, h, box.w)


def load_window(
    builder: Builder,
    source: Activation,
    box: Box,
    channels: Range,
    fold: tuple[int, int],
    to_dtype: str,
) -> Window:
    """Load one channel block of a box, cast to a type; positions outside the tensor are zero."""
    box = aligned(box, fold)
    width = channels[1] - channels[0]
    n, d, h, w = box.extents
    shape = (fold[0] * fold[1] * width, n, d // fold[0], h // fold[1], w)
    buffer = builder.allocate(f"{source.stem}_win", shape, to_dtype, "sbuf")
    window = Window(buffer, box, fold, channels)
    _zero_outside(builder, window, source)
    if source.channels_last and width > 1:
        size_d, size_h, size_w = source.size
        depth = AxisRows(d // fold[0], box.d[0], fold[0], 0, size_d)
        height = AxisRows(h // fold[1], box.h[0], fold[1], 0, size_h)
        columns = AxisRows(w, box.w[0], 1, 0, size_w)
        load_turned(builder, Part(source, buffer, channels, box.n, depth, height, columns))
        return window
    for piece in _pieces(window):
        for row in product(range(fold[0]), range(fold[1])):
            _load_rows(builder, window, source, piece, row)
    return window


def _pieces(window: Window) -> Iterator[Box]:
    """Cut a window into samples and boxes, along the first axis that has several blocks, so that work can start."""
    box, item = window.box, dtype(window.buffer.dtype).bytes
    channels = window.channels[1] - window.channels[0]
    units = *window.fold, LONG_RUN // item
    blocks = *window.buffer.shape[2:4], ceil_div(box.extents[3], units[2])
    cuts = [[extent] for extent in box.ranges[1:]]
    several = next((axis for axis in range(3) if blocks[axis] > 1), None)
    if several is not None:
        (low, high), unit = box.ranges[several + 1], units[several]
        positions = unit if several == WIDTH else math.prod(window.buffer.shape[several + 3 :])
        size = even_pieces(high - low, unit, channels * positions * item)
        cuts[several] = list(split_upto((low, high), size))
    for sample in range(*box.n):
        for d, h, w in product(*cuts):
            yield Box((sample, sample + 1), d, h, w)


def narrowed(builder: Builder, window: Window) -> Window:
    """Cast a window to the type that is computed with."""
    if window.buffer.dtype == builder.dtype:
        return window
    stem = f"{window.buffer.name.rsplit('_', 1)[0]}_cast"
    buffer = builder.allocate(stem, window.buffer.shape, builder.dtype, "sbuf")
    builder.copy(buffer.whole(), window.buffer.whole())
    return replace(window, buffer=buffer)


def _zero_outside(builder: Builder, window: Window, source: Activation) -> None:
    """Zero every block that is not wholly inside the tensor; loads then fill in the part that is."""
    box, (f_d, f_h) = window.box, window.fold
    size_d, size_h, size_w = source.size
    full = slice(None)
    for position, (extent, f, size) in enumerate(
        ((box.d, f_d, size_d), (box.h, f_h, size_h), (box.w, 1, size_w))
    ):
        blocks = (extent[1] - extent[0]) // f
        inside_low = min(blocks, max(0, -(extent[0] // f)))
        inside_high = max(inside_low, min(blocks, (size - extent[0]) // f))
        for low, high in ((0, inside_low), (inside_high, blocks)):
            if low < high:
                index = [full, full, full, full, full]
                index[2 + position] = slice(low, high)
                builder.zero(window.buffer[tuple(index)])


def _load_rows(
    builder: Builder,
    window: Window,
    source: Activation,
    piece: Box,
    row: tuple[int, int],
) -> None:
    """DMA the rows of one fold position in a piece of a sample, clipped to the tensor."""
    sample, box = piece.n[0], window.box
    spans = []
    starts = []
    for (low, high), origin, size, f, u in zip(
        piece.ranges[1:],
        (low for low, _ in box.ranges[1:]),
        source.size,
        (*window.fold, 1),
        (*row, 0),
        strict=True,
    ):
        first = low + u if low + u >= 0 else (low + u) % f
        stop = min(high, size)
        if first >= stop:
            return
        count = -(-(stop - first) // f)
        spans.append(slice(first, first + (count - 1) * f + 1, f))
        starts.append(((first - origin - u) // f, count))
    c0, c1 = window.channels
    p0 = (row[0] * window.fold[1] + row[1]) * (c1 - c0)
    inner = tuple(slice(start, start + count) for start, count in starts)
    dst = window.buffer[(slice(p0, p0 + c1 - c0), sample - box.n[0], *inner)]
    builder.add(dma_copy(dst, source.view(sample, (c0, c1), (spans[0], spans[1], spans[2]))))
