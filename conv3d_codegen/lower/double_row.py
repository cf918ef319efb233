# SPDX-License-Identifier: Apache-2.0
"""Windows of dy for double-row matmuls: two blocks of channels side by side, rows in a single run.

See planner.double_row for the layout. Windows are loaded in the type that the rest of the kernel computes with; here
they are rounded back to dy's 8 bits, which loses nothing, since they hold dy's values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from conv3d_codegen.planner.blocks import BANK_COLUMNS, split_even, split_upto
from conv3d_codegen.planner.double_row import HALVES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conv3d_codegen.lower.builder import Builder
    from conv3d_codegen.lower.dx_tiles import Contribution, Tile
    from conv3d_codegen.lower.windows import Box, Window
    from conv3d_codegen.planner.double_row import RowLayout
    from conv3d_codegen.program.views import Buffer, SliceView

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class PairedWindow:
    """A box of dy, two blocks of channels.

    run: [K, 2, ...] with row (n, d, h) of the box `layout.pitch` positions after the one before.
    """

    run: Buffer
    box: Box
    layout: RowLayout

    def moving(self, tile: Tile, contribution: Contribution) -> SliceView:
        """Give what one tap reads, [K, 2, N]: rows of a plane with what lies between them."""
        _, planes, rows, _ = self.box.extents
        sources = (source for source, _ in contribution.sources)
        n = tile.sample - self.box.n[0]
        d, h, w = (
            source - low for source, (low, _) in zip(sources, self.box.ranges[1:], strict=True)
        )
        row = (n * planes + d) * rows + h
        start = row * self.layout.pitch + self.layout.lead + w
        return self.run[:, :, start : start + _run_length(contribution, self.layout.pitch)]


@dataclass(frozen=True, slots=True)
class RunLanding:
    """A PSUM tile of rows of one plane, [M, rows · pitch], of which each row's first `width` columns count."""

    buffer: Buffer
    pitch: int
    width: int

    def part(self, contribution: Contribution) -> SliceView:
        """Give the rows that a tap reaches, with what lies between them."""
        first = contribution.part[1][0] * self.pitch
        return self.buffer[:, first : first + _run_length(contribution, self.pitch)]

    def evict(self, builder: Builder, tile: Tile, place: Callable[[Tile], SliceView]) -> None:
        """Copy the tile without what lies between its rows, [M, 1, rows, width]."""
        columns, positions = self.buffer.shape
        by_row = builder.alias(self.buffer, (columns, 1, positions // self.pitch, self.pitch))
        builder.copy(place(tile), by_row[:, :, :, : self.width])


def _run_length(contribution: Contribution, pitch: int) -> int:
    """Positions from the first of the first row to the last of the last one."""
    _, (first, stop), (left, right) = contribution.part
    return (stop - first - 1) * pitch + right - left


def run_landing(builder: Builder, columns: int, tile: Tile, layout: RowLayout) -> RunLanding:
    """Make room for a tile; one row alone needs nothing behind it."""
    _, rows, width = tile.extents
    pitch = layout.pitch if rows > 1 else width
    buffer = builder.allocate("dx_ps", (columns, rows * pitch), "fp32", "psum")
    return RunLanding(buffer, pitch, width)


def pair_windows(
    builder: Builder,
    windows: tuple[Window, Window],
    box: Box,
    layout: RowLayout,
    dtype: str,
) -> PairedWindow:
    """Bring what dx reads of two windows of dy together, in 8 bits."""
    _, planes, rows, width = box.extents
    count = (box.n[1] - box.n[0]) * planes * rows
    partitions = windows[0].buffer.shape[0]
    # The last row's taps read on into zeros too: those in front of a row that is not there.
    shape = (partitions, HALVES, count + (1 if layout.lead else 0), layout.pitch)
    run = builder.allocate("dy_pair", (*shape[:2], shape[2] * shape[3]), dtype, "sbuf")
    by_row = builder.alias(run, shape)
    end = layout.lead + width
    if layout.lead:
        builder.zero(by_row[:, :, :, : layout.lead])
    if end < layout.pitch:
        builder.zero(by_row[:, :, :count, end:])
    for plane in range(count // rows):
        for h, w in _pieces(rows, width):
            piece = (slice(plane * rows + h[0], plane * rows + h[1]), _moved(w, layout.lead))
            for half, window in enumerate(windows):
                source = _part(window, box, divmod(plane, planes), (h, w))
                builder.copy(by_row[(slice(None), half, *piece)], source)
    return PairedWindow(run, box, layout)


def _pieces(rows: int, width: int) -> Iterator[tuple[Range, Range]]:
    """Cut a plane into rows and columns of about a PSUM tile, so that the first tile need not wait for all."""
    for h in split_upto((0, rows), split_even(rows, max(1, BANK_COLUMNS // width))):
        for w in split_upto((0, width), split_even(width, BANK_COLUMNS)):
            yield h, w


def _part(
    window: Window, box: Box, plane: tuple[int, int], piece: tuple[Range, Range]
) -> SliceView:
    """Give a piece of one plane of a box that lies within a window."""
    (n, d, h, w) = (
        low - first for (low, _), (first, _) in zip(box.ranges, window.box.ranges, strict=True)
    )
    return window.buffer[:, n + plane[0], d + plane[1], _moved(piece[0], h), _moved(piece[1], w)]


def _moved(extent: Range, by: int) -> slice:
    return slice(extent[0] + by, extent[1] + by)
