# SPDX-License-Identifier: Apache-2.0
"""Prices what passes between HBM and SBUF, from the windows that slabs load."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conv3d_codegen.planner.blocks import ceil_div, piece_count
from conv3d_codegen.planner.estimate import Work
from conv3d_codegen.planner.grid import AxisCuts
from conv3d_codegen.planner.price_dgrad import DgradPrices
from conv3d_codegen.planner.price_wgrad import WgradPrices
from conv3d_codegen.planner.side_taps import ALONG_W

if TYPE_CHECKING:
    from conv3d_codegen.planner.schedule import Schedule


@dataclass(frozen=True)
class TransferPrices(DgradPrices, WgradPrices):
    """Prices the loads of dy and x windows and the stores of dx."""

    def transfers(self, schedule: Schedule) -> Work:
        """Load windows of dy and x, and store dx."""
        work = self.window_work(schedule, "dy") + self.window_work(schedule, "x")
        prices = self.prices
        if schedule.dgrad is not None and self.geometry.layout == "NDHWC":
            depth, height, _ = schedule.dgrad.axes
            block = min(schedule.dgrad.in_block, self.dgrad_channels[0])
            beside = depth.rows * height.rows * block
            work += self._turned(math.prod(self.dx_shape), beside, block, self.out_item)
        elif schedule.dgrad is not None:
            moved = math.prod(self.dx_shape) * self.out_item
            depth, height, _ = schedule.dgrad.axes
            *_, h, w = self.dx_shape
            run = w if height.blocked and height.rows > 1 else w * min(h, schedule.slabs.sizes[2])
            calls = self.slab_count(schedule)
            calls *= ceil_div(self.dgrad_channels[0], schedule.dgrad.in_block)
            calls *= min(schedule.slabs.sizes[0], self.problem.batch) * depth.rows * height.rows
            calls *= piece_count(moved / calls)
            work += Work(dma=prices.dma(calls, moved, run * self.out_item), instructions=calls)
        return work

    def window_work(self, schedule: Schedule, name: str) -> Work:
        """Load the windows of dy or of x."""
        channels, fold, block = (
            (self.problem.out_channels, schedule.dy_fold, schedule.dy_block)
            if name == "dy"
            else (self.problem.in_channels, schedule.x_fold, schedule.x_block)
        )
        (rows, run), calls = self.window_rows(schedule, name)
        if rows == 0:
            return Work()
        if self.geometry.layout == "NDHWC":
            beside = math.prod(fold) * min(block, channels)
            return self._turned(rows * channels, beside, min(block, channels), self.item)
        calls *= ceil_div(channels, block) * math.prod(fold)
        moved = rows * channels * self.item
        calls *= piece_count(moved / calls)
        dma = self.prices.dma(calls, moved, run * self.item)
        return Work(dma=dma, instructions=calls)

    def waits_for_filters(self, schedule: Schedule) -> bool:
        """Whether filters take longer to load than the tensor that dw alone reads: then dx had better come last."""
        dgrad = schedule.dgrad
        if dgrad is None or schedule.wgrad is None or not dgrad.filters_resident:
            return False
        filters = self.filter_work(dgrad, schedule.slabs.sizes, self.dy_block(schedule))
        name = "dy" if self.problem.transposed else "x"
        return filters.dma > self.window_work(schedule, name).dma

    def slab_count(self, schedule: Schedule) -> int:
        """Slabs of one pass."""
        samples, *sizes = schedule.slabs.sizes
        cuts = (
            AxisCuts(axis, size).count for axis, size in zip(self.problem.axes, sizes, strict=True)
        )
        return ceil_div(self.problem.batch, samples) * math.prod(cuts)

    def first_loads(self, schedule: Schedule) -> float:
        """Price what the tensor engine waits for at first: dy of one slab, filters, and x where dx does not hide it."""
        slabs = self.slab_count(schedule) * self.passes_per_pack(schedule)
        names = ("x", "dy") if self.problem.transposed else ("dy", "x")
        first, late = (self.window_work(schedule, name).dma / slabs for name in names)
        dgrad, sizes, block = schedule.dgrad, schedule.slabs.sizes, self.dy_block(schedule)
        if dgrad is None or schedule.dx_last:
            return first + late
        filters = self.filter_work(dgrad, sizes, block)
        hidden = self.dgrad_work(dgrad, sizes, block).tensor / slabs / 2
        blocks = ceil_div(self.dgrad_channels[0], dgrad.in_block) if schedule.filters_late else 1
        return first + filters.dma / blocks + max(0.0, late - hidden)

    def _turned(self, elements: int, beside: int, channels: int, item: int) -> Work:
        """Move channels-last elements in runs of a block of channels, and turn them on chip.

        beside: rows and channels on partitions on the other side of the tensor engine.
        """
        prices = self.prices
        positions = elements / beside
        turns = positions / 128
        work = Work(
            tensor=prices.transposes(turns, 128),
            drain=prices.drains(turns / 4, positions, item),
            instructions=turns * 1.5,
        )
        transfers = turns / 8
        return work + Work(
            dma=prices.dma(transfers, elements * item, channels * item), instructions=transfers
        )

    @property
    def dx_shape(self) -> tuple[int, ...]:
        """[N, C, D, H, W] of one pack's dx."""
        return self.problem.dy_shape if self.problem.transposed else self.problem.x_shape

    def loads(self, schedule: Schedule, name: str) -> bool:
        """Whether a tensor is read at all: the one in x's place serves dw alone."""
        if self.is_direct("narrow" if name == "dy" else "wide"):
            return False
        return self.holds_dy(name) or schedule.wgrad is not None

    def window_rows(self, schedule: Schedule, name: str) -> tuple[tuple[int, int], int]:
        """Positions of a tensor that are loaded over all slabs, the DMA run in elements, and the loads."""
        sizes, problem = schedule.slabs.sizes, self.problem
        if not self.loads(schedule, name):
            return (0, 0), 0
        wgrad = schedule.wgrad
        passes = self.passes_per_pack(schedule)
        if wgrad is not None and wgrad.moving == ("narrow" if name == "dy" else "wide"):
            passes = max(
                1, passes // self.moving_blocks(wgrad)
            )  # each reads what its chains stream
        size = problem.out_size if name == "dy" else problem.in_size
        fold = schedule.dy_fold if name == "dy" else schedule.x_fold
        rows, calls, run = problem.batch, problem.batch, 1
        contiguous = True
        for number in (2, 1, 0):
            extent, slab = size[number], sizes[number + 1]
            most = self.window_extent(schedule, name, number)
            pieces = AxisCuts(problem.axes[number], slab).count
            loaded = extent if pieces == 1 else min(pieces * most, extent + pieces * (most - slab))
            rows *= max(loaded, 1)
            calls *= pieces
            f = 1 if number == 2 else fold[number]
            if contiguous:
                run *= min(most, extent) if f == 1 else 1
            contiguous = contiguous and most == extent and f == 1
        return (rows * passes, run), calls * passes

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
            most = max(most, AxisCuts(axis, slab).most_wide)
        if self.holds_dy(name) and dgrad is not None and dgrad.axes[number].entries():
            rows = dgrad.axes[number]
            low, high = rows.deltas
            blocks = ceil_div(slab * rows.pace, rows.period)
            most = max(most, ((blocks - 1) * rows.step + high - low + 1) * rows.fold)
            spread = spread or (number == ALONG_W and dgrad.shares_columns)
        return most if spread else min(most, size)

    def holds_dy(self, name: str) -> bool:
        """Whether a tensor is dy: the one that is named so, or in a transposed convolution the other."""
        return name == ("x" if self.problem.transposed else "dy")
