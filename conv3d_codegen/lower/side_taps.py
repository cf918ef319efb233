# SPDX-License-Identifier: Apache-2.0
"""Tiles of dx with taps of W side by side: quarters or halves of the partitions, whose products meet on eviction.

See planner.side_taps. Vector reads both operands of a sum from the same partitions, and writes the result where the
next tap's product lies: the last one to the dx rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from conv3d_codegen.planner.blocks import PARTITIONS, split_upto
from conv3d_codegen.planner.side_taps import side_blocks, side_sources
from conv3d_codegen.program.instructions import tensor_add

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conv3d_codegen.lower.builder import Builder
    from conv3d_codegen.lower.dx_tiles import Contribution, Tile
    from conv3d_codegen.planner.axes import BlockPhase, BlockTap, DgradAxis
    from conv3d_codegen.program.views import Buffer, SliceView

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class SideTaps:
    """W of dx with so many taps beside each other; a tile of it holds dy columns."""

    axis: DgradAxis
    beside: int

    def runs(self) -> tuple[Range, ...]:
        """Taps of each matmul."""
        return tuple(split_upto((0, len(self.axis.entries())), self.beside))

    def tiles(self, columns: Range, size: int) -> Iterator[Range]:
        """Dy columns that tiles of so many blocks of some dx columns take."""
        for blocks in split_upto(side_blocks(self.axis, *columns), size):
            yield side_sources(self.axis, *blocks)

    def sources(self, columns: Range) -> Range:
        """Dy columns that some dx columns take, whether they exist or not; none if none exists."""
        found = side_sources(self.axis, *side_blocks(self.axis, *columns))
        return found if self.exists(found) else (0, 0)

    def exists(self, dy_columns: Range) -> bool:
        """Whether any of some dy columns exists."""
        return dy_columns[0] < self.axis.dy_size and dy_columns[1] > 0

    def phases(self, tile: Tile, columns: Range) -> Iterator[Tile]:
        """Give what a tile holds of some dx columns, phase by phase, in blocks of dx."""
        (first, stop), (low, high) = tile.blocks[2], self.axis.deltas
        for phase in self.axis.phases:
            held = self.axis.blocks_for(phase, *columns)
            blocks = max(held[0], first + high), min(held[1], stop + low)
            if blocks[0] < blocks[1]:
                ranges = (*tile.blocks[:2], blocks)
                phases = (*tile.phases[:2], phase)
                yield replace(tile, phases=phases, blocks=ranges, by_source=False)

    def land(self, builder: Builder, rows: int, tile: Tile, columns: Range) -> SideLanding:
        """Make room for a tile of some dx columns; rows: partitions that a tap's product counts on."""
        part = PARTITIONS // self.beside
        buffers = (
            builder.allocate("dx_ps", (part * (stop - first), *tile.extents), "fp32", "psum")
            for first, stop in self.runs()
        )
        return SideLanding(self, tuple(buffers), rows, columns)


@dataclass(frozen=True, slots=True)
class SideLanding:
    """A tile, one buffer for each run of taps: [taps · M, blocks of D, blocks of H, dy columns]."""

    side: SideTaps
    buffers: tuple[Buffer, ...]
    rows: int
    columns: Range

    def part(self, contribution: Contribution) -> SliceView:
        """Give the box that some taps reach."""
        buffer = self.buffers[contribution.taps[0] // self.side.beside]
        return buffer[(slice(None), *(slice(*part) for part in contribution.part))]

    def evict(self, builder: Builder, tile: Tile, place: Callable[[Tile], SliceView]) -> None:
        """Add each dx column's taps up, phase by phase."""
        origin = tile.blocks[2][0]
        names = ", ".join(buffer.name for buffer in self.buffers)
        builder.comment(f"{names}: the taps of W, each on partitions of its own, add up")
        for part in self.side.phases(tile, self.columns):
            first, stop = part.blocks[2]
            self._add_up(builder, part.phases[2], (first - origin, stop - origin), place(part))

    def _add_up(self, builder: Builder, phase: BlockPhase, blocks: Range, out: SliceView) -> None:
        if not phase.taps:
            builder.zero(out)
            return
        *earlier, last = phase.taps
        following = [*phase.taps[1:], None]
        if not earlier:
            builder.copy(out, self._product(last, blocks))
            return
        extents = (*self.buffers[0].shape[1:3], blocks[1] - blocks[0])
        sums = builder.allocate("dx_sum", (PARTITIONS, *extents), "fp32", "sbuf")
        for tap, after in zip(phase.taps, following, strict=True):
            dst = out if after is None else sums[self._partitions(after)]
            if tap is phase.taps[0]:
                builder.copy(dst, self._product(tap, blocks))
            else:
                here = sums[self._partitions(tap)]
                builder.add(tensor_add(dst, here, self._product(tap, blocks), "vector"))

    def _product(self, tap: BlockTap, blocks: Range) -> SliceView:
        """Give what a tap brings to dx blocks, counted from the tile's first dy column."""
        run = _index(tap) // self.side.beside
        columns = slice(*(block - tap.delta for block in blocks))
        return self.buffers[run][self._partitions(tap), :, :, columns]

    def _partitions(self, tap: BlockTap) -> slice:
        start = _index(tap) % self.side.beside * (PARTITIONS // self.side.beside)
        return slice(start, start + self.rows)


def _index(tap: BlockTap) -> int:
    """Give the number of a tap of W."""
    return tap.triples[0][2]
