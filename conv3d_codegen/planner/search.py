# SPDX-License-Identifier: Apache-2.0
"""Picks a schedule: enumerates the ways to cut, fold and spread, drops what does not fit, takes the cheapest."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

from conv3d_codegen.errors import RequestError
from conv3d_codegen.planner.blocks import ceil_div
from conv3d_codegen.planner.candidates import Pricing
from conv3d_codegen.planner.dgrad_search import DgradSearch, tile_for, whole_slab
from conv3d_codegen.planner.model import Candidate
from conv3d_codegen.planner.rolling import Rolled, can_roll, roll
from conv3d_codegen.planner.schedule import Schedule, SlabPlan
from conv3d_codegen.planner.wgrad_search import WgradSearch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from conv3d_codegen.geometry import ConvGeometry
    from conv3d_codegen.planner.dgrad_search import DgradWay
    from conv3d_codegen.planner.estimate import Work
    from conv3d_codegen.planner.options import EmitOptions
    from conv3d_codegen.planner.problem import Problem

Sizes = tuple[int, int, int, int]
Fold = tuple[int, int]

# Bytes of SBUF per partition that a schedule may plan with: AWS's compiler keeps the rest to itself, and
# stays free of spills up to 200 KiB on trn2 (see TargetSpec.sbuf_bytes_per_partition).
SBUF_BUDGET = 190 * 1024
PASSES = (2, 3, 4, 8, 16, 32, 64, 128, 256)
DEAR = 1.5  # how much longer than its fastest schedule a kernel may take before more ways to cut it are tried
TRIED_SLABS = 5  # of those that fit, largest first: smaller ones repeat more borders and sums
PROMISING = 1.1  # times the best: ways to share and pack groups that are tried on more than their largest slabs


@dataclass(frozen=True, slots=True)
class Choice:
    """The problem as its cores share it, the schedule taken, and the candidates priced, cheapest first.

    instructions, fits: of the text as far as can be told before it is built, and whether that is within the budget.
    """

    problem: Problem
    schedule: Schedule
    candidates: tuple[Candidate, ...]
    instructions: float
    fits: bool


@dataclass(frozen=True, slots=True)
class Scored:
    """A schedule with its price."""

    problem: Problem
    schedule: Schedule
    work: Work
    sbuf: int
    instructions: float
    added_ns: float
    fits: bool

    @property
    def score(self) -> float:
        """Time in ns: the busiest engine, a tenth of what can't overlap at the ends, and what loops add.

        Where slabs are not woven, evictions of turned operands hold up the tensor engine too.
        """
        exposed = 0.1 * self.work.total + (0.0 if self.schedule.woven else 0.15 * self.work.drain)
        return self.work.busiest[1] + exposed + self.added_ns

    @property
    def rank(self) -> tuple[bool, float]:
        """The fastest of those within the instruction budget; where none is, the shortest."""
        return not self.fits, self.score if self.fits else self.instructions


def choose(
    geometry: ConvGeometry,
    problems: Sequence[Problem],
    options: EmitOptions,
    budget: float,
    sbuf_bytes: float = SBUF_BUDGET,
) -> Choice:
    """Take the cheapest schedule that fits; one always does, because every extent can be cut to one.

    budget: instructions that the text may have; loops keep it there where the options allow them.
    sbuf_bytes: what the schedule may be estimated to hold per partition.
    """
    searches = [_Search(geometry, problem, options, budget, sbuf_bytes) for problem in problems]
    if len(searches) > 1:
        searches = _promising(searches)
    best = list(_best_of_groups(searches, every=False, prune=True))
    if _is_dear(best):
        best += _best_of_groups(searches, every=True, prune=True)
    if not any(scored.fits for scored in best):
        best += _best_of_groups(searches, every=False, prune=False)
    if not best:
        raise RequestError("no-schedule", f"{geometry.key()}: no schedule fits SBUF")
    best.sort(key=lambda scored: scored.rank)
    reports = tuple(_report(scored, best[0]) for scored in best[:12])
    return Choice(best[0].problem, best[0].schedule, reports, best[0].instructions, best[0].fits)


def _promising(searches: list[_Search]) -> list[_Search]:
    """Keep the ways to share and pack a problem that are nearly as good as the best, by their largest slabs alone."""
    ranks = []
    for search in searches:
        groups = _groups(search, every=False, prune=True, tried=1)
        ranks.append(min((_best(group).rank for group in groups), default=(True, math.inf)))
    too_long, best = min(ranks)
    if too_long:
        return searches
    pairs = zip(searches, ranks, strict=True)
    return [search for search, rank in pairs if not rank[0] and rank[1] <= PROMISING * best]


def _best_of_groups(searches: Sequence[_Search], *, every: bool, prune: bool) -> Iterator[Scored]:
    for search in searches:
        yield from (_best(group) for group in _groups(search, every=every, prune=prune))


def _is_dear(best: Sequence[Scored]) -> bool:
    """Whether the instruction budget rules everything out, or everything that is nearly as fast as could be."""
    fitting = min((scored.score for scored in best if scored.fits), default=math.inf)
    return fitting >= DEAR * min((scored.score for scored in best), default=0.0)


def priced(
    geometry: ConvGeometry, problems: Sequence[Problem], options: EmitOptions, budget: float
) -> Iterator[Scored]:
    """List every schedule that `choose` compares; any of them gives a right kernel."""
    for problem in problems:
        search = _Search(geometry, problem, options, budget)
        for group in _groups(search, every=False, prune=False):
            yield from group


def _best(group: Sequence[Scored]) -> Scored:
    return min(group, key=lambda scored: scored.rank)


def _groups(
    search: _Search, *, every: bool, prune: bool, tried: int = TRIED_SLABS
) -> Iterator[list[Scored]]:
    """Price the schedules of one problem that fit, those of one way to compute dx and one slab together."""
    for way in search.ways():
        dgrad, dy_fold, _ = way
        fitting = 0
        grain = (dgrad.axes[0].grain, dgrad.axes[1].grain) if dgrad is not None else dy_fold
        for sizes in search.slabs(grain, every=every):
            group = list(search.priced(way, sizes, prune=prune))
            if group:
                yield group
                fitting += _best(group).fits
            if fitting == tried:
                break


class _Search:
    def __init__(
        self,
        geometry: ConvGeometry,
        problem: Problem,
        options: EmitOptions,
        budget: float,
        sbuf_bytes: float = SBUF_BUDGET,
    ) -> None:
        self.geometry, self.problem = geometry, problem
        self.can_roll, self.budget = can_roll(options), budget
        self.sbuf_bytes = sbuf_bytes
        self.pricing = Pricing(geometry, problem)

    def ways(self) -> list[DgradWay]:
        """List the ways to compute dx that are worth a full price."""
        return DgradSearch(self.pricing).ways()

    def slabs(self, fold: Fold, *, every: bool) -> Iterator[Sizes]:
        """Cut samples first, then D, then H, then W, each in halves; every: also few rows of many planes.

        Few rows of many planes make short text, since fewer kinds of slabs touch borders, but also short transfers.
        """
        n, d, h, w = whole_slab(self.problem)
        d, h = (ceil_div(extent, f) * f for extent, f in zip((d, h), fold, strict=True))
        if every:
            for planes, rows in product(_halves(d, fold[0]), _halves(h, fold[1])):
                yield 1, planes, rows, w
            return
        for samples in _halves(n, 1):
            yield samples, d, h, w
        for planes in _halves(d, fold[0]):
            yield 1, planes, h, w
        for rows in _halves(h, fold[1]):
            yield 1, fold[0], rows, w
        for columns in _halves(w, 1):
            yield 1, fold[0], fold[1], columns

    def priced(self, way: DgradWay, sizes: Sizes, *, prune: bool) -> Iterator[Scored]:
        """Add every dw that fits to a way of computing dx; prune: only if that leaves room for more text."""
        dgrad, fold, block = way
        folds, blocks = (fold, (1, 1)), (block, min(self.pricing.dgrad_channels[0], 128))
        if self.problem.transposed:
            folds, blocks = folds[::-1], blocks[::-1]
        base = Schedule(
            slabs=SlabPlan(sizes),
            dgrad=None if dgrad is None else replace(dgrad, tile=tile_for(dgrad.axes, sizes[1:])),
            wgrad=None,
            bgrad="db" in self.geometry.gradients,
            dy_fold=folds[0],
            x_fold=folds[1],
            dy_block=blocks[0],
            x_block=blocks[1],
            chains_per_pass=1,
            woven=False,
        )
        without = self._scored(base)
        if "dw" not in self.geometry.gradients:
            yield from () if without is None else (without,)
            return
        if without is None or (prune and not without.fits):
            return
        for wgrad, x_fold in WgradSearch(self.pricing, sizes, folds).candidates():
            schedule = replace(
                base,
                wgrad=wgrad,
                x_fold=x_fold,
                x_block=min(
                    self.problem.in_channels,
                    128 // math.prod(x_fold),
                    wgrad.moving_block if wgrad.moving == "wide" else 128,
                ),
            )
            scored = self._roomiest(schedule, self.pricing.chains(wgrad))
            if scored is not None:
                yield scored

    def _roomiest(self, schedule: Schedule, chains: int) -> Scored | None:
        """Weave and keep all sums if SBUF has the room; else do without the one, then cut the other in passes."""
        one_slab = all(
            a >= b for a, b in zip(schedule.slabs.sizes, whole_slab(self.problem), strict=True)
        )
        ways = [(True, 1), (False, 1)]
        if not one_slab:
            ways += [(False, passes) for passes in PASSES if passes <= chains] + [(False, chains)]
        for woven, passes in ways:
            per_pass = ceil_div(chains, passes)
            scored = self._scored(replace(schedule, woven=woven, chains_per_pass=per_pass))
            if scored is not None:
                return scored
        return None

    def _scored(self, schedule: Schedule) -> Scored | None:
        sbuf = self.pricing.sbuf_bytes(schedule)
        if sbuf > self.sbuf_bytes:
            return None
        work, passes = self.pricing.work(schedule), self.pricing.passes(schedule)
        rolled = Rolled(schedule, work.instructions, 0.0)
        if self.can_roll:
            rolled = roll(self.problem, schedule, work, passes, self.budget)
        return Scored(
            self.problem,
            rolled.schedule,
            work,
            sbuf,
            rolled.instructions,
            rolled.added_ns,
            fits=rolled.instructions <= self.budget,
        )


def _halves(extent: int, unit: int) -> Iterator[int]:
    """Extent, then ever smaller even pieces in multiples of unit."""
    pieces, last = 1, 0
    while True:
        size = ceil_div(ceil_div(extent, pieces), unit) * unit
        if size != last:
            yield size
            last = size
        if size <= unit:
            return
        pieces *= 2


def _report(scored: Scored, best: Scored) -> Candidate:
    bound, time = scored.work.busiest
    schedule = scored.schedule
    name = f"slab {'x'.join(map(str, schedule.slabs.sizes))} fold {schedule.dy_fold[0]}x{schedule.dy_fold[1]}"
    if scored.problem.cores > 1:
        name = f"cores halve {scored.problem.share}, {name}"
    if schedule.wgrad is not None:
        wgrad = schedule.wgrad
        name += f" moving {wgrad.moving}"
        if wgrad.stationary_axis is not None:
            name += f" packed {'DHW'[wgrad.stationary_axis]}"
        name += f" lengths {'x'.join(map(str, wgrad.lengths))}"
    ratio = scored.score / best.score
    verdict = "taken" if scored is best else f"{ratio:.2f} times the time"
    return Candidate(name, time / 1000, bound, scored.sbuf, verdict)
