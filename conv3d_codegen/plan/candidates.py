# SPDX-License-Identifier: Apache-2.0
"""Prices one schedule: work of dx, dw and db, the transfers they share, and the SBUF they hold at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conv3d_codegen.dtypes import dtype
from conv3d_codegen.plan.blocks import ceil_div, channel_blocks
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
    from conv3d_codegen.plan.estimate import DgradCounts, WgradCounts
    from conv3d_codegen.plan.problem import Problem
    from conv3d_codegen.plan.schedule import DgradPlan, Schedule, WgradPlan

Sizes = tuple[int, int, int, int]


@dataclass(frozen=True)
class Pricing:
    """Prices schedules of one problem."""

    geometry: ConvGeometry
    problem: Problem

    @property
    def prices(self) -> Prices:
        """Rates for the input dtype."""
        return Prices(target(self.geometry.target), self.item)

    @property
    def item(self) -> int:
        """Bytes of an input element."""
        return dtype(self.geometry.dtype).bytes

    @property
    def out_item(self) -> int:
        """Bytes of a result element."""
        return dtype(self.geometry.out_dtype).bytes

    def work(self, schedule: Schedule) -> Work:
        """Busy times of the whole kernel."""
        work = self.transfers(schedule)
        if schedule.dgrad is not None:
            work += self.dgrad_work(schedule.dgrad, schedule.slabs.sizes, schedule.dy_block)
        if schedule.wgrad is not None:
            work += self.wgrad_work(schedule, schedule.wgrad)
        if schedule.bgrad:
            positions = self.problem.batch * math.prod(self.problem.out_size)
            blocks = ceil_div(self.problem.out_channels, schedule.dy_block)
            columns = positions * blocks / math.prod(schedule.dy_fold)
            clock = self.prices.spec.clock_ghz["vector"]
            work += Work(vector=columns / clock, instructions=blocks * self.problem.batch)
        return work

    # --- dx ------------------------------------------------------------------------------------

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
        in_blocks = ceil_div(problem.in_channels, plan.in_block)
        out_blocks = ceil_div(problem.out_channels, dy_block)
        number = problem.batch * in_blocks * out_blocks * math.prod(c.boxes for c in counts)
        columns = problem.batch * in_blocks * out_blocks * math.prod(c.columns for c in counts)
        tiles = problem.batch * in_blocks * math.prod(c.tiles for c in counts)
        drained = problem.batch * in_blocks * math.prod(c.blocks for c in counts)
        work = Work(
            tensor=prices.matmuls(number, columns),
            drain=prices.drains(tiles, drained, 4),
            instructions=number + tiles,
        )
        turns = 1 if plan.filters_resident else ceil_div(tiles, 4 * in_blocks)
        return work + self._filter_work(plan, counts, in_blocks * out_blocks * turns)

    def _filter_work(
        self, plan: DgradPlan, counts: tuple[DgradCounts, ...], pairs: int
    ) -> Work:
        """Loading and turning the stationary matrices of `pairs` pairs of channel blocks."""
        depth, height, _ = plan.axes
        entries = counts[0].entries * counts[1].entries * counts[2].entries
        rows = depth.rows * height.rows * plan.in_block
        columns = entries * rows * pairs
        bytes_moved = math.prod(self.geometry.filter_shape) * self.item
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

    def filter_bytes(self, plan: DgradPlan, dy_block: int) -> int:
        """SBUF bytes per partition of all stationary matrices."""
        depth, height, width = plan.axes
        entries = len(depth.entries()) * len(height.entries()) * len(width.entries())
        in_blocks = ceil_div(self.problem.in_channels, plan.in_block)
        out_blocks = ceil_div(self.problem.out_channels, dy_block)
        rows = depth.rows * height.rows * plan.in_block
        return in_blocks * out_blocks * entries * rows * self.item

    # --- dw ------------------------------------------------------------------------------------

    def wgrad_counts(self, plan: WgradPlan, sizes: Sizes) -> tuple[WgradCounts, ...]:
        """Count the three axes."""
        return tuple(
            wgrad_counts(correlation_axis(axis, plan.halo), slab, length)
            for axis, slab, length in zip(
                self.problem.axes, sizes[1:], plan.lengths[1:], strict=True
            )
        )

    def wgrad_channels(self, plan: WgradPlan) -> tuple[int, int]:
        """Channels of the owner and of the halo tensor."""
        channels = (self.problem.out_channels, self.problem.in_channels)
        return channels if plan.halo == "x" else channels[::-1]

    def wgrad_work(self, schedule: Schedule, plan: WgradPlan) -> Work:
        """Turning, contraction and eviction of dw."""
        sizes = schedule.slabs.sizes
        counts = self.wgrad_counts(plan, sizes)
        owner, halo = self.wgrad_channels(plan)
        owner_blocks = ceil_div(owner, 128)
        samples = self.sample_entries(plan, sizes)
        taps = math.prod(self.problem.kernel)
        chains = self.chains(plan)
        slabs = ceil_div(self.problem.batch, sizes[0]) * math.prod(c.steps for c in counts)
        passes = ceil_div(chains, schedule.chains_per_pass)
        entries = samples * math.prod(c.owner for c in counts)
        pairs = samples * math.prod(c.pairs for c in counts)
        number = entries * chains
        columns = pairs * owner_blocks * halo
        prices = self.prices
        work = Work(
            tensor=prices.matmuls(number * pairs / (entries * taps), columns),
            instructions=number,
        )
        folds = (schedule.dy_fold, schedule.x_fold)
        own_fold, halo_fold = folds if plan.halo == "x" else folds[::-1]
        turned = samples * math.prod(c.halo for c in counts)
        work += self._turn_work(passes * entries, owner, own_fold)
        work += self._turn_work(passes * turned, halo, halo_fold)
        sums = slabs * taps * halo * owner_blocks
        if slabs > 1:
            work += Work(vector=sums / prices.spec.clock_ghz["vector"], instructions=slabs * chains)
        else:
            work += Work(drain=prices.drains(chains, sums, 4), instructions=chains)
        return work + self._result_work(plan, chains)

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

    def _result_work(self, plan: WgradPlan, chains: int) -> Work:
        """Rounding, and turning back where c_out lies on partitions, and storing dw."""
        geometry = self.geometry
        taps = math.prod(self.problem.kernel)
        elements = math.prod(geometry.filter_shape)
        prices = self.prices
        owner, halo = self.wgrad_channels(plan)
        stores = taps * ceil_div(owner, 128) * ceil_div(halo, 128 if plan.halo == "x" else 512)
        run = min(128 if plan.halo == "x" else BANK_COLUMNS, geometry.out_channels) * self.out_item
        work = Work(
            drain=prices.drains(chains, taps * halo * ceil_div(owner, 128), 4),
            dma=prices.dma(stores, elements * self.out_item, run),
            instructions=stores + chains,
        )
        if plan.halo == "x":
            blocks = ceil_div(owner, 128) * ceil_div(halo, 128)
            columns = taps * blocks * min(owner, 128)
            work += Work(
                tensor=prices.transposes(taps * blocks, min(owner, 128)),
                drain=prices.drains(columns / 1024, columns, self.out_item),
                instructions=taps * blocks,
            )
        return work

    def sample_entries(self, plan: WgradPlan, sizes: Sizes) -> int:
        """Entries of the sample axis over all slabs."""
        whole = min(sizes[0], self.problem.batch)
        return ceil_div(self.problem.batch, whole) * (plan.lengths[0] or whole)

    def chains(self, plan: WgradPlan) -> int:
        """PSUM accumulations of dw."""
        owner, halo = self.wgrad_channels(plan)
        blocks = channel_blocks(halo, ceil_div(halo, ceil_div(halo, BANK_COLUMNS)))
        kernel = sorted(self.problem.kernel)
        total = 0
        for low, high in blocks:
            limit = max(1, BANK_COLUMNS // (high - low))
            runs = kernel[0]
            for taps in kernel[:0:-1]:
                pieces = ceil_div(taps, limit)
                runs *= pieces
                limit = max(1, limit // ceil_div(taps, pieces)) if pieces == 1 else 1
            total += runs
        return total * ceil_div(owner, 128)

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
            moved = math.prod(self.problem.x_shape) * self.out_item
            depth, height, _ = schedule.dgrad.axes
            _, h, w = self.problem.in_size
            run = w if height.blocked and height.rows > 1 else w * min(h, schedule.slabs.sizes[2])
            calls = math.prod(
                ceil_div(extent, size)
                for extent, size in zip(
                    (self.problem.batch, *self.problem.out_size), schedule.slabs.sizes, strict=True
                )
            )
            calls *= ceil_div(self.problem.in_channels, schedule.dgrad.in_block)
            calls *= min(schedule.slabs.sizes[0], self.problem.batch) * depth.rows * height.rows
            work += Work(dma=prices.dma(calls, moved, run * self.out_item), instructions=calls)
        return work

    def window_rows(self, schedule: Schedule) -> dict[str, tuple[tuple[int, int], int]]:
        """Positions of dy and x that are loaded over all slabs, the DMA run in elements, and the loads."""
        sizes, problem = schedule.slabs.sizes, self.problem
        wgrad = schedule.wgrad
        passes = ceil_div(self.chains(wgrad), schedule.chains_per_pass) if wgrad else 1
        found = {}
        for name, size in (("dy", problem.out_size), ("x", problem.in_size)):
            if name == "x" and wgrad is None:
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
        slab = min(schedule.slabs.sizes[number + 1], axis.out)
        wgrad, dgrad = schedule.wgrad, schedule.dgrad
        reach = (axis.kernel - 1) * axis.dilation
        extents = [slab]
        if name == "x":
            extents = [(slab - 1) * axis.stride + reach + 1 if wgrad and wgrad.halo == "x" else slab]
        elif wgrad is not None and wgrad.halo == "dy":
            extents.append(slab + reach)
        if name == "dy" and dgrad is not None:
            low, high = dgrad.axes[number].deltas if dgrad.axes[number].entries() else (0, 0)
            extents.append(slab + (high - low) * dgrad.axes[number].fold)
        size = axis.out if name == "dy" else axis.size
        spread = False
        if wgrad is not None:
            length = wgrad.lengths[number + 1]
            spread = length != 0 and length < max(axis.out, axis.size)
        most = max(extents)
        return most if spread else min(most, size)

    def sbuf_bytes(self, schedule: Schedule) -> int:
        """SBUF per partition held at once, with the next slab's windows where there is a next slab."""
        sizes, problem = schedule.slabs.sizes, self.problem
        samples = min(sizes[0], problem.batch)
        slabs = math.prod(
            ceil_div(extent, size)
            for extent, size in zip((problem.batch, *problem.out_size), sizes, strict=True)
        )
        windows = 0
        for name, channels, block, fold in (
            ("dy", problem.out_channels, schedule.dy_block, schedule.dy_fold),
            ("x", problem.in_channels, schedule.x_block, schedule.x_fold),
        ):
            if name == "x" and schedule.wgrad is None:
                continue
            d, h, w = (self.window_extent(schedule, name, number) for number in range(3))
            blocks = (ceil_div(d, fold[0]) + 1) * (ceil_div(h, fold[1]) + 1) if fold != (1, 1) else d * h
            windows += samples * blocks * w * ceil_div(channels, block) * self.item
        total = windows * (2 if slabs > 1 else 1)
        if (dgrad := schedule.dgrad) is not None:
            filters = self.filter_bytes(dgrad, schedule.dy_block)
            pairs = ceil_div(problem.in_channels, dgrad.in_block) * ceil_div(
                problem.out_channels, schedule.dy_block
            )
            total += filters if dgrad.filters_resident else 2 * filters // pairs
            total += filters // pairs
            rows = 1
            for axis, slab in zip(dgrad.axes, sizes[1:], strict=True):
                extent = min(axis.axis.size, slab * axis.axis.stride + axis.axis.pad_before)
                rows *= ceil_div(extent, axis.period) + 1 if axis.blocked else extent
            total += 2 * samples * rows * self.out_item
        if (wgrad := schedule.wgrad) is not None:
            counts = self.wgrad_counts(wgrad, sizes)
            owner, halo = self.wgrad_channels(wgrad)
            lanes = wgrad.lengths[0] or samples
            folds = (schedule.dy_fold, schedule.x_fold)
            own_fold, halo_fold = folds if wgrad.halo == "x" else folds[::-1]
            total += lanes * self._entries([c.owner_most for c in counts], own_fold) * owner * self.item
            total += lanes * self._entries([c.halo_most for c in counts], halo_fold) * halo * self.item
            if slabs > 1:
                total += schedule.chains_per_pass * 2048
            total += 4 * 2048
        return total

    def _entries(self, most: list[int], fold: tuple[int, int]) -> int:
        d, h, w = most
        if fold[0] > 1:
            d = (ceil_div(d, fold[0]) + 1) * fold[0]
        if fold[1] > 1:
            h = (ceil_div(h, fold[1]) + 1) * fold[1]
        return d * h * w
