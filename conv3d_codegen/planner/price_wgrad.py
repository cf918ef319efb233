# SPDX-License-Identifier: Apache-2.0
"""Prices dw: turning operands, contracting positions, adding up and storing sums."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from conv3d_codegen.planner.blocks import (
    BANK_COLUMNS,
    ceil_div,
    channel_blocks,
    row_cuts,
    split_even,
    split_upto,
)
from conv3d_codegen.planner.correlation import correlation_axis, fixed_axis
from conv3d_codegen.planner.double_row import may_pair_positions
from conv3d_codegen.planner.estimate import Work, paired_steps, wgrad_counts
from conv3d_codegen.planner.price_groups import GroupPrices
from conv3d_codegen.planner.schedule import ALONG_H

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from conv3d_codegen.planner.correlation import CorrelationAxis
    from conv3d_codegen.planner.estimate import WgradCounts
    from conv3d_codegen.planner.schedule import Schedule, WgradPlan

Sizes = tuple[int, int, int, int]
Fold = tuple[int, int]
Extents = tuple[int, int, int]


DIRECT_TRANSFERS = 24  # per slab: groups along the outer axes, times a middle and two borders


@dataclass(frozen=True)
class WgradPrices(GroupPrices):
    """Prices ways to compute dw."""

    def wgrad_axes(self, plan: WgradPlan) -> tuple[CorrelationAxis, ...]:
        """Set up the axes as the plan shifts them."""
        return tuple(
            correlation_axis(axis, plan.shifted(number))
            for number, axis in enumerate(self.problem.axes)
        )

    def wgrad_counts(self, plan: WgradPlan, sizes: Sizes) -> tuple[WgradCounts, ...]:
        """Count the three axes."""
        return tuple(
            wgrad_counts(axis, slab, length)
            for axis, slab, length in zip(
                self.wgrad_axes(plan), sizes[1:], plan.lengths[1:], strict=True
            )
        )

    def wgrad_channels(self, plan: WgradPlan) -> tuple[int, int]:
        """Channels of the stationary and of the moving tensor."""
        channels = (self.problem.out_channels, self.problem.in_channels)
        return channels if plan.moving == "wide" else channels[::-1]

    def wgrad_work(self, schedule: Schedule, plan: WgradPlan) -> Work:
        """Turn the operands, contract, evict, and write the results of dw."""
        prices, sizes = self.prices, schedule.slabs.sizes
        counts = self.wgrad_counts(plan, sizes)
        stationary, moving = self.wgrad_channels(plan)
        blocks = ceil_div(stationary, 128)
        samples = self.sample_entries(plan, sizes)
        chains = self.chains(plan)
        slabs = ceil_div(self.problem.batch, sizes[0]) * math.prod(c.slabs for c in counts)
        passes = ceil_div(chains, schedule.chains_per_pass)
        lanes = self.sample_entries(plan, sizes, paired=plan.pair_axis == 0)
        steps = self.steps(plan, counts, sizes)
        columns, share, cells = float(lanes * blocks * moving), 1.0, moving * blocks
        for number, (axis, count) in enumerate(zip(self.problem.axes, counts, strict=True)):
            if number == plan.stationary_axis:
                runs = self.packed_runs(plan)
                columns, cells = columns * count.plain * runs, cells * runs
            else:
                columns, cells = columns * steps[number], cells * axis.kernel
                share *= steps[number] / (count.plain * axis.kernel)
        matmuls = lanes * math.prod(c.plain for c in counts) * chains * share
        if plan.rows > 1:
            matmuls, columns, cells = self.row_products(plan, counts, samples)
        slowdown = self.moving_slowdown(plan, counts)
        work = Work(tensor=slowdown * prices.matmuls(matmuls, columns), instructions=matmuls)
        folds = (schedule.dy_fold, schedule.x_fold)
        still_fold, moving_fold = folds if plan.moving == "wide" else folds[::-1]
        still, moved = self._turned_entries(plan, counts, (still_fold, moving_fold))
        still, moved = samples * still, samples * moved
        moving_passes = max(1, passes // self.moving_blocks(plan))
        held = self.entry_extents(plan, counts)
        for side, entries, channels, fold, extents in (
            (plan.stationary, passes * still, stationary, still_fold, held[0]),
            (plan.moving, moving_passes * moved, moving, moving_fold, held[1]),
        ):
            if self.is_direct(side):
                work += self._direct_work(entries, channels, slabs, self.turned_item(plan))
            else:
                work += self._turn_work(entries, channels, fold, (extents, self.turned_item(plan)))
        if slabs > 1:
            clock = prices.spec.clock_ghz["vector"]
            work += Work(vector=slabs * cells / clock, instructions=slabs * chains)
        if self.problem.exchanges:
            work += Work(
                vector=cells / prices.spec.clock_ghz["vector"],
                dma=prices.dma(chains, cells * min(stationary, 128) * 4, 2048),
                instructions=2 * chains,
            )
        results = self._result_work(plan, chains, cells)
        return work + replace(results, once=results.instructions)

    def row_products(
        self, plan: WgradPlan, counts: Sequence[WgradCounts], samples: int
    ) -> tuple[float, float, int]:
        """Count matmuls, their columns, and columns of sums where rows lie beside the stationary channels."""
        depth, height, width = counts
        k_d, _, k_w = self.problem.kernel
        blocks = height.slabs * ceil_div(height.plain_most, plan.rows)
        reached = self.reach(plan) * self.wgrad_channels(plan)[1]
        matmuls = samples * depth.plain * width.plain * blocks * self.chains(plan)
        columns = samples * depth.pairs * width.pairs * blocks * reached
        return matmuls, columns, k_d * k_w * reached

    def reach(self, plan: WgradPlan) -> int:
        """How many rows of H of the moving tensor the rows beside the stationary channels meet."""
        return correlation_axis(self.problem.axes[1], plan.moving).reach(plan.rows)

    def moving_slowdown(self, plan: WgradPlan, counts: Sequence[WgradCounts]) -> int:
        """How much longer matmuls take whose moving elements lie far apart: a single channel, with no taps along H."""
        if plan.rows > 1 or min(plan.moving_block, self.wgrad_channels(plan)[1]) > 1:
            return 1
        taps = self.problem.kernel
        fixed = plan.stationary_axis
        if fixed is None:
            fixed = fixed_axis(taps)
        if fixed != 1 and taps[1] > 1:
            return 1
        rows = counts[1].shifted_most if fixed != 1 else counts[1].plain_most
        return 2 if rows * self.turned_item(plan) > self.prices.spec.wide_stride_bytes else 1

    def steps(self, plan: WgradPlan, counts: Sequence[WgradCounts], sizes: Sizes) -> list[int]:
        """Count (entries, tap) steps of the three axes; two entries of one of them may be taken at once."""
        steps = [count.pairs for count in counts]
        if plan.pair_axis:
            number = plan.pair_axis - 1
            axis, length = self.wgrad_axes(plan)[number], plan.lengths[plan.pair_axis]
            steps[number] = paired_steps(axis, sizes[plan.pair_axis], length)
        return steps

    def best_pair_axis(
        self, plan: WgradPlan, counts: Sequence[WgradCounts], sizes: Sizes
    ) -> int | None:
        """Give the axis along which two positions at a time are the fewest steps; None if they may not be paired."""
        if self.problem.groups > 1 or not may_pair_positions(self.geometry, plan):
            return None
        samples = self.sample_entries(plan, sizes)
        shares = {0: self.sample_entries(plan, sizes, paired=True) / samples}
        for axis in (3, 1, ALONG_H):
            steps = self.steps(replace(plan, pair_axis=axis), counts, sizes)[axis - 1]
            shares[axis] = steps / max(1, counts[axis - 1].pairs)
        # Along H the taps of H cannot run along the columns: rather along another axis.
        best = min(shares, key=lambda axis: (shares[axis], axis == ALONG_H))
        return best if shares[best] < 1 else None

    def turned_item(self, plan: WgradPlan) -> int:
        """Bytes of an element of the turned operands."""
        return self.item if plan.pair_axis is None else 1

    def passes(self, schedule: Schedule) -> int:
        """How often the slabs are passed over, for all packs."""
        packs = ceil_div(self.problem.all_groups, self.problem.groups)
        return packs * self.passes_per_pack(schedule)

    def passes_per_pack(self, schedule: Schedule) -> int:
        """How often the slabs are passed over for one pack of groups."""
        if schedule.wgrad is None:
            return 1
        return ceil_div(self.chains(schedule.wgrad), schedule.chains_per_pass)

    def packed_runs(self, plan: WgradPlan) -> int:
        """Into how many runs the taps beside the stationary channels are cut."""
        assert plan.stationary_axis is not None
        stationary, _ = self.wgrad_channels(plan)
        return ceil_div(self.problem.kernel[plan.stationary_axis], max(1, 128 // stationary))

    def moving_blocks(self, plan: WgradPlan) -> int:
        """How many blocks of moving channels are turned one after the other."""
        return ceil_div(self.wgrad_channels(plan)[1], plan.moving_block)

    def _turned_entries(
        self, plan: WgradPlan, counts: tuple[WgradCounts, ...], folds: tuple[Fold, Fold]
    ) -> tuple[float, float]:
        """Count entries of the stationary and of the moving tensor over all slabs, in whole blocks of folded rows."""
        still = moved = 1.0
        for number, (axis, count) in enumerate(zip(self.wgrad_axes(plan), counts, strict=True)):
            still_fold, moving_fold = (fold[number] if number < len(fold) else 1 for fold in folds)
            if number == plan.stationary_axis:
                shifted = count.shifted_most * count.slabs
                still *= _in_blocks(shifted, count.slabs, still_fold, -axis.pad)
                moved *= _in_blocks(count.plain, count.slabs, moving_fold, 0)
            else:
                still *= _in_blocks(count.plain, count.slabs, still_fold, 0)
                moved *= _in_blocks(count.shifted, count.slabs, moving_fold, -axis.pad)
        return still, moved

    def _direct_work(self, entries: float, channels: int, slabs: int, item: int) -> Work:
        """Load an operand as it is contracted, in runs of all channels: some transfers per border and group."""
        calls = DIRECT_TRANSFERS * slabs
        elements = entries * 128 * channels
        run = channels * item
        return Work(dma=self.prices.dma(calls, elements * item, run), instructions=calls)

    def entry_extents(
        self, plan: WgradPlan, counts: Sequence[WgradCounts]
    ) -> tuple[Extents, Extents]:
        """Entries along D, H, W that the largest slab has of the stationary and of the moving tensor."""
        still, moved = [], []
        for number, count in enumerate(counts):
            pair = (count.plain_most, count.shifted_most)
            packed = number == plan.stationary_axis
            still.append(pair[packed])
            moved.append(pair[not packed])
        return (still[0], still[1], still[2]), (moved[0], moved[1], moved[2])

    def _turn_work(
        self, entries: float, channels: int, fold: tuple[int, int], held: tuple[Extents, int]
    ) -> Work:
        """Turn entries; held: what a slab has of them along D, H, W, and their bytes once turned."""
        extents, item = held
        folded = math.prod(fold)
        rows, block = min(channels * folded, 128), 128 // folded
        blocks = ceil_div(channels, block)
        last_rows = (channels - (blocks - 1) * block) * folded
        number = entries * blocks / folded
        # Rows of a fold along H are neighbours in the entries, unless other channel blocks lie between them.
        apart = fold[0] * (fold[1] if blocks > 1 else 1)
        drains = number / _turned_together(extents, fold, 2048 // (rows * self.item)) * apart
        tensor = self.prices.transposes(number - number / blocks, rows)
        tensor += self.prices.transposes(number / blocks, last_rows)
        drain = self.prices.drains(drains, entries * channels, item)
        return Work(
            tensor=tensor, drain=drain, instructions=number + drains, turning=tensor, turned=drain
        )

    def _result_work(self, plan: WgradPlan, chains: int, cells: int) -> Work:
        """Round dw, turn it where the wrong side lies on partitions, and store it."""
        if self.problem.groups > 1:
            return self.group_results(plan, chains, cells)
        geometry, prices = self.geometry, self.prices
        taps = math.prod(self.problem.kernel)
        stationary, moving = self.wgrad_channels(plan)
        rows = "wide" if geometry.filter_layout == "DHWCN" else "narrow"
        turned = plan.stationary != rows
        stores = taps * ceil_div(stationary, 128) * ceil_div(moving, 128 if turned else 512)
        stores = ceil_div(stores, self._stored_together(plan))
        run = min(128 if turned else BANK_COLUMNS, geometry.out_channels) * self.out_item
        work = Work(
            drain=prices.drains(chains, cells, 4),
            dma=prices.dma(stores, self.filter_elements * self.out_item, run),
            instructions=stores + chains,
        )
        if turned:
            number = self._results_turned(plan, chains, cells)
            columns = min(taps * stationary * ceil_div(moving, 128), number * 128)
            work += Work(
                tensor=prices.transposes(number, min(stationary, 128)),
                drain=prices.drains(columns / 1024, columns, self.out_item),
                instructions=number,
            )
        return work

    def _results_turned(self, plan: WgradPlan, chains: int, cells: int) -> int:
        """Count transposes of results: all taps of a chain that fit beside few moving channels are turned at once."""
        _, moving = self.wgrad_channels(plan)
        if moving > 128:
            return ceil_div(cells, 128)
        k_d, k_h, k_w = self.problem.kernel
        parts, taps = (
            (k_d, k_h * k_w) if plan.rows > 1 else (chains, ceil_div(cells, chains * moving))
        )
        return parts * ceil_div(taps, 128 // moving)

    def _stored_together(self, plan: WgradPlan) -> int:
        """Count neighbouring taps that one transfer stores: those along W, unless they are innermost or in reverse."""
        kernel = self.problem.kernel
        fixed = fixed_axis(kernel) if plan.stationary_axis is None else plan.stationary_axis
        if fixed == 2 or plan.shifted(2) == "narrow" or self.geometry.filter_layout == "OIDHW":
            return 1
        return min(
            kernel[2], max(1, BANK_COLUMNS // min(self.wgrad_channels(plan)[1], BANK_COLUMNS))
        )

    def sample_entries(self, plan: WgradPlan, sizes: Sizes, *, paired: bool = False) -> int:
        """Entries of the sample axis over all slabs; paired: two at a time."""
        whole = min(sizes[0], self.problem.batch)
        entries = plan.lengths[0] or whole
        return ceil_div(self.problem.batch, whole) * (ceil_div(entries, 2) if paired else entries)

    def chains(self, plan: WgradPlan) -> int:
        """PSUM accumulations of dw."""
        key = plan.moving, plan.stationary_axis, plan.moving_block, plan.rows, plan.pair_axis
        if key not in self._chains:
            self._chains[key] = self._count_chains(plan)
        return self._chains[key]

    @cached_property
    def _chains(self) -> dict[Hashable, int]:
        """Counts of chains, which do not depend on how positions lie on partitions."""
        return {}

    def _count_chains(self, plan: WgradPlan) -> int:
        stationary, moving = self.wgrad_channels(plan)
        if plan.rows > 1:
            k_d, _, k_w = self.problem.kernel
            cuts = row_cuts((k_d, k_w), self.reach(plan) * moving)
            return ceil_div(k_d, cuts[0]) * ceil_div(k_w, cuts[1])
        total = 0
        for block in channel_blocks(moving, plan.moving_block):
            width = split_even(block[1] - block[0], BANK_COLUMNS)
            for run in split_upto(block, width):
                total += self._tap_runs(plan, run[1] - run[0])
        return total * ceil_div(stationary, 128)

    def _tap_runs(self, plan: WgradPlan, channels: int) -> int:
        kernel, sizes = self.problem.kernel, self.tap_sizes(plan, channels)
        runs = 1 if plan.stationary_axis is None else self.packed_runs(plan)
        for axis in range(3):
            if axis != plan.stationary_axis:
                runs *= ceil_div(kernel[axis], sizes[axis])
        return runs

    def tap_sizes(self, plan: WgradPlan, channels: int) -> tuple[int, int, int]:
        """Taps of each axis that run along the moving operand beside so many channels."""
        kernel = self.problem.kernel
        fixed = plan.stationary_axis
        if fixed is None:
            fixed = fixed_axis(kernel)
        sizes = [1, 1, 1]
        limit = max(1, BANK_COLUMNS // channels)
        for axis in plan.running_axes:
            if axis != fixed:
                sizes[axis] = split_even(kernel[axis], limit)
                limit = 1 if sizes[axis] < kernel[axis] else max(1, limit // kernel[axis])
        return sizes[0], sizes[1], sizes[2]


def _turned_together(extents: Extents, fold: Fold, per_bank: int) -> int:
    """How many blocks of entries share a PSUM bank, as lower.turned batches them."""
    d, h, w = ceil_div(extents[0], fold[0]), ceil_div(extents[1], fold[1]), extents[2]
    height = min(per_bank, h)
    if height < h:
        return height
    along_d = fold[0] == 1 and d > 1
    return height * min(per_bank // height, d if along_d else w)


def _in_blocks(entries: int, slabs: int, fold: int, first: int) -> float:
    """Round the entries of all slabs up to whole blocks, the first of which holds row `first`."""
    if fold == 1:
        return entries
    return ceil_div(ceil_div(entries, slabs) + first % fold, fold) * fold * slabs
