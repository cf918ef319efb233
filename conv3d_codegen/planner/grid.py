# SPDX-License-Identifier: Apache-2.0
"""The grid of slabs, and which of them are alike: the same instructions at other places in HBM.

Slabs that touch a border clip taps and zero what lies outside; those between the borders differ only
in where they read and write. Along each axis they form a run, and runs can become hardware loops.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from conv3d_codegen.planner.blocks import ceil_div, cut_count
from conv3d_codegen.planner.correlation import correlation_axis
from conv3d_codegen.planner.side_taps import ALONG_W, side_blocks, side_reads, side_sources

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from conv3d_codegen.geometry import AxisGeometry
    from conv3d_codegen.planner.axes import DgradAxis
    from conv3d_codegen.planner.correlation import CorrelationAxis
    from conv3d_codegen.planner.problem import Problem
    from conv3d_codegen.planner.schedule import Schedule

Range = tuple[int, int]
Index = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class AxisCuts:
    """One spatial axis cut in pieces of `size` windows.

    Windows and what they read share one coordinate, q: window o has q = o, the rows i of the padded
    wide tensor have i + pad in [q·stride, (q + 1)·stride). The first and last piece of an axis take
    what lies beyond.
    """

    axis: AxisGeometry
    size: int

    @property
    def count(self) -> int:
        """How many pieces there are."""
        axis = self.axis
        last_row = (axis.size - 1 + axis.pad_before) // axis.stride
        return cut_count(axis.out, last_row + 1, self.size)

    def narrow(self, index: int) -> Range:
        """Windows of a piece."""
        low, out = index * self.size, self.axis.out
        return min(low, out), min(low + self.size, out)

    def wide(self, index: int) -> Range:
        """Rows of the wide tensor in a piece."""
        axis, low = self.axis, index * self.size
        first = max(0, low * axis.stride - axis.pad_before)
        stop = axis.size
        if index < self.count - 1:
            stop = min(stop, (low + self.size) * axis.stride - axis.pad_before)
        return first, max(first, stop)

    @property
    def most_wide(self) -> int:
        """Rows of the wide tensor that a piece has at most."""
        first, stop = self.wide(self.count - 1)
        return max(stop - first, min(self.axis.size, self.size * self.axis.stride))


@dataclass(frozen=True, slots=True)
class SlabGroup:
    """Slabs that one loop runs over, or that stand once: those of the first iteration.

    counts: iterations along N, D, H, W; slabs: indices into the grid.
    """

    counts: Index
    slabs: tuple[Index, ...]

    @property
    def iterations(self) -> int:
        """How often the slabs are repeated."""
        return math.prod(self.counts)


def slab_groups(problem: Problem, schedule: Schedule) -> tuple[SlabGroup, ...]:
    """Group the slabs of a schedule by the loop that they are in."""
    per_axis = [
        list(slab_kinds(axis_runs(problem, schedule, number), schedule.per_iteration(number)))
        for number in range(4)
    ]
    groups: dict[Index, list[Index]] = {}
    for n, d, h, w in product(*per_axis):
        groups.setdefault((n[1], d[1], h[1], w[1]), []).append((n[0], d[0], h[0], w[0]))
    return tuple(SlabGroup(counts, tuple(slabs)) for counts, slabs in groups.items())


def slab_kinds(runs: Sequence[int], together: int) -> Iterator[Range]:
    """Give (first slab, iterations) of all that differ along one axis, where an iteration takes so many of a run.

    together: 0 where the axis has no loop, so that every slab stands once.
    """
    first = 0
    for run in runs:
        stop, count = first + run, run // together if together else 0
        if count > 1:
            yield from ((first + number, count) for number in range(together))
            first += count * together
        yield from ((slab, 1) for slab in range(first, stop))
        first = stop


def axis_runs(problem: Problem, schedule: Schedule, number: int) -> tuple[int, ...]:
    """Lengths of the runs of like slabs along N, D, H or W, in order."""
    size = schedule.slabs.sizes[number]
    if number == 0:
        whole, rest = divmod(problem.batch, size)
        return (whole,) * (whole > 0) + (1,) * (rest > 0)
    cuts = AxisCuts(problem.axes[number - 1], size)
    reads = _AxisReads(problem, schedule, number - 1)
    first, stop = 0, cuts.count
    while first < stop and not reads.are_inside(cuts, first):
        first += 1
    while first < stop and not reads.are_inside(cuts, stop - 1):
        stop -= 1
    if stop - first < 2 or not reads.keep_pace(size):
        return (1,) * cuts.count
    return (1,) * first + (stop - first,) + (1,) * (cuts.count - stop)


def slab_steps(problem: Problem, schedule: Schedule) -> tuple[Index, Index]:
    """Count samples and rows of the narrow and of the wide tensor from an iteration to the next one."""
    n, *sizes = (
        size * max(1, schedule.per_iteration(number))
        for number, size in enumerate(schedule.slabs.sizes)
    )
    d, h, w = sizes
    wide = (size * axis.stride for size, axis in zip(sizes, problem.axes, strict=True))
    wide_d, wide_h, wide_w = wide
    return (n, d, h, w), (n, wide_d, wide_h, wide_w)


@dataclass(frozen=True, slots=True)
class _AxisReads:
    """What the slabs of a schedule touch along one axis."""

    problem: Problem
    schedule: Schedule
    number: int

    @property
    def _folds(self) -> tuple[int, int]:
        """Rows per block of the narrow and of the wide tensor."""
        if self.number == 2:
            return 1, 1
        return self.schedule.dy_fold[self.number], self.schedule.x_fold[self.number]

    def _dy_rows(self, rows: Range) -> Iterator[Range]:
        """Dy rows that dx rows read through each tap, or taps side by side, whether they exist or not."""
        plan, axis = self.schedule.dgrad, self._dgrad
        assert plan is not None
        assert axis is not None
        for beside in {way.beside if self.number == ALONG_W else 1 for way in plan.ways}:
            if beside > 1:
                blocks = side_blocks(axis, *rows)
                yield side_reads(axis, beside, side_sources(axis, beside, *blocks))
            else:
                yield from _tap_by_tap(axis, rows)

    @property
    def _dgrad(self) -> DgradAxis | None:
        plan = self.schedule.dgrad
        return None if plan is None else plan.axes[self.number]

    def keep_pace(self, size: int) -> bool:
        """Whether neighbouring slabs start at the same place within blocks of folded rows."""
        narrow, wide = size, size * self.problem.axes[self.number].stride
        folds = self._folds
        if narrow % folds[0] or wide % folds[1]:
            return False
        dx = narrow if self.problem.transposed else wide
        return self._dgrad is None or dx % self._dgrad.period == 0

    def are_inside(self, cuts: AxisCuts, index: int) -> bool:
        """Whether a slab is whole and all that it reads exists."""
        axis = cuts.axis
        narrow, wide = cuts.narrow(index), cuts.wide(index)
        if (narrow[1] - narrow[0], wide[1] - wide[0]) != (cuts.size, cuts.size * axis.stride):
            return False
        return all(low >= 0 and high <= size for (low, high), size in self._reads(narrow, wide))

    def _reads(self, narrow: Range, wide: Range) -> Iterator[tuple[Range, int]]:
        """(rows, rows that exist) of every read, whole blocks of folded rows."""
        axis = self.problem.axes[self.number]
        folds, sizes = self._folds, (axis.out, axis.size)
        yield _aligned(narrow, folds[0]), axis.out
        if self._dgrad is not None:
            dx_rows = narrow if self.problem.transposed else wide
            yield from ((rows, self._dgrad.dy_size) for rows in self._dy_rows(dx_rows))
        plan = self.schedule.wgrad
        if plan is None:
            return
        correlation = correlation_axis(axis, plan.shifted(self.number))
        shifts_wide = correlation.shifted == "wide"
        rows = narrow if shifts_wide else wide
        plain, shifted = _spread_rows(correlation, rows, plan.lengths[self.number + 1])
        yield _aligned(plain, folds[not shifts_wide]), sizes[not shifts_wide]
        yield _aligned(shifted, folds[shifts_wide]), sizes[shifts_wide]


def _tap_by_tap(axis: DgradAxis, rows: Range) -> Iterator[Range]:
    """Dy rows that dx rows read through each tap."""
    for phase in axis.phases:
        first, stop = axis.blocks_for(phase, *rows)
        for tap in phase.taps:
            low = first * axis.step - tap.delta
            high = (stop - 1) * axis.step - tap.delta + 1
            yield low * axis.fold, high * axis.fold


def _aligned(rows: Range, fold: int) -> Range:
    return rows[0] // fold * fold, ceil_div(rows[1], fold) * fold


def _spread_rows(axis: CorrelationAxis, rows: Range, length: int) -> tuple[Range, Range]:
    """Rows that the plain and the shifted tensor's spreads touch, as lower.turned.Spread.reach has them."""
    extent = rows[1] - rows[0]
    entries = min(length or extent, extent)
    groups = ceil_div(extent, entries)
    first = rows[0] * axis.stride - axis.pad
    last = first + (groups - 1) * entries * axis.stride
    last += (axis.reach(entries) - 1) * axis.unit(entries)
    return (rows[0], rows[0] + groups * entries), (first, last + 1)
