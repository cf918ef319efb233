# SPDX-License-Identifier: Apache-2.0
"""Prices one schedule: work of dx, dw and db, the transfers they share, and the SBUF they hold at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from conv3d_codegen.dtypes import compute_dtype, dtype
from conv3d_codegen.plan.blocks import ceil_div, channel_blocks, split_even, split_upto
from conv3d_codegen.plan.correlation import correlation_axis
from conv3d_codegen.plan.estimate import (
    BANK_COLUMNS,
    Prices,
    Work,
    dgrad_counts,
    wgrad_counts,
)
from conv3d_codegen.targets import target

if TYPE_CHECKING:
    from conv3d_codegen.geometry import ConvGeometry
    from conv3d_codegen.plan.correlation import CorrelationAxis
    from conv3d_codegen.plan.estimate import DgradCounts, WgradCounts
    from conv3d_codegen.plan.problem import Problem
    from conv3d_codegen.plan.schedule import DgradPlan, Schedule, WgradPlan

Sizes = tuple[int, int, int, int]


@dataclass(frozen=True)
class Pricing:
    """Prices schedules of one problem."""

    geometry: ConvGeometry
    problem: Problem

    @cached_property
    def prices(self) -> Prices:
        """Rates for the type that is computed with."""
        return Prices(target(self.geometry.target), self.compute)

    @cached_property
    def compute(self) -> str:
        """Type of the operands on chip."""
        return compute_dtype(self.geometry.dtype, self.geometry.math)

    @cached_property
    def item(self) -> int:
        """Bytes of an operand's element on chip."""
        return dtype(self.compute).bytes

    @cached_property
    def out_item(self) -> int:
        """Bytes of a result element."""
        return dtype(self.geometry.out_dtype).bytes

    def work(self, schedule: Schedule) -> Work:
        """Busy times of the whole kernel."""
        work = self.transfers(schedule)
        if schedule.dgrad is not None:
            work += self.dgrad_work(schedule.dgrad, schedule.slabs.sizes, self.dy_block(schedule))
        if schedule.wgrad is not None:
            work += self.wgrad_work(schedule, schedule.wgrad)
        if schedule.bgrad:
            problem = self.problem
            size = problem.in_size if problem.transposed else problem.out_size
            fold = schedule.x_fold if problem.transposed else schedule.dy_fold
            blocks = ceil_div(self.dgrad_channels[1], self.dy_block(schedule))
            columns = problem.batch * math.prod(size) * blocks / math.prod(fold)
            clock = self.prices.spec.clock_ghz["vector"]
            work += Work(vector=columns / clock, instructions=blocks * self.problem.batch)
        return work.times(ceil_div(self.problem.all_groups, self.problem.groups))

    # --- dx ------------------------------------------------------------------------------------

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
            filters = self._filter_work(plan, counts, in_blocks * out_blocks)
            return work + replace(filters, once=filters.instructions)
        turns = ceil_div(tiles, 4 * in_blocks)
        return work + self._filter_work(plan, counts, in_blocks * out_blocks * turns)

    def _filter_work(
        self, plan: DgradPlan, counts: tuple[DgradCounts, ...], pairs: int
    ) -> Work:
        """Loading and turning the stationary matrices of `pairs` pairs of channel blocks."""
        depth, height, _ = plan.axes
        entries = counts[0].entries * counts[1].entries * counts[2].entries
        rows = depth.rows * height.rows * plan.in_block
        columns = entries * rows * pairs
        bytes_moved = self.filter_elements * self.item
        run = min(self.problem.out_channels, 128 // (depth.fold * height.fold)) * self.item
        loads = 1
        if depth.blocked or height.blocked:
            loads = sum(len(t.triples) for t in depth.entries())
            loads *= sum(len(t.triples) for t in height.entries())
        prices = self.prices
        return Work(
            tensor=prices.transposes(entries * pairs, rows),
            drain=prices.drains(columns / BANK_COLUMNS, columns, self.item),
            dma=prices.dma(loads * pairs, bytes_moved, run),
            instructions=pairs * (loads + entries + entries * rows / BANK_COLUMNS),
        )

    @property
    def filter_elements(self) -> int:
        """Filters of one pack."""
        problem = self.problem
        return math.prod(problem.kernel) * problem.in_channels * problem.out_channels // problem.groups

    def filter_bytes(self, plan: DgradPlan, dy_block: int) -> int:
        """SBUF bytes per partition of all stationary matrices."""
        depth, height, width = plan.axes
        entries = len(depth.entries()) * len(height.entries()) * len(width.entries())
        dx_channels, dy_channels = self.dgrad_channels
        in_blocks = ceil_div(dx_channels, plan.in_block)
        out_blocks = ceil_div(dy_channels, dy_block)
        rows = depth.rows * height.rows * plan.in_block
        return in_blocks * out_blocks * entries * rows * self.item

    # --- dw ------------------------------------------------------------------------------------

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
        """Turning, contraction and eviction of dw."""
        prices, sizes = self.prices, schedule.slabs.sizes
        counts = self.wgrad_counts(plan, sizes)
        stationary, moving = self.wgrad_channels(plan)
        blocks = ceil_div(stationary, 128)
        samples = self.sample_entries(plan, sizes)
        chains = self.chains(plan)
        slabs = ceil_div(self.problem.batch, sizes[0]) * math.prod(c.slabs for c in counts)
        passes = ceil_div(chains, schedule.chains_per_pass)
        still = moved = samples
        columns, share, cells = samples * blocks * moving, 1.0, moving * blocks
        for number, (axis, count) in enumerate(zip(self.problem.axes, counts, strict=True)):
            if number == plan.stationary_axis:
                runs = self.packed_runs(plan)
                still, moved = still * count.shifted_most * count.slabs, moved * count.plain
                columns, cells = columns * count.plain * runs, cells * runs
            else:
                still, moved = still * count.plain, moved * count.shifted
                columns, cells = columns * count.pairs, cells * axis.kernel
                share *= count.pairs / (count.plain * axis.kernel)
        number = samples * math.prod(c.plain for c in counts) * chains * share
        work = Work(tensor=prices.matmuls(number, columns), instructions=number)
        folds = (schedule.dy_fold, schedule.x_fold)
        still_fold, moving_fold = folds if plan.moving == "wide" else folds[::-1]
        work += self._turn_work(passes * still, stationary, still_fold)
        work += self._turn_work(max(1, passes // self.moving_blocks(plan)) * moved, moving, moving_fold)
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

    def passes(self, schedule: Schedule) -> int:
        """How often the slabs are passed over, for all packs."""
        packs = ceil_div(self.problem.all_groups, self.problem.groups)
        if schedule.wgrad is None:
            return packs
        return packs * ceil_div(self.chains(schedule.wgrad), schedule.chains_per_pass)

    def packed_runs(self, plan: WgradPlan) -> int:
        """Into how many runs the taps beside the stationary channels are cut."""
        assert plan.stationary_axis is not None
        stationary, _ = self.wgrad_channels(plan)
        return ceil_div(self.problem.kernel[plan.stationary_axis], max(1, 128 // stationary))

    def moving_blocks(self, plan: WgradPlan) -> int:
        """How many blocks of moving channels are turned one after the other."""
        return ceil_div(self.wgrad_channels(plan)[1], plan.moving_block)

    def _turn_work(self, entries: float, channels: int, fold: tuple[int, int]) -> Work:
        rows = min(channels * math.prod(fold), 128)
        blocks = ceil_div(channels, 128 // math.prod(fold))
        number = entries * blocks / math.prod(fold)
        per_bank = 2048 // (rows * self.item)
        drains = number / per_bank * fold[0]
        return Work(
            tensor=self.prices.transposes(number, rows),
            drain=self.prices.drains(drains, entries * channels, self.item),
            instructions=number + drains,
        )

    def _result_work(self, plan: WgradPlan, chains: int, cells: int) -> Work:
        """Rounding, and turning back where c_out lies on partitions, and storing dw."""
        geometry, prices = self.geometry, self.prices
        taps = math.prod(self.problem.kernel)
        stationary, moving = self.wgrad_channels(plan)
        turned = plan.moving == "wide"
        stores = taps * ceil_div(stationary, 128) * ceil_div(moving, 128 if turned else 512)
        run = min(128 if turned else BANK_COLUMNS, geometry.out_channels) * self.out_item
        work = Work(
            drain=prices.drains(chains, cells, 4),
            dma=prices.dma(stores, self.filter_elements * self.out_item, run),
            instructions=stores + chains,
        )
        if turned:
            number = ceil_div(cells, min(moving, 128))
            columns = min(taps * stationary * ceil_div(moving, 128), number * 128)
            work += Work(
                tensor=prices.transposes(number, min(stationary, 128)),
                drain=prices.drains(columns / 1024, columns, self.out_item),
                instructions=number,
            )
        return work

    def sample_entries(self, plan: WgradPlan, sizes: Sizes) -> int:
        """Entries of the sample axis over all slabs."""
        whole = min(sizes[0], self.problem.batch)
        return ceil_div(self.problem.batch, whole) * (plan.lengths[0] or whole)

    def chains(self, plan: WgradPlan) -> int:
        """PSUM accumulations of dw."""
        stationary, moving = self.wgrad_channels(plan)
        total = 0
        for block in channel_blocks(moving, plan.moving_block):
            width = split_even(block[1] - block[0], BANK_COLUMNS)
            for run in split_upto(block, width):
                total += self._tap_runs(plan, run[1] - run[0])
        return total * ceil_div(stationary, 128)

    def _tap_runs(self, plan: WgradPlan, channels: int) -> int:
        kernel = self.problem.kernel
        fixed = plan.stationary_axis
        if fixed is None:
            fixed = min((2, 0, 1), key=lambda axis: kernel[axis])
            runs = kernel[fixed]
        else:
            runs = self.packed_runs(plan)
        limit = max(1, BANK_COLUMNS // channels)
        for axis in (1, 0, 2):
            if axis != fixed:
                pieces = ceil_div(kernel[axis], limit)
                runs *= pieces
                limit = 1 if pieces > 1 else max(1, limit // kernel[axis])
        return runs

    # --- transfers and memory --------------------------------------------------------------------

    def transfers(self, schedule: Schedule) -> Work:
        """Windows of dy and x, and stores of dx."""
        work = Work()
        prices = self.prices
        windows = self.window_rows(schedule)
        for name, channels, size, fold in (
            ("dy", self.problem.out_channels, self.problem.out_size, schedule.dy_fold),
            ("x", self.problem.in_channels, self.problem.in_size, schedule.x_fold),
        ):
            (rows, run), calls = windows[name]
            if rows:
                block = schedule.dy_block if name == "dy" else schedule.x_block
                calls *= ceil_div(channels, block) * math.prod(fold)
                moved = rows * channels * self.item
                work += Work(dma=prices.dma(calls, moved, run * self.item), instructions=calls)
        if schedule.dgrad is not None:
            moved = math.prod(self.dx_shape) * self.out_item
            depth, height, _ = schedule.dgrad.axes
            *_, h, w = self.dx_shape
            run = w if height.blocked and height.rows > 1 else w * min(h, schedule.slabs.sizes[2])
            calls = math.prod(
                ceil_div(extent, size)
                for extent, size in zip(
                    (self.problem.batch, *self.problem.out_size), schedule.slabs.sizes, strict=True
                )
            )
            calls *= ceil_div(self.dgrad_channels[0], schedule.dgrad.in_block)
            calls *= min(schedule.slabs.sizes[0], self.problem.batch) * depth.rows * height.rows
            work += Work(dma=prices.dma(calls, moved, run * self.out_item), instructions=calls)
        return work

    @property
    def dx_shape(self) -> tuple[int, ...]:
        """[N, C, D, H, W] of one pack's dx."""
        return self.problem.dy_shape if self.problem.transposed else self.problem.x_shape

    def loads(self, schedule: Schedule, name: str) -> bool:
        """Whether a tensor is read at all: the one in x's place serves dw alone."""
        return self.holds_dy(name) or schedule.wgrad is not None

    def window_rows(self, schedule: Schedule) -> dict[str, tuple[tuple[int, int], int]]:
        """Positions of dy and x that are loaded over all slabs, the DMA run in elements, and the loads."""
        sizes, problem = schedule.slabs.sizes, self.problem
        wgrad = schedule.wgrad
        passes = ceil_div(self.chains(wgrad), schedule.chains_per_pass) if wgrad else 1
        found = {}
        for name, size in (("dy", problem.out_size), ("x", problem.in_size)):
            if not self.loads(schedule, name):
                found[name] = ((0, 0), 0)
                continue
            fold = schedule.dy_fold if name == "dy" else schedule.x_fold
            rows, calls, run = problem.batch, problem.batch, 1
            contiguous = True
            for number in (2, 1, 0):
                extent, slab = size[number], sizes[number + 1]
                most = self.window_extent(schedule, name, number)
                pieces = ceil_div(problem.out_size[number], slab)
                loaded = extent if pieces == 1 else min(pieces * most, extent + pieces * (most - slab))
                rows *= max(loaded, 1)
                calls *= pieces
                f = 1 if number == 2 else fold[number]
                if contiguous:
                    run *= min(most, extent) if f == 1 else 1
                contiguous = contiguous and most == extent and f == 1
            found[name] = ((rows * passes, run), calls * passes)
        return found

    def window_extent(self, schedule: Schedule, name: str, number: int) -> int:
        """Largest extent of a window of dy or x on one axis."""
        axis = self.problem.axes[number]
        slab = min(schedule.slabs.sizes[number + 1], max(axis.out, 1))
        wgrad, dgrad = schedule.wgrad, schedule.dgrad
        reach = (axis.kernel - 1) * axis.dilation
        size = axis.out if name == "dy" else axis.size
        spread = False
        most = slab
        if wgrad is not None:
            length = wgrad.lengths[number + 1]
            spread = 0 < length < max(axis.out, axis.size)
            if wgrad.shifted(number) == ("wide" if name == "x" else "narrow"):
                most = (slab - 1) * (axis.stride if name == "x" else 1) + reach + 1
        if self.problem.transposed and name == "x":
            most = max(most, slab * axis.stride + axis.pad_before)
        if self.holds_dy(name) and dgrad is not None and dgrad.axes[number].entries():
            rows = dgrad.axes[number]
            low, high = rows.deltas
            most = max(most, slab * rows.pace * rows.step // rows.period * rows.fold + (high - low) * rows.fold)
        return most if spread else min(most, size)

    def sbuf_bytes(self, schedule: Schedule) -> int:
        """SBUF per partition at the fullest moment.

        Not woven, dx is done before the operands of dw take its place, and a slab's windows make room for those of the
        next one. Woven, all of it is held at once, over several slabs with the operands of two slabs.
        """
        slabs = math.prod(
            ceil_div(extent, size)
            for extent, size in zip(
                (self.problem.batch, *self.problem.out_size), schedule.slabs.sizes, strict=True
            )
        )
        windows = self._window_bytes(schedule, "dy") + self._window_bytes(schedule, "x")
        filters, rows = self._dgrad_bytes(schedule)
        turned = self._wgrad_bytes(schedule)
        if schedule.woven:
            held = windows + filters + rows + turned * (1 if slabs == 1 else 2)
        elif slabs == 1:
            held = windows + max(filters + rows, turned)
        else:
            held = windows + filters + max(rows, turned)
        return held if slabs == 1 and not schedule.rolled else held + self._sum_bytes(schedule)

    def _sum_bytes(self, schedule: Schedule) -> int:
        """Partial sums of dw that one pass keeps from slab to slab, in fp32."""
        plan = schedule.wgrad
        if plan is None:
            return 0
        stationary, moving = self.wgrad_channels(plan)
        cells = moving * ceil_div(stationary, 128)
        for number, taps in enumerate(self.problem.kernel):
            cells *= self.packed_runs(plan) if number == plan.stationary_axis else taps
        return cells * 4 * schedule.chains_per_pass // self.chains(plan)

    def _window_bytes(self, schedule: Schedule, name: str) -> int:
        problem = self.problem
        if not self.loads(schedule, name):
            return 0
        channels, block, fold = (
            (problem.out_channels, schedule.dy_block, schedule.dy_fold)
            if name == "dy"
            else (problem.in_channels, schedule.x_block, schedule.x_fold)
        )
        d, h, w = (self.window_extent(schedule, name, number) for number in range(3))
        rows = math.prod(
            extent if f == 1 else ceil_div(extent, f) + 1
            for extent, f in zip((d, h), fold, strict=True)
        )
        samples = min(schedule.slabs.sizes[0], problem.batch)
        item = self.item
        if schedule.bgrad and self.geometry.math != "full" and self.holds_dy(name):
            item += dtype("fp32").bytes  # db sums dy as it is, dx and dw read a narrower copy
        return samples * rows * w * ceil_div(channels, block) * item

    def holds_dy(self, name: str) -> bool:
        """Whether a tensor is dy: the one that is named so, or in a transposed convolution the other."""
        return name == ("x" if self.problem.transposed else "dy")

    def _dgrad_bytes(self, schedule: Schedule) -> tuple[int, int]:
        """Stationary matrices, and two buffers of dx rows."""
        dgrad, problem = schedule.dgrad, self.problem
        if dgrad is None:
            return 0, 0
        dx_channels, dy_channels = self.dgrad_channels
        filters = self.filter_bytes(dgrad, self.dy_block(schedule))
        pairs = ceil_div(dx_channels, dgrad.in_block) * ceil_div(
            dy_channels, self.dy_block(schedule)
        )
        one = filters // pairs
        rows = 1
        for axis, slab in zip(dgrad.axes, schedule.slabs.sizes[1:], strict=True):
            extent = min(axis.size, slab * axis.pace + axis.pad)
            rows *= ceil_div(extent, axis.period) + 1 if axis.blocked else extent
        samples = min(schedule.slabs.sizes[0], problem.batch)
        held = filters + one if dgrad.filters_resident else 3 * one
        return held, samples * rows * self.out_item

    def _wgrad_bytes(self, schedule: Schedule) -> int:
        """Turned tensors of one slab, and a few results on their way out."""
        wgrad = schedule.wgrad
        if wgrad is None:
            return 0
        counts = self.wgrad_counts(wgrad, schedule.slabs.sizes)
        stationary, _ = self.wgrad_channels(wgrad)
        still, moved = [], []
        for number, count in enumerate(counts):
            pair = (count.plain_most, count.shifted_most)
            packed = number == wgrad.stationary_axis
            still.append(pair[packed])
            moved.append(pair[not packed])
        folds = (schedule.dy_fold, schedule.x_fold)
        still_fold, moving_fold = folds if wgrad.moving == "wide" else folds[::-1]
        lanes = wgrad.lengths[0] or min(schedule.slabs.sizes[0], self.problem.batch)
        entries = _entries(still, still_fold) * stationary + _entries(moved, moving_fold) * wgrad.moving_block
        return lanes * entries * self.item + 6 * 2048


def _entries(most: list[int], fold: tuple[int, int]) -> int:
    """Entries of a turned buffer, whole blocks of folded rows."""
    d, h, w = most
    if fold[0] > 1:
        d = (ceil_div(d, fold[0]) + 1) * fold[0]
    if fold[1] > 1:
        h = (ceil_div(h, fold[1]) + 1) * fold[1]
    return d * h * w
