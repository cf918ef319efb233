# SPDX-License-Identifier: Apache-2.0
"""Ways to compute dw on one slab size: which tensor moves, where the taps go, how positions lie on partitions.

The number of ways is large, so they are ranked by tensor and eviction time alone, from per-axis counts; only the best
of each kind are priced in full.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING

from conv3d_codegen.planner.blocks import BANK_COLUMNS, ceil_div
from conv3d_codegen.planner.correlation import correlation_axis
from conv3d_codegen.planner.estimate import wgrad_counts
from conv3d_codegen.planner.grid import AxisCuts
from conv3d_codegen.planner.schedule import WgradPlan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from conv3d_codegen.geometry import AxisGeometry
    from conv3d_codegen.planner.candidates import Pricing
    from conv3d_codegen.planner.estimate import WgradCounts
    from conv3d_codegen.planner.schedule import Side

Sizes = tuple[int, int, int, int]
Fold = tuple[int, int]

TURNED_BYTES = 32 * 1024  # a share of SBUF for one position's rows of all taps
HALF_OF_COLUMNS = 64  # more stationary channels leave no room for a second tap beside them
MOST_AXES = 3  # axes on partitions: the free dims that one operand may have


@dataclass(frozen=True, slots=True)
class _Spread:
    """One axis: positions per partition (0: all), groups on partitions, counts over all slabs."""

    length: int
    counts: WgradCounts


@dataclass(frozen=True)
class WgradSearch:
    """Candidates for dw of one slab size.

    folds: of the narrow and of the wide tensor. That of a transposed convolution's dy is given, as dx and db want it;
        an ordinary one's x serves dw alone.
    dy_block: channels of dy's windows where dx decides on them; None where they follow what is turned at a time.
    room: bytes per partition that turned operands may take.
    """

    pricing: Pricing
    sizes: Sizes
    folds: tuple[Fold, Fold]
    dy_block: int | None
    room: float

    @property
    def dy_fold(self) -> Fold:
        """Fold of the narrow tensor."""
        return self.folds[0]

    def candidates(self) -> Iterator[tuple[WgradPlan, Fold, int]]:
        """Give all ways in the order of their rough times.

        Each comes with the fold of x that it wants, and bytes per partition of its turned operands.
        """
        ways = list(product(self._roles(), self._x_folds()))
        found = [
            (time, number, plan, turned)
            for number, (roles, x_fold) in enumerate(ways)
            for time, plan, turned in self._ranked(roles, x_fold)
        ]
        found.sort(key=lambda row: (row[0], row[1], row[2].lengths))
        options = ((plan, ways[number][1], turned) for _, number, plan, turned in found)
        yield from dict.fromkeys(
            options
        )  # few positions per partition make ways of many rows alike

    def _x_folds(self) -> list[Fold]:
        """No fold, and those that fill the partitions or hold all rows of a slab; or the one that is given."""
        problem = self.pricing.problem
        limit = 128 // min(128, problem.in_channels)
        if limit == 1 or problem.transposed or self.pricing.is_direct("wide"):
            return [self.folds[1]]
        depth, height = (
            1
            << (
                min(problem.in_size[n], self.sizes[n + 1] * problem.axes[n].stride) - 1
            ).bit_length()
            for n in range(2)
        )
        folds = {(1, 1), (min(limit, depth), 1), (1, min(limit, height))}
        for power in range(limit.bit_length()):
            rows = 1 << power  # strides and slabs are mostly multiples of powers of two
            beside = 1 << (limit // rows).bit_length() - 1
            if rows <= depth:
                folds.add((rows, min(beside, height)))
            if rows <= height:
                folds.add((min(beside, depth), rows))
        return sorted(folds)

    def _roles(self) -> Iterator[WgradPlan]:
        """Which tensor moves, how much of it is turned at a time, which axis's taps shift the other one."""
        problem = self.pricing.problem
        sides: list[Side] = ["wide"]
        if all(axis.stride == 1 for axis in problem.axes):
            sides.append("narrow")
        for moving in sides:
            plan = WgradPlan(moving, None, (0, 0, 0, 0), 1)
            still, moved = self.pricing.wgrad_channels(plan)
            shiftable = [
                axis
                for axis in (1, 0, 2)
                # On the narrow side taps shift rows only at stride 1.
                if problem.axes[axis].kernel > 1 and problem.axes[axis].stride == 1
            ]
            for block in sorted(self._moving_blocks(moving, moved), reverse=True):
                for axis in (None, *shiftable):
                    yield replace(plan, stationary_axis=axis, moving_block=block)
            yield from self._row_pairs(replace(plan, moving_block=moved), still)

    def _row_pairs(self, plan: WgradPlan, still: int) -> Iterator[WgradPlan]:
        """Several rows beside few stationary channels, where a bank holds all that one tap of D and of W meets."""
        axis = correlation_axis(self.pricing.problem.axes[1], plan.moving)
        if self.pricing.problem.groups > 1 or axis.unit(1) != axis.unit(2):
            return  # with rows of several units, that of a slab's last one could be another
        held = min(self.sizes[2], axis.owner_size)
        for rows in sorted({min(128 // still, held), min(64 // still, held)}):
            wider = replace(plan, rows=rows)  # at most: as many as a partition has
            if rows > 1 and self.pricing.reach(wider) * plan.moving_block <= BANK_COLUMNS:
                yield wider

    def _moving_blocks(self, side: Side, channels: int) -> set[int]:
        """All channels, one block of partitions, or few enough that the rows of all taps fit beside others.

        They are whole windows.
        """
        dy_side = "wide" if self.pricing.problem.transposed else "narrow"
        if side == dy_side and self.dy_block is not None:
            return {channels, min(channels, 128 // self.dy_block * self.dy_block)}
        blocks = {channels, min(channels, 128)}
        row = math.prod(self.pricing.problem.kernel) * self.pricing.item
        room = max(1, TURNED_BYTES // row)
        if side == "wide" and room < min(blocks):
            blocks.add(room)
        return blocks

    def _ranked(self, roles: WgradPlan, x_fold: Fold) -> Iterator[tuple[float, WgradPlan, int]]:
        """(rough time, plan, turned bytes) of every way to spread the positions of a slab that SBUF may hold."""
        options = self._options(roles, x_fold)
        most = 0
        found = []
        for (lanes, n_groups), d, h in product(self._sample_options(), options[0], options[1]):
            groups = n_groups * d.counts.groups * h.counts.groups
            if groups > 128:
                continue
            spread = (n_groups > 1) + (d.counts.groups > 1) + (h.counts.groups > 1)
            for w in options[2]:
                total = groups * w.counts.groups
                if total <= 128 and spread + (w.counts.groups > 1) <= MOST_AXES:
                    most = max(most, total)
                    found.append((total, lanes, (d, h, w)))
        for total, lanes, row in found:
            if 2 * total > most:
                d, h, w = row
                rows = min(roles.rows, h.counts.plain_most)
                if rows == 1 < roles.rows:
                    continue
                plan = replace(roles, lengths=(lanes, d.length, h.length, w.length), rows=rows)
                counts = (d.counts, h.counts, w.counts)
                for option in self._paired_or_not(plan, counts):
                    folds = self.dy_fold, x_fold
                    turned = self.pricing.turned_bytes(option, counts, self.sizes[0], folds)
                    if turned <= self.room:
                        yield self._rough_time(option, counts, x_fold), option, turned

    def _options(self, roles: WgradPlan, x_fold: Fold) -> list[list[_Spread]]:
        """Ways to spread each axis; packed taps' entries must be neighbours in the turned buffer (axis order W, D, H).

        A folded axis holds whole blocks of entries, so it never has just the one that neighbours allow between them.
        """
        options = []
        for number, axis in enumerate(self.pricing.problem.axes):
            folds = (self.dy_fold[number], x_fold[number]) if number < 2 else (1, 1)
            size = self.sizes[number + 1]
            options.append(list(_axis_options(axis, size, roles.shifted(number), folds)))
        packed = roles.stationary_axis
        still, _ = self.pricing.wgrad_channels(roles)
        if packed is None or still > HALF_OF_COLUMNS:
            return options
        if self.pricing.problem.axes[packed].dilation > 1:
            options[packed] = [option for option in options[packed] if option.length == 1]
        still_fold = self.dy_fold if roles.moving == "wide" else x_fold
        for number in {1: (), 0: (1,), 2: (0, 1)}[packed]:
            is_single = still_fold[number] == 1
            options[number] = [
                option for option in options[number] if is_single and option.counts.plain_most == 1
            ]
        return options

    def _paired_or_not(self, plan: WgradPlan, counts: Sequence[WgradCounts]) -> Iterator[WgradPlan]:
        """Contract one position of a partition per matmul, or two of them."""
        yield plan
        pair_axis = self.pricing.best_pair_axis(plan, counts, self.sizes)
        if pair_axis is not None:
            yield replace(plan, pair_axis=pair_axis)

    def _rough_time(self, plan: WgradPlan, counts: Sequence[WgradCounts], x_fold: Fold) -> float:
        """Tensor time, and a share of the evictions that must hide behind it."""
        pricing = self.pricing
        still_channels, moving_channels = pricing.wgrad_channels(plan)
        still = moved = float(pricing.sample_entries(plan, self.sizes))
        pairs = float(pricing.sample_entries(plan, self.sizes, paired=plan.pair_axis == 0))
        steps = pricing.steps(plan, counts, self.sizes)
        for number, count in enumerate(counts):
            if number == plan.stationary_axis:
                still *= count.shifted
                moved *= count.plain
                pairs *= count.plain * pricing.packed_runs(plan)
            else:
                still *= count.plain
                moved *= count.shifted
                pairs *= steps[number]
        matmuls = math.prod(count.plain for count in counts) * float(pricing.chains(plan))
        columns = pairs * moving_channels * ceil_div(still_channels, 128)
        if plan.pair_axis is not None:
            matmuls /= 2
        if plan.rows > 1:
            matmuls, columns, _ = pricing.row_products(plan, counts, 1)
        columns = max(columns, pricing.prices.spec.min_interval_cycles * matmuls)
        columns *= pricing.moving_slowdown(plan, counts)
        folds = (self.dy_fold, x_fold) if plan.moving == "wide" else (x_fold, self.dy_fold)
        turned = 0.0
        for entries, channels, fold in (
            (still, still_channels, folds[0]),
            (moved, moving_channels, folds[1]),
        ):
            rows = min(channels * math.prod(fold), 128)
            blocks = ceil_div(channels, 128 // math.prod(fold))
            turned += entries * blocks / math.prod(fold) * max(rows, 64)
        drained = still * still_channels + moved * moving_channels
        return columns + turned + 0.3 * drained

    def _sample_options(self) -> list[tuple[int, int]]:
        """Give (samples per partition, groups): groups must be whole, samples have no zero border."""
        batch = self.pricing.problem.batch
        held = min(self.sizes[0], batch)
        return [(0, 1)] + [
            (length, held // length)
            for length in range(1, held)
            if held % length == 0 and batch % length == 0 and held // length <= 128
        ]


@lru_cache(maxsize=8192)
def _axis_options(
    geometry: AxisGeometry, size: int, side: Side, folds: tuple[int, int]
) -> tuple[_Spread, ...]:
    """Give the whole extent per partition, or even pieces that respect folds and slab cuts.

    size: windows of a slab; side: which tensor the taps shift; folds: of the narrow and of the wide one.
    """
    axis = correlation_axis(geometry, side)
    plain_fold, shifted_fold = folds if side == "wide" else folds[::-1]
    if shifted_fold > 1 and not (axis.dilation == 1 if axis.kernel > 1 else axis.stride == 1):
        return ()
    extent = min(size, axis.owner_size)
    whole = _Spread(0, wgrad_counts(axis, size, 0))
    if size < axis.owner_size and side == "narrow":
        return (whole,)
    extents = _extents_before_last(AxisCuts(geometry, size), side)
    seen = {1}
    step = math.lcm(plain_fold, shifted_fold // math.gcd(shifted_fold, axis.stride))
    lengths = []
    for groups in range(2, min(extent, 128) + 1):
        length = ceil_div(ceil_div(extent, groups), step) * step
        actual = ceil_div(extent, length)
        if actual not in seen and all(part <= length or part % length == 0 for part in extents):
            seen.add(actual)
            lengths.append(length)
    if len(lengths) > 8:
        lengths = lengths[:3] + lengths[3:-4:2][:3] + lengths[-4:]
    return whole, *(_Spread(length, wgrad_counts(axis, size, length)) for length in lengths)


def _extents_before_last(cuts: AxisCuts, side: Side) -> set[int]:
    """Rows of the unshifted tensor in all slabs that another one follows, given which side is shifted.

    Pieces that reach over the end of such a slab would count the next one's rows twice; over the end of the last one
    there are none.
    """
    rows = cuts.narrow if side == "wide" else cuts.wide
    extents = [stop - first for first, stop in map(rows, range(cuts.count)) if first < stop]
    return set(extents[:-1])
