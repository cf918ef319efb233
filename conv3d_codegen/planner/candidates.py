# SPDX-License-Identifier: Apache-2.0
"""Prices one schedule: work of dx, dw and db, the transfers they share, and the SBUF they hold at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from conv3d_codegen.dtypes import dtype
from conv3d_codegen.planner.blocks import BANK_COLUMNS, ceil_div
from conv3d_codegen.planner.double_row import most_pitch, most_rows
from conv3d_codegen.planner.estimate import Work, dx_cuts
from conv3d_codegen.planner.price_transfers import TransferPrices
from conv3d_codegen.planner.schedule import STAGED_FILTERS, dx_band

if TYPE_CHECKING:
    from conv3d_codegen.planner.estimate import WgradCounts
    from conv3d_codegen.planner.price_wgrad import Extents, Fold
    from conv3d_codegen.planner.schedule import DgradPlan, Schedule, WgradPlan
    from conv3d_codegen.planner.slab_grid import Sizes


SUMMED_TILES = 4  # of dx, whose taps along W are being added


@dataclass(frozen=True, slots=True)
class Occupancy:
    """SBUF bytes per partition of a schedule, by what holds them.

    windows: of one slab; filters: matrices of dx; loaded: filters as they are loaded; rows: dx on its way out;
    turned: operands of dw; chain: one sum of dw that outlives a slab.
    is_single: there is one slab; is_alone: and one pack.
    """

    windows: int
    filters: int
    loaded: int
    rows: int
    turned: int
    chain: float
    is_single: bool
    is_alone: bool

    def held(self, *, woven: bool, chains: int) -> int:
        """Bytes at the fullest moment, with the sums of so many chains.

        Not woven, dx is done before the operands of dw take its place, and a slab's windows make room for those of the
        next one. Woven, all of it is held at once, over several slabs or packs with the operands of two of them.
        """
        if woven:
            held = self.windows + self.filters + self.rows + self.turned * (2 - self.is_alone)
        elif self.is_single:
            held = self.windows + max(self.filters + self.rows, self.turned)
        else:
            held = self.windows + self.filters + max(self.rows, self.turned)
        # Before any window is loaded, resident filters and a part of what they are turned from.
        staging = self.filters + min(self.loaded, STAGED_FILTERS)
        return max(held + int(self.chain * chains), staging)

    def least(self, turned: int) -> int:
        """Bytes that are held at least where dw has operands of so many bytes."""
        return self.windows + turned + (0 if self.is_single else self.filters)

    @property
    def held_with_late_filters(self) -> int:
        """Bytes, but for filters as they are loaded, where these arrive while the only slab's dw is contracted."""
        return self.windows + self.filters + max(self.rows, self.turned)


