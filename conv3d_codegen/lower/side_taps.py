# SPDX-License-Identifier: Apache-2.0
"""Tiles of dx with taps of W side by side: quarters or halves of the partitions, whose products meet on eviction.

See planner.side_taps. Vector reads both operands of a sum from the same partitions, and writes the result where the
next tap's product lies: the last one to the dx rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from conv3d_codegen.planner.blocks import PARTITIONS, split_upto
from conv3d_codegen.planner.side_taps import (
    side_blocks,
    side_deltas,
    side_reads,
    side_runs,
    side_sources,
    side_taps,
)
from conv3d_codegen.program.instructions import tensor_add

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conv3d_codegen.lower.builder import Builder
    from conv3d_codegen.lower.dx_tiles import Contribution, Tile
    from conv3d_codegen.planner.axes import DgradAxis
    from conv3d_codegen.program.views import Buffer, SliceView

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class SideTaps:
    """W of dx with so many taps beside each other; a tile of it holds dy columns, as the first taps take them."""

    axis: DgradAxis
    beside: int

    def tiles(self, columns: Range, size: int) -> Iterator[Range]:
        """Dy columns that tiles of so many blocks of some dx columns take."""
        for blocks in split_upto(side_blocks(self.axis, *columns), size):
            yield side_sources(self.axis, self.beside, *blocks)

    def sources(self, columns: Range) -> Range:
        """Dy columns that some dx columns take, whether they exist or not; none if none exists."""
        blocks = side_blocks(self.axis, *columns)
        first = side_sources(self.axis, self.beside, *blocks)
        return self._read(first) if self._exists(first) else (0, 0)

    def reads(self, dy_columns: Range) -> Iterator[tuple[Range, int]]:
        """Give the taps of each matmul of a tile, and the first dy column that it reads; none if none exists."""
        if self._exists(dy_columns):
            for taps, back in side_runs(self.axis, self.beside):
                yield taps, dy_columns[0] - back

    def _read(self, dy_columns: Range) -> Range:
        return side_reads(self.axis, self.beside, dy_columns)

    def _exists(self, dy_columns: Range) -> bool:
        """Whether any column that a tile reads exists."""
        first, stop = self._read(dy_columns)
        return first < self.axis.dy_size and stop > 0

    def phases(self, tile: Tile, columns: Range) -> Iterator[Tile]:
        """Give what a tile holds of some dx columns, phase by phase, in blocks of dx."""
        (first, stop), (low, high) = tile.blocks[2], side_deltas(self.axis, self.beside)
        for phase in self.axis.phases:
            held = self.axis.blocks_for(phase, *columns)
            blocks = max(held[0], first + high), min(held[1], stop + low)
            if blocks[0] < blocks[1]:
                ranges = (*tile.blocks[:2], blocks)
                phases = (*tile.phases[:2], phase)
                yield replace(tile, phases=phases, blocks=ranges, by_source=False)

    def land(self, builder: Builder, rows: int, tile: Tile, columns: Range) -> SideLanding:
        """Make room for a tile of some dx columns; rows: partitions that a tap's product counts on."""
        taps = min(self.beside, len(self.axis.entries()))
        partitions = PARTITIONS // self.beside * taps
        buffer = builder.allocate("dx_ps", (partitions, *tile.extents), "fp32", "psum")
        return SideLanding(self, buffer, rows, columns)


@dataclass(frozen=True, slots=True)
class SideLanding:
    """A tile in PSUM: [taps · M, blocks of D, blocks of H, dy columns]."""

    side: SideTaps
    buffer: Buffer
    rows: int
    columns: Range

    def part(self, contribution: Contribution) -> SliceView:
        """Give the box that some taps reach, on their partitions."""
        first, stop = contribution.taps
        partitions = PARTITIONS // self.side.beside * (stop - first)
        return self.buffer[(slice(0, partitions), *(slice(*part) for part in contribution.part))]

    def evict(self, builder: Builder, tile: Tile, place: Callable[[Tile], SliceView]) -> None:
        """Add each dx column's taps up, phase by phase."""
        origin = tile.blocks[2][0]
        builder.comment(f"{self.buffer.name}: the taps of W, each on partitions of its own, add up")
        for part in self.side.phases(tile, self.columns):
            first, stop = part.blocks[2]
            number = self.side.axis.phases.index(part.phases[2])
            self._add_up(builder, number, (first - origin, stop - origin), place(part))

    def _add_up(self, builder: Builder, phase: int, blocks: Range, out: SliceView) -> None:
        """Add up what the taps of one phase bring to some dx blocks, counted from the tile's first dy column."""
        taps = side_taps(self.side.axis)[: self.side.beside]
        parts = [(number, tap.delta) for number, tap in enumerate(taps) if tap.phase == phase]
        if not parts:
            builder.zero(out)
            return
        products = [self._product(number, delta, blocks) for number, delta in parts]
        if len(parts) == 1:
            builder.copy(out, products[0])
            return
        extents = (*self.buffer.shape[1:3], blocks[1] - blocks[0])
        sums = builder.allocate("dx_sum", (PARTITIONS, *extents), "fp32", "sbuf")
        held = [sums[self._partitions(number)] for number, _ in parts[1:]]
        builder.copy(held[0], products[0])
        for here, product, dst in zip(held, products[1:], [*held[1:], out], strict=True):
            builder.add(tensor_add(dst, here, product, "vector"))

    def _product(self, number: int, delta: int, blocks: Range) -> SliceView:
        columns = slice(*(block - delta for block in blocks))
        return self.buffer[self._partitions(number), :, :, columns]

    def _partitions(self, number: int) -> slice:
        start = number * (PARTITIONS // self.side.beside)
        return slice(start, start + self.rows)
