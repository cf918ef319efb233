# SPDX-License-Identifier: Apache-2.0
"""Prices dx: window matmuls, evictions, and the turning of filters."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

from conv3d_codegen.planner.blocks import BANK_COLUMNS, ceil_div
from conv3d_codegen.planner.double_row import HALVES, most_pitch, rows_read
from conv3d_codegen.planner.estimate import DgradCounts, Work, dgrad_boxes, dgrad_counts
from conv3d_codegen.planner.price_groups import GroupPrices
from conv3d_codegen.planner.schedule import STREAMED_TILES
from conv3d_codegen.planner.side_taps import side_counts

if TYPE_CHECKING:
    from conv3d_codegen.planner.schedule import DgradPlan, Schedule

Sizes = tuple[int, int, int, int]


@dataclass(frozen=True)
class DgradPrices(GroupPrices):
    """Prices ways to compute dx."""

    @property
    def dgrad_channels(self) -> tuple[int, int]:
        """Channels of dx and of dy."""
        channels = (self.problem.in_channels, self.problem.out_channels)
        return channels[::-1] if self.problem.transposed else channels

    def dy_block(self, schedule: Schedule) -> int:
        """Channels of a window of dy."""
        return schedule.x_block if self.problem.transposed else schedule.dy_block

    def dgrad_counts(self, plan: DgradPlan, sizes: Sizes) -> tuple[DgradCounts, ...]:
        """Count the three axes."""
        depth, height, width = (
            dgrad_counts(axis, slab, tile)
            for axis, slab, tile in zip(plan.axes, sizes[1:], plan.tile, strict=True)
        )
        if plan.beside > 1:
            side = side_counts(plan.axes[2], sizes[3], plan.tile[2], plan.beside)
            width = DgradCounts(side.columns, side.boxes, side.copied, side.copies, width.entries)
        return depth, height, width

    def _adding_work(self, plan: DgradPlan, counts: tuple[DgradCounts, ...], sizes: Sizes) -> Work:
        """Add what taps that lie side by side contribute, on Vector, which alone adds what is in PSUM."""
        depth, height, _ = counts
        side = side_counts(plan.axes[2], sizes[3], plan.tile[2], plan.beside)
        number = self.problem.batch * depth.tiles * height.tiles * side.adds
        columns = self.problem.batch * depth.blocks * height.blocks * side.added
        spec = self.prices.spec
        cycles = max(columns, spec.min_interval_cycles * number)
        return Work(vector=cycles / spec.clock_ghz["vector"], instructions=number)

    def dgrad_work(self, plan: DgradPlan, sizes: Sizes, dy_block: int) -> Work:
        """Matmuls, evictions and filter turning of dx."""
        works = [
            self._part_work(way, stop - first, sizes, dy_block)
            for (first, stop), way in plan.parts(self.dgrad_channels[0])
        ]
        return sum(works[1:], works[0])

    def _part_work(self, plan: DgradPlan, channels: int, sizes: Sizes, dy_block: int) -> Work:
        """Compute so many channels of dx."""
        problem, prices = self.problem, self.prices
        counts = self.dgrad_counts(plan, sizes)
        dy_channels = self.dgrad_channels[1]
        in_blocks = ceil_div(channels, plan.in_block)
        out_blocks = ceil_div(dy_channels, dy_block)
        chained = out_blocks // HALVES if plan.double_row else out_blocks
        number = problem.batch * in_blocks * chained * math.prod(c.boxes for c in counts)
        columns = problem.batch * in_blocks * chained * self._columns(plan, counts, sizes)
        tiles = problem.batch * in_blocks * math.prod(c.tiles for c in counts)
        drained = problem.batch * in_blocks * math.prod(c.blocks for c in counts)
        work = Work(
            tensor=prices.matmuls(number, columns),
            drain=prices.drains(tiles, drained, 4),
            instructions=number + tiles,
        )
        if plan.beside > 1:
            work += self._adding_work(plan, counts, sizes)
        if plan.double_row:
            work += self._pairing_work(plan, sizes, out_blocks)
        if plan.filters_resident:
            filters = self._part_filters(plan, channels, sizes, dy_block)
            return work + replace(filters, once=filters.instructions)
        turns = ceil_div(tiles, STREAMED_TILES * in_blocks)
        return work + self._part_filters(plan, channels, sizes, dy_block).times(turns)

    def _columns(self, plan: DgradPlan, counts: tuple[DgradCounts, ...], sizes: Sizes) -> int:
        """Columns that the matmuls of one pair of channel blocks move.

        Double ones move whole rows and the zeros between them. How long rows of small slabs take is not left to an
        average: few rows move hardly any zeros, but are too short to be any faster.
        """
        if not plan.double_row:
            return math.prod(c.columns for c in counts)
        (_, *axes), (_, *slabs), (_, *tile) = plan.axes, sizes[1:], plan.tile
        heights, widths = map(dgrad_boxes, axes, slabs, tile)
        pitch, least = most_pitch(axes[1], slabs[1]), self.prices.spec.min_interval_cycles
        return counts[0].columns * sum(
            often * times * max(least, (rows - 1) * pitch + width)
            for (often, _, rows), (times, width, _) in product(heights, widths)
        )

    def _pairing_work(self, plan: DgradPlan, sizes: Sizes, dy_blocks: int) -> Work:
        """Bring the blocks of dy's channels together in 8 bits, plane by plane."""
        planes, *rows = (rows_read(a, size) for a, size in zip(plan.axes, sizes[1:], strict=True))
        planes *= self.problem.batch * dy_blocks
        columns = planes * math.prod(rows)
        copies = max(planes, columns / BANK_COLUMNS)
        return Work(drain=self.prices.casts(columns, 1), instructions=copies)

    def filter_item(self, plan: DgradPlan) -> int:
        """Bytes of an element of the stationary matrices."""
        return 1 if plan.double_row else self.item

    def filter_work(self, plan: DgradPlan, sizes: Sizes, dy_block: int) -> Work:
        """Load and turn all stationary matrices once."""
        works = [
            self._part_filters(way, stop - first, sizes, dy_block)
            for (first, stop), way in plan.parts(self.dgrad_channels[0])
        ]
        return sum(works[1:], works[0])

    def _part_filters(self, plan: DgradPlan, channels: int, sizes: Sizes, dy_block: int) -> Work:
        """Load and turn the matrices of so many channels of dx once."""
        dx_channels, dy_channels = self.dgrad_channels
        in_blocks, out_blocks = ceil_div(channels, plan.in_block), ceil_div(dy_channels, dy_block)
        pairs = in_blocks * out_blocks
        if self.is_diagonal:
            return self.diagonal_work(plan).times(pairs)
        depth, height, _ = plan.axes
        entries = math.prod(c.entries for c in self.dgrad_counts(plan, sizes))
        rows = plan.columns(plan.in_block)
        columns = entries * rows * pairs
        bytes_moved = self.filter_elements * self.item * channels // dx_channels
        fold = depth.fold * height.fold
        is_joined = fold == 1 and plan.filters_resident and self.problem.groups == 1
        run = (dy_channels if is_joined else min(dy_channels, 128 // fold)) * self.item
        loads = 1
        if depth.blocked or height.blocked:
            loads = sum(len(t.triples) for t in depth.entries())
            loads *= sum(len(t.triples) for t in height.entries())
            bytes_moved = bytes_moved * loads // (self.problem.kernel[0] * self.problem.kernel[1])
        loads *= in_blocks if is_joined else pairs
        prices = self.prices
        spread = pairs * self.spread_vector_ns(rows) if self.problem.groups > 1 else 0.0
        work = Work(
            vector=spread, dma=prices.small_dma(loads, bytes_moved, run), instructions=loads
        )
        if not self.turns_filters:
            return work
        drains = columns / BANK_COLUMNS
        return work + Work(
            tensor=prices.transposes(entries * pairs, rows),
            drain=prices.drains(drains, columns, self.filter_item(plan)),
            instructions=pairs * entries + drains,
        )

    @property
    def turns_filters(self) -> bool:
        """Whether matrices are loaded with dx's channels on partitions, since HBM has runs of dy's, and turned."""
        return (self.geometry.filter_layout == "DHWCN") != self.problem.transposed

    def filter_bytes(self, plan: DgradPlan, dy_block: int) -> int:
        """SBUF bytes per partition of all stationary matrices."""
        depth, height, width = plan.axes
        entries = len(depth.entries()) * len(height.entries()) * len(width.entries())
        dx_channels, dy_channels = self.dgrad_channels
        rows = sum(
            ceil_div(stop - first, way.in_block) * way.columns(way.in_block)
            for (first, stop), way in plan.parts(dx_channels)
        )
        return ceil_div(dy_channels, dy_block) * entries * rows * self.filter_item(plan)