@dataclass(frozen=True)
class Pricing(TransferPrices):
    """Prices whole schedules of one problem."""

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
            rows = math.prod(fold)
            columns = problem.batch * math.prod(size) * blocks / rows
            clock = self.prices.spec.clock_ghz["vector"]
            # Two sums, rounding and storing; folded rows are brought together one by one.
            finish = blocks * (4 + (rows if rows > 1 else 0))
            pieces = blocks * max(problem.batch, self.slab_count(schedule))
            work += Work(vector=columns / clock, instructions=pieces + finish, once=finish)
        return work.times(ceil_div(self.problem.all_groups, self.problem.groups))

    def occupancy(self, schedule: Schedule) -> Occupancy:
        """SBUF that a schedule without dw takes, whether it is woven or not."""
        slabs = self.slab_count(schedule)
        filters, rows = self._dgrad_bytes(schedule)
        return Occupancy(
            windows=self._held_windows(schedule),
            filters=filters,
            loaded=self._loaded_bytes(schedule),
            rows=rows,
            turned=0,
            chain=0.0,
            is_single=slabs == 1,
            is_alone=slabs == 1 and self.problem.groups == self.problem.all_groups,
        )

    def with_wgrad(self, without: Occupancy, schedule: Schedule, turned: int) -> Occupancy:
        """SBUF of a schedule, given that of the same one without dw, and bytes of the operands of dw."""
        return replace(
            without,
            windows=self._held_windows(schedule),
            turned=turned,
            chain=0.0 if without.is_single else self._chain_bytes(schedule),
        )

    def _loaded_bytes(self, schedule: Schedule) -> int:
        """Count filters of dx as they are loaded, if they stay resident once turned."""
        dgrad = schedule.dgrad
        if dgrad is None or not dgrad.filters_resident:
            return 0
        depth, height, width = dgrad.axes
        dx_channels, dy_channels = self.dgrad_channels
        entries = len(depth.entries()) * len(height.entries()) * len(width.entries())
        in_blocks = ceil_div(dx_channels, dgrad.in_block)
        out_blocks = ceil_div(dy_channels, self.dy_block(schedule))
        columns = depth.fold * height.fold * self.dy_block(schedule)
        return in_blocks * out_blocks * entries * columns * self.item

    def _chain_bytes(self, schedule: Schedule) -> float:
        """Sum of one chain of dw that is kept from slab to slab, in fp32."""
        plan = schedule.wgrad
        if plan is None:
            return 0.0
        stationary, moving = self.wgrad_channels(plan)
        cells = moving * ceil_div(stationary, 128)
        for number, taps in enumerate(self.problem.kernel):
            if number == plan.stationary_axis:
                cells *= self.packed_runs(plan)
            else:
                cells *= self.reach(plan) if plan.rows > 1 and number == 1 else taps
        return cells * 4 / self.chains(plan)

    def _held_windows(self, schedule: Schedule) -> int:
        """Windows of dy and x, and dy's once more where matmuls read it in pairs."""
        windows = self._window_bytes(schedule, "dy") + self._window_bytes(schedule, "x")
        return windows + self._paired_bytes(schedule)

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

    def _paired_bytes(self, schedule: Schedule) -> int:
        """Windows of dy once more, in 8 bits and in pairs of channel blocks."""
        plan = schedule.dgrad
        if plan is None or not plan.double_row:
            return 0
        blocks = ceil_div(self.dgrad_channels[1], self.dy_block(schedule))
        samples, *sizes = schedule.slabs.sizes
        planes, rows = (most_rows(a, s) for a, s in zip(plan.axes[:2], sizes[:2], strict=True))
        pitch = most_pitch(plan.axes[2], sizes[2])
        return min(samples, self.problem.batch) * blocks * planes * rows * pitch

    def _dgrad_bytes(self, schedule: Schedule) -> tuple[int, int]:
        """Stationary matrices, and two buffers of dx rows."""
        dgrad = schedule.dgrad
        if dgrad is None:
            return 0, 0
        dx_channels, dy_channels = self.dgrad_channels
        filters = self.filter_bytes(dgrad, self.dy_block(schedule))
        pairs = ceil_div(dx_channels, dgrad.in_block) * ceil_div(
            dy_channels, self.dy_block(schedule)
        )
        held = filters if dgrad.filters_resident else 3 * filters // pairs
        return held, self._dx_row_bytes(dgrad, schedule.slabs.sizes)

    def _dx_row_bytes(self, plan: DgradPlan, sizes: Sizes) -> int:
        """Dx rows on their way out: two bands of one slab, each of which is stored when it is computed."""
        extents = [
            max(stop - first for first, stop in dx_cuts(axis, slab))
            for axis, slab in zip(plan.axes, sizes[1:], strict=True)
        ]
        d, h, w = (
            ceil_div(extent, axis.period) + 1 if axis.blocked else extent
            for axis, extent in zip(plan.axes, extents, strict=True)
        )
        item = self.out_item
        cuts = map(ceil_div, extents, dx_band(plan, extents, item))
        bands = min(sizes[0], self.problem.batch) * math.prod(cuts)
        whole = min(sizes[0], self.problem.batch) * d * h * w * item
        sums = SUMMED_TILES * BANK_COLUMNS * dtype("fp32").bytes if plan.shares_columns else 0
        return ceil_div(whole * min(bands, 2), bands) + sums

    def turned_bytes(
        self,
        wgrad: WgradPlan,
        counts: tuple[WgradCounts, ...],
        samples: int,
        folds: tuple[Fold, Fold],
    ) -> int:
        """Add up the turned tensors of one slab, folded so on the narrow and the wide side, and a few results."""
        stationary, _ = self.wgrad_channels(wgrad)
        still, moved = self.entry_extents(wgrad, counts)
        still_fold, moving_fold = folds if wgrad.moving == "wide" else folds[::-1]
        lanes = wgrad.lengths[0] or min(samples, self.problem.batch)
        entries = (
            _entries(still, still_fold) * stationary
            + _entries(moved, moving_fold) * wgrad.moving_block
        )
        return lanes * entries * self.turned_item(wgrad) + 6 * 2048


def _entries(most: Extents, fold: tuple[int, int]) -> int:
    """Entries of a turned buffer, whole blocks of folded rows."""
    d, h, w = most
    if fold[0] > 1:
        d = (ceil_div(d, fold[0]) + 1) * fold[0]
    if fold[1] > 1:
        h = (ceil_div(h, fold[1]) + 1) * fold[1]
    return d * h * w
