# SPDX-License-Identifier: Apache-2.0
"""dx: window matmuls over blocks of rows, every tap accumulated in PSUM, one eviction per tile.

A tile is a box of dx blocks of one phase. Each block tap (delta_d, delta_h, shift_w) reads the dy box shifted by it and
clipped to the tensor; a matmul then writes just the matching part of the tile. The first matmul of a tile covers it
whole: the block tap that reaches everywhere if there is one, a zero matmul otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby, product
from typing import TYPE_CHECKING

from conv3d_codegen.dtypes import dtype
from conv3d_codegen.lower.double_row import pair_windows, run_landing
from conv3d_codegen.lower.dx_tiles import BoxLanding, BoxMoving, Contribution, Tile
from conv3d_codegen.lower.filter_loads import Arrivals, load_filters
from conv3d_codegen.lower.filters import (
    EntryRow,
    diagonal_bank,
    diagonal_filters,
    prepare_filters,
)
from conv3d_codegen.lower.opening import open_with_zeros
from conv3d_codegen.lower.side_taps import SideTaps
from conv3d_codegen.lower.windows import Box
from conv3d_codegen.planner.axes import BlockPhase
from conv3d_codegen.planner.blocks import split_upto
from conv3d_codegen.planner.double_row import HALVES, row_layout
from conv3d_codegen.planner.schedule import STREAMED_TILES, dx_band
from conv3d_codegen.program.instructions import matmul

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conv3d_codegen.lower.builder import Builder
    from conv3d_codegen.lower.diagonal import DiagonalFilters
    from conv3d_codegen.lower.dx_rows import DxRows, DxTarget
    from conv3d_codegen.lower.dx_tiles import Landing, Moving
    from conv3d_codegen.lower.filters import Contracted, FilterBank, FilterSource, Staged
    from conv3d_codegen.lower.windows import Window
    from conv3d_codegen.planner.axes import BlockTap, DgradAxis
    from conv3d_codegen.planner.double_row import RowLayout
    from conv3d_codegen.planner.schedule import DgradPlan
    from conv3d_codegen.program.views import Buffer

Range = tuple[int, int]
Source = tuple[int, int]  # first dy block and the step to the next

OpenTile = tuple[Tile, list[Contribution]]


@dataclass(slots=True)
class DgradLowering:
    """Emits dx of one slab after another."""

    builder: Builder
    plan: DgradPlan
    filters: FilterSource
    target: DxTarget
    dx_blocks: tuple[Range, ...]
    dy_blocks: tuple[Range, ...]
    dy_dtype: str
    loaded: Buffer | None = None
    arrivals: Arrivals | None = None
    banks: dict[tuple[int, int], FilterBank] = field(default_factory=dict)
    _preparing: Iterator[None] = field(init=False)

    def __post_init__(self) -> None:
        """Get ready to prepare filters, of some channels after the other."""
        self._preparing = self._prepare()

    def load_ahead(self, most: float) -> float:
        """Load so many bytes per partition of resident filters, and tell what is left; they are turned later."""
        diagonal = diagonal_filters(self.builder, self.filters)
        if not self.plan.filters_resident:
            return most
        if diagonal is not None:
            self.loaded = self.loaded or diagonal.load()
            return most
        self.arrivals = self.arrivals or Arrivals(self._stages())
        return self.arrivals.load(most)

    def prepare(self, block: int = -1) -> None:
        """Prepare resident filters, as far as they are not, up to those of a block of dx channels: -1 is the last."""
        last = range(len(self.dx_blocks))[block], len(self._contracted) - 1
        while self.plan.filters_resident and last not in self.banks:
            next(self._preparing)

    def _prepare(self) -> Iterator[None]:
        """Prepare all filters, those of one block of dx channels at a time."""
        diagonal = diagonal_filters(self.builder, self.filters)
        if diagonal is not None:
            self.banks[0, 0] = self._diagonal_bank(diagonal)
            yield
            return
        self.arrivals = self.arrivals or Arrivals(self._stages())
        for (dx_channels, contracted), stages in groupby(
            self.arrivals, key=lambda stage: (stage.dx_channels, stage.contracted)
        ):
            banks = prepare_filters(self.builder, self.filters, stages, contracted)
            i = self.dx_blocks.index(dx_channels)
            for dy_channels, bank in zip(contracted, banks, strict=True):
                self.banks[i, self._contracted.index(dy_channels)] = bank
            yield

    def _stages(self) -> Iterator[Staged]:
        """Load all filters, stage by stage as they are asked for."""
        for dx_channels, contracted in self._loaded_together():
            yield from load_filters(self.builder, self.filters, dx_channels, contracted)

    def _diagonal_bank(self, diagonal: DiagonalFilters) -> FilterBank:
        loaded = self.loaded or diagonal.load()
        return diagonal_bank(diagonal, loaded, side_by_side=self.side is not None)

    def _streamed(self, dx_channels: Range, dy_channels: Contracted) -> FilterBank:
        """Prepare the filters of one pair of blocks where they do not stay."""
        diagonal = diagonal_filters(self.builder, self.filters)
        if diagonal is not None:
            return self._diagonal_bank(diagonal)
        contracted = (dy_channels,)
        loaded = load_filters(self.builder, self.filters, dx_channels, contracted)
        return prepare_filters(self.builder, self.filters, loaded, contracted)[0]

    @property
    def side(self) -> SideTaps | None:
        """W, where several of its taps lie side by side."""
        return SideTaps(self.plan.axes[2], self.plan.beside) if self.plan.beside > 1 else None

    @property
    def _contracted(self) -> tuple[Contracted, ...]:
        """Blocks of dy channels that one matmul contracts: one, or a pair."""
        step = HALVES if self.plan.double_row else 1
        return tuple(self.dy_blocks[i : i + step] for i in range(0, len(self.dy_blocks), step))

    def _loaded_together(self) -> Iterator[tuple[Range, tuple[Contracted, ...]]]:
        """Give each block of dx channels with all of dy, which makes longer runs, if those can be told apart later."""
        depth, height, _ = self.plan.axes
        joins = self.filters.turns and self.filters.tensor.is_dense
        for dx_channels in self.dx_blocks:
            if joins and depth.fold * height.fold == 1:
                yield dx_channels, self._contracted
            else:
                yield from ((dx_channels, (blocks,)) for blocks in self._contracted)

    def slab(self, box: Box, windows: tuple[Window, ...]) -> None:
        """Compute and store the dx rows of one slab; box is in dx rows, windows are dy per channel block."""
        operands = self._operands(box, windows)
        for i, channels in enumerate(self.dx_blocks):
            for band in self._bands(box):
                rows = self.target.allocate(self.builder, band, channels)
                self._compute(i, operands, rows)
                rows.store(self.builder)

    def _bands(self, box: Box) -> Iterator[Box]:
        """Cut a slab into samples and whole tiles, each of which is stored while the next one is computed."""
        band = dx_band(self.plan, box.extents[1:], dtype(self.target.dtype).bytes)
        cuts = []
        for axis, (low, high), size in zip(self.plan.axes, box.ranges[1:], band, strict=True):
            start = (low + axis.pad) // axis.period * axis.period - axis.pad
            pieces = [(low, high)] if size >= high - low else split_upto((start, high), size)
            cuts.append([(max(first, low), stop) for first, stop in pieces])
        for sample in range(*box.n):
            for d, h, w in product(*cuts):
                yield Box((sample, sample + 1), d, h, w)

    def dy_box(self, box: Box) -> Box:
        """Dy rows that the dx rows of a box need, clipped to the tensor."""
        needed = []
        for axis, (low, high) in zip(self.plan.axes, box.ranges[1:], strict=True):
            first, stop = axis.held(low, high)
            needed.append((first * axis.fold, min(axis.dy_size, stop * axis.fold)))
        if self.side is not None:
            needed[2] = self.side.sources(box.w)
        return Box(box.n, *needed)

    def _operands(self, box: Box, windows: tuple[Window, ...]) -> tuple[Moving, ...]:
        """Give what matmuls read of dy, for every block of channels or pair of them."""
        if not self.plan.double_row:
            return tuple(map(BoxMoving, windows))
        needed = self.dy_box(box)
        if needed.is_empty:
            return ()
        layout = self._row_layout(box)
        pairs = zip(windows[::HALVES], windows[1::HALVES], strict=True)
        return tuple(
            pair_windows(self.builder, pair, needed, layout, self.dy_dtype) for pair in pairs
        )

    def _row_layout(self, box: Box) -> RowLayout:
        return row_layout(self.plan.axes[2], *box.w)

    def _compute(self, i: int, operands: tuple[Moving, ...], rows: DxRows) -> None:
        self.prepare(i)
        open_tiles: list[OpenTile] = []
        for tile in self._tiles(rows.box):
            contributions = self._contributions(tile)
            if contributions:
                open_tiles.append((tile, contributions))
            else:
                parts = [tile] if self.side is None else self.side.phases(tile, rows.box.w)
                for part in parts:
                    self.builder.zero(rows.place(part))
        group = 1 if self.plan.filters_resident else STREAMED_TILES
        for start in range(0, len(open_tiles), group):
            self._accumulate(i, operands, rows, open_tiles[start : start + group])

    def _accumulate(
        self, i: int, operands: tuple[Moving, ...], rows: DxRows, tiles: list[OpenTile]
    ) -> None:
        """Matmuls of a group of tiles; streamed filters are turned once per group and block of dy channels."""
        landings = [self._land(rows, tile) for tile, _ in tiles]
        for o, operand in enumerate(operands):
            dy_channels = self._contracted[o]
            bank = self.banks.get((i, o)) or self._streamed(rows.channels, dy_channels)
            for (tile, contributions), landing in zip(tiles, landings, strict=True):
                self.builder.comment(
                    f"{landing.buffer.name}: {tile.describe(self.plan.axes)}, "
                    f"from channels {dy_channels[0][0]} to {dy_channels[-1][1] - 1} of dy"
                )
                opened = o > 0
                if not opened and not contributions[0].covers(tile):
                    open_with_zeros(self.builder, landing.buffer)
                    opened = True
                for contribution in contributions:
                    self.builder.add(
                        matmul(
                            landing.part(contribution),
                            bank.stationary(contribution.row, contribution.taps),
                            operand.moving(tile, contribution),
                            accumulate=opened,
                            double_row=self.plan.double_row,
                        )
                    )
                    opened = True
        for (tile, _), landing in zip(tiles, landings, strict=True):
            landing.evict(self.builder, tile, rows.place)

    def _land(self, rows: DxRows, tile: Tile) -> Landing:
        columns = rows.buffer.shape[0]
        if self.plan.double_row:
            return run_landing(self.builder, columns, tile, self._row_layout(rows.box))
        if self.side is not None:
            return self.side.land(self.builder, columns, tile, rows.box.w)
        shape = (columns, *tile.extents)
        return BoxLanding(self.builder.allocate("dx_ps", shape, "fp32", "psum"))

    def _tiles(self, box: Box) -> Iterator[Tile]:
        depth, height, width = self.plan.axes
        columns = width.phases if self.side is None else (BlockPhase(0, width.entries()),)
        for sample in range(*box.n):
            for phases in product(depth.phases, height.phases, columns):
                cuts = [
                    list(split_upto(axis.blocks_for(phase, *extent), size))
                    for axis, phase, extent, size in zip(
                        self.plan.axes, phases, box.ranges[1:], self.plan.tile, strict=True
                    )
                ]
                if self.side is not None:
                    cuts[2] = list(self.side.tiles(box.w, self.plan.tile[2]))
                for d, h, w in product(*cuts):
                    yield Tile(sample, phases, (d, h, w), by_source=self.side is not None)

    def _contributions(self, tile: Tile) -> list[Contribution]:
        """All matmuls of a tile, one that covers it first if there is one."""
        depth, height, width = self.plan.axes
        rows = product(
            _reaches(depth, tile.phases[0], tile.blocks[0]),
            _reaches(height, tile.phases[1], tile.blocks[1]),
        )
        columns = list(self._columns_read(width, tile))
        found = [
            Contribution(EntryRow(d, h), taps, (d_part, h_part, part), (d_source, h_source, source))
            for (d, d_part, d_source), (h, h_part, h_source) in rows
            for taps, part, source in columns
        ]
        found.sort(key=lambda c: not c.covers(tile))
        return found

    def _columns_read(self, axis: DgradAxis, tile: Tile) -> Iterator[tuple[Range, Range, Source]]:
        """Give the taps of W of each matmul, the columns of the tile that they reach, and what they read."""
        first, stop = tile.blocks[2]
        whole = 0, stop - first
        if self.side is not None:
            for taps, column in self.side.reads(tile.blocks[2]):
                yield taps, whole, (column, 1)
            return
        for tap, part, source in _reaches(axis, tile.phases[2], tile.blocks[2]):
            number = tap.triples[0][2]
            if self.plan.double_row:  # rows are read whole: beside them lie zeros
                yield (number, number + 1), whole, (first - tap.delta, 1)
            else:
                yield (number, number + 1), part, source


def _reaches(
    axis: DgradAxis, phase: BlockPhase, blocks: Range
) -> Iterator[tuple[BlockTap, Range, Source]]:
    """Give the taps that reach some blocks of a phase, which of these they reach, and what they read."""
    first, stop = blocks
    for tap in phase.taps:
        low, high = axis.sources(tap, first, stop)
        if low < high:
            yield tap, (low - first, high - first), (low * axis.step - tap.delta, axis.step)
