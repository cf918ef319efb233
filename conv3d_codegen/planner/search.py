# SPDX-License-Identifier: Apache-2.0
"""Picks a schedule: enumerates the ways to cut, fold and spread, drops what does not fit, takes the cheapest."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from conv3d_codegen.errors import RequestError
from conv3d_codegen.planner.blocks import ceil_div
from conv3d_codegen.planner.candidates import Pricing
from conv3d_codegen.planner.dgrad_search import DgradSearch, tiled, whole_slab
from conv3d_codegen.planner.model import Candidate
from conv3d_codegen.planner.rolling import Rolled, can_roll, roll
from conv3d_codegen.planner.schedule import STAGE_BYTES, STAGED_FILTERS, Schedule, SlabPlan
from conv3d_codegen.planner.slab_grid import SlabGrid
from conv3d_codegen.planner.wgrad_search import WgradSearch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from conv3d_codegen.geometry import ConvGeometry
    from conv3d_codegen.planner.candidates import Occupancy
    from conv3d_codegen.planner.dgrad_search import DgradWay
    from conv3d_codegen.planner.estimate import Work
    from conv3d_codegen.planner.options import EmitOptions
    from conv3d_codegen.planner.problem import Problem
    from conv3d_codegen.planner.schedule import WgradPlan
    from conv3d_codegen.planner.slab_grid import Sizes

Fold = tuple[int, int]
Rank = tuple[bool, float]
# All that ways to compute dw depend on: slabs, folds of dy and x, channels of dy's windows (see WgradSearch).
WgradWhere: TypeAlias = "tuple[Sizes, tuple[Fold, Fold], int | None]"

# Bytes of SBUF per partition that a schedule may plan with: AWS's compiler keeps the rest to itself, and
# stays free of spills up to 200 KiB on trn2 (see TargetSpec.sbuf_bytes_per_partition).
SBUF_BUDGET = 190 * 1024
PASSES = (2, 3, 4, 8, 16, 32, 64, 128, 256)
TRIED_SLABS = 3  # of those that fit, largest first: smaller ones repeat more borders and sums
TOO_LONG = 4  # of those that SBUF can hold but the budget can't: climbing finds shorter ones
PROMISING = 1.15  # times the best: ways that are tried on more than their largest slabs
CLIMBED = 2  # ways, the best ones, whose slabs are searched further
# Shares of lesser times and of exposed ones that make a schedule longer: the best of some on the suite.
HINDRANCE, LATE = 0.1, 0.5
KEPT = 12  # ways to compute dw, the best by rough times, that are priced in full


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
    """A schedule with its price.

    first_ns: what the tensor engine waits for at the start; added_ns: what loops add.
    """

    problem: Problem
    schedule: Schedule
    work: Work
    first_ns: float
    sbuf: int
    instructions: float
    added_ns: float
    fits: bool

    @property
    def score(self) -> float:
        """Time in ns, as far as it ranks schedules: the busiest engine, and a share of what may not hide behind it.

        Where slabs are not woven, nothing else hides evictions of turned operands.
        """
        busiest = self.work.busiest[1]
        late = self.first_ns + self.added_ns
        alone = 0.0 if self.schedule.woven else max(0.0, self.work.turned_alone - busiest)
        return busiest + HINDRANCE * (self.work.total - busiest) + LATE * late + alone

    @property
    def rank(self) -> Rank:
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
    ways = [_Way(search, way) for search in searches for way in search.ways()]
    best = _best_ways(ways)
    if not best:
        raise RequestError("no-schedule", f"{geometry.key()}: no schedule fits SBUF")
    for way in best[:CLIMBED]:
        way.climb()
    if not any(way.fits for way in ways):
        for way in ways:
            way.exhaust()
    found = sorted((s for way in ways for s in way.found()), key=lambda scored: scored.rank)
    reports = tuple(_report(scored, found[0]) for scored in found[:12])
    return Choice(
        found[0].problem, found[0].schedule, reports, found[0].instructions, found[0].fits
    )


def _best_ways(ways: Sequence[_Way]) -> list[_Way]:
    """Try the largest slabs of every way, and more of them of those that are nearly as good as the best."""
    for tried in (1, TRIED_SLABS):
        for way in ways:
            way.start(tried)
        ways = sorted((way for way in ways if way.best), key=lambda way: way.rank)
        ways = [way for way in ways if way.is_promising(ways[0])]
    return list(ways)


def priced(
    geometry: ConvGeometry, problems: Sequence[Problem], options: EmitOptions, budget: float
) -> Iterator[Scored]:
    """List every schedule that `choose` may compare; any of them gives a right kernel."""
    for problem in problems:
        search = _Search(geometry, problem, options, budget)
        for dgrad_way in search.ways():
            for sizes in _Way(search, dgrad_way).grid.all():
                yield from search.priced(dgrad_way, sizes)


class _Way:
    """One way to share and pack a problem and to compute dx, on the slabs that were priced."""

    def __init__(self, search: _Search, dgrad_way: DgradWay) -> None:
        self.search, self.dgrad_way = search, dgrad_way
        dgrad, fold, _ = dgrad_way
        grain = fold if dgrad is None else (dgrad.axes[0].grain, dgrad.axes[1].grain)
        self.grid = SlabGrid.of(whole_slab(search.problem), grain)
        self.best: Scored | None = None
        self._priced: dict[Sizes, Scored | None] = {}

    @property
    def rank(self) -> Rank:
        """That of the best schedule so far."""
        return (True, math.inf) if self.best is None else self.best.rank

    @property
    def fits(self) -> bool:
        """Whether any schedule so far is within the budget."""
        return self.best is not None and self.best.fits

    def found(self) -> Iterator[Scored]:
        """Give the best schedule of each size that was priced."""
        return (scored for scored in self._priced.values() if scored is not None)

    def is_promising(self, best: _Way) -> bool:
        """Whether it is nearly as good as the best one."""
        (too_long, score), (is_best_too_long, best_score) = self.rank, best.rank
        return too_long == is_best_too_long and score <= PROMISING * best_score

    def start(self, tried: int) -> None:
        """Price so many sizes that fit, largest first, and not many that make the text too long."""
        fitting = too_long = 0
        for sizes in self.grid.largest_first():
            scored = self._price(sizes)
            if scored is not None:
                fitting += scored.fits
                too_long += not scored.fits
            if fitting == tried or too_long == TOO_LONG:
                return

    def climb(self) -> None:
        """Go on to the best neighbour until none is better."""
        before = None
        while self.best is not before:
            before = self.best
            assert before is not None
            for sizes in self.grid.neighbours(before.schedule.slabs.sizes):
                self._price(sizes)

    def exhaust(self) -> None:
        """Price every size: short text may take few rows of many planes, far from where climbing starts."""
        for sizes in self.grid.all():
            self._price(sizes)

    def _price(self, sizes: Sizes) -> Scored | None:
        if sizes not in self._priced:
            group = self.search.priced(self.dgrad_way, sizes)
            scored = min(group, key=lambda scored: scored.rank, default=None)
            self._priced[sizes] = scored
            if scored is not None and scored.rank < self.rank:
                self.best = scored
        return self._priced[sizes]


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
        self._found_wgrads: dict[WgradWhere, list[tuple[WgradPlan, Fold, int]]] = {}

    def ways(self) -> list[DgradWay]:
        """List the ways to compute dx that are worth a full price."""
        return DgradSearch(self.pricing).ways()

    def priced(self, way: DgradWay, sizes: Sizes) -> Iterator[Scored]:
        """Add the most promising dw to a way of computing dx; just one where dx alone exceeds the budget."""
        dgrad, fold, block = way
        folds, blocks = (fold, (1, 1)), (block, min(self.pricing.dgrad_channels[0], 128))
        if self.problem.transposed:
            folds, blocks = folds[::-1], blocks[::-1]
        base = Schedule(
            slabs=SlabPlan(sizes),
            dgrad=None if dgrad is None else tiled(dgrad, sizes[1:]),
            wgrad=None,
            bgrad="db" in self.geometry.gradients,
            dy_fold=folds[0],
            x_fold=folds[1],
            dy_block=blocks[0],
            x_block=blocks[1],
            chains_per_pass=1,
            woven=False,
        )
        occupancy = self.pricing.occupancy(base)
        sbuf = occupancy.held(woven=False, chains=1)
        if sbuf > self.sbuf_bytes:
            return
        without = self._scored(*self._with_loads_ahead(base, occupancy, sbuf))
        if "dw" not in self.geometry.gradients:
            yield without
            return
        kept = 0
        is_paired = dgrad is not None and dgrad.double_row
        held = block if is_paired or not self.problem.transposed else None
        for wgrad, x_fold, turned in self._wgrads((sizes, folds, held)):
            if occupancy.least(turned) > self.sbuf_bytes:
                continue
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
            if is_paired and self.problem.transposed:  # the wide tensor is dy
                schedule = replace(schedule, x_block=block)
            taken = self.pricing.with_wgrad(occupancy, schedule, turned)
            scored = self._roomiest(schedule, taken, self.pricing.chains(wgrad))
            if scored is not None:
                yield scored
                kept += 1
            if kept == (KEPT if without.fits else 1):
                return

    def _wgrads(self, where: WgradWhere) -> list[tuple[WgradPlan, Fold, int]]:
        """List ways to compute dw, which several ways to compute dx may share."""
        found = self._found_wgrads.get(where)
        if found is None:
            found = list(WgradSearch(self.pricing, *where, self.sbuf_bytes).candidates())
            self._found_wgrads[where] = found
        return found

    def _roomiest(self, schedule: Schedule, occupancy: Occupancy, chains: int) -> Scored | None:
        """Weave and keep all sums if SBUF has the room; else do without the one, then cut the other in passes.

        Where filters take long to arrive, the dx of the only slab comes last.
        """
        late = occupancy.held_with_late_filters
        ahead = min(occupancy.loaded, int(self.sbuf_bytes) - late)
        if occupancy.is_alone and ahead >= min(occupancy.loaded, STAGED_FILTERS):
            last = replace(schedule, woven=True, chains_per_pass=chains, dx_last=True)
            if self.pricing.waits_for_filters(last):
                return self._scored(replace(last, filters_ahead=ahead), late + ahead)
        ways = [(True, 1), (False, 1)]
        if not occupancy.is_single:
            ways += [(False, passes) for passes in PASSES if passes <= chains] + [(False, chains)]
        for woven, passes in ways:
            per_pass = ceil_div(chains, passes)
            sbuf = occupancy.held(woven=woven, chains=per_pass)
            if sbuf <= self.sbuf_bytes:
                schedule = replace(schedule, woven=woven, chains_per_pass=per_pass)
                schedule, sbuf = self._with_late_filters(schedule, occupancy, sbuf)
                return self._scored(*self._with_loads_ahead(schedule, occupancy, sbuf))
        return None

    def _with_loads_ahead(
        self, schedule: Schedule, occupancy: Occupancy, sbuf: int
    ) -> tuple[Schedule, int]:
        """Load a slab before the one before it is prepared, if there is room for both and no filters are waited for."""
        held = sbuf + occupancy.windows
        dgrad = schedule.dgrad
        waits = schedule.filters_late or (dgrad is not None and not dgrad.filters_resident)
        if occupancy.is_single or waits or held > self.sbuf_bytes:
            return schedule, sbuf
        return replace(schedule, loads_ahead=True), held

    def _with_late_filters(
        self, schedule: Schedule, occupancy: Occupancy, sbuf: int
    ) -> tuple[Schedule, int]:
        """Let filters arrive while dx is computed, if there are several channel blocks and room to load them."""
        dgrad = schedule.dgrad
        if dgrad is None or not dgrad.filters_resident or self.problem.all_groups > 1:
            return schedule, sbuf
        blocks = ceil_div(self.pricing.dgrad_channels[0], dgrad.in_block)
        staged = sbuf + 2 * STAGE_BYTES
        if occupancy.is_alone:  # those of a block make room for those of the one after the next
            staged -= max(0, blocks - 2) * occupancy.filters // blocks
        if blocks == 1 or occupancy.loaded <= STAGE_BYTES or staged > self.sbuf_bytes:
            return schedule, sbuf
        ahead = min(occupancy.loaded, int(self.sbuf_bytes) - staged)
        return replace(schedule, filters_late=True, filters_ahead=ahead), staged + ahead

    def _scored(self, schedule: Schedule, sbuf: int) -> Scored:
        work, passes = self.pricing.work(schedule), self.pricing.passes(schedule)
        rolled = Rolled(schedule, work.instructions, 0.0)
        if self.can_roll:
            rolled = roll(self.problem, schedule, work, passes, self.budget)
        return Scored(
            self.problem,
            rolled.schedule,
            work,
            self.pricing.first_loads(schedule),
            sbuf,
            rolled.instructions,
            rolled.added_ns,
            fits=rolled.instructions <= self.budget,
        )


def _report(scored: Scored, best: Scored) -> Candidate:
    bound, time = scored.work.busiest
    schedule = scored.schedule
    name = f"slab {'x'.join(map(str, schedule.slabs.sizes))} fold {schedule.dy_fold[0]}x{schedule.dy_fold[1]}"
    if scored.problem.cores > 1:
        name = f"cores halve {scored.problem.share}, {name}"
    if schedule.dgrad is not None and schedule.dgrad.double_row:
        name += " double row"
    if schedule.dgrad is not None and schedule.dgrad.tail is not None:
        name += f" last {schedule.dgrad.tail.in_block} channels apart"
    if schedule.wgrad is not None:
        wgrad = schedule.wgrad
        name += f" moving {wgrad.moving}"
        if wgrad.stationary_axis is not None:
            name += f" packed {'DHW'[wgrad.stationary_axis]}"
        name += f" lengths {'x'.join(map(str, wgrad.lengths))}"
        if wgrad.pair_axis is not None:
            name += f" in pairs along {'NDHW'[wgrad.pair_axis]}"
    ratio = scored.score / best.score
    verdict = "taken" if scored is best else f"{ratio:.2f} times the time"
    return Candidate(name, time / 1000, bound, scored.sbuf, verdict)
