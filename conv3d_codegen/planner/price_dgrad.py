# SPDX-License-Identifier: Apache-2.0
"""Prices dx: window matmuls, evictions, and the turning of filters."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from conv3d_codegen.planner.blocks import BANK_COLUMNS, ceil_div
from conv3d_codegen.planner.estimate import Work, dgrad_counts
from conv3d_codegen.planner.price_groups import GroupPrices

if TYPE_CHECKING:
    from conv3d_codegen.planner.estimate import DgradCounts
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
        return tuple(
            dgrad_counts(axis, slab, tile)
            for axis, slab, tile in zip(plan.axes, sizes[1:], plan.tile, strict=True)
        )

    def dgrad_work(self, plan: DgradPlan, sizes: Sizes, dy_block: int) -> Work:
        """Matmuls, evictions and filter turning of dx."""
        problem, prices = self.problem, self.prices
        counts = self.dgrad_counts(plan, sizes)
        dx_channels, dy_channels = self.dgrad_channels
        in_blocks = ceil_div(dx_channels, plan.in_block)
        out_blocks = ceil_div(dy_channels, dy_block)
        number = problem.batch * in_blocks * out_blocks * math.prod(c.boxes for c in counts)
        columns = problem.batch * in_blocks * out_blocks * math.prod(c.columns for c in counts)
        tiles = problem.batch * in_blocks * math.prod(c.tiles for c in counts)
        drained = problem.batch * in_blocks * math.prod(c.blocks for c in counts)
        work = Work(
            tensor=prices.matmuls(number, columns),
            drain=prices.drains(tiles, drained, 4),
            instructions=number + tiles,
        )
        if plan.filters_resident:
            filters = self.filter_work(plan, sizes, dy_block)
            return work + replace(filters, once=filters.instructions)
        turns = ceil_div(tiles, 4 * in_blocks)
        return work + self.filter_work(plan, sizes, dy_block).times(turns)

    def filter_work(self, plan: DgradPlan, sizes: Sizes, dy_block: int) -> Work:
        """Load and turn all stationary matrices once."""
        dx_channels, dy_channels = self.dgrad_channels
        in_blocks, out_blocks = (
            ceil_div(dx_channels, plan.in_block),
            ceil_div(dy_channels, dy_block),
        )
        pairs = in_blocks * out_blocks
        if self.is_diagonal:
            return self.diagonal_work(plan).times(pairs)
        depth, height, _ = plan.axes
        entries = math.prod(c.entries for c in self.dgrad_counts(plan, sizes))
        rows = depth.rows * height.rows * plan.in_block
        columns = entries * rows * pairs
        bytes_moved = self.filter_elements * self.item
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
        return Work(
            vector=spread,
            tensor=prices.transposes(entries * pairs, rows),
            drain=prices.drains(columns / BANK_COLUMNS, columns, self.item),
            dma=prices.small_dma(loads, bytes_moved, run),
            instructions=loads + pairs * (entries + entries * rows / BANK_COLUMNS),
        )

    def filter_bytes(self, plan: DgradPlan, dy_block: int) -> int:
        """SBUF bytes per partition of all stationary matrices."""
        depth, height, width = plan.axes
        entries = len(depth.entries()) * len(height.entries()) * len(width.entries())
        dx_channels, dy_channels = self.dgrad_channels
        in_blocks = ceil_div(dx_channels, plan.in_block)
        out_blocks = ceil_div(dy_channels, dy_block)
        rows = depth.rows * height.rows * plan.in_block
        return in_blocks * out_blocks * entries * rows * self.item
