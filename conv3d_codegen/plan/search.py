# SPDX-License-Identifier: Apache-2.0
"""Picks a schedule: enumerates the ways to cut, fold and spread, drops what does not fit, takes the cheapest."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

from conv3d_codegen.errors import RequestError
from conv3d_codegen.plan.axes import dgrad_axis, forward_axis
from conv3d_codegen.plan.blocks import ceil_div
from conv3d_codegen.plan.candidates import Pricing
from conv3d_codegen.plan.estimate import balanced_tile
from conv3d_codegen.plan.model import Candidate
from conv3d_codegen.plan.schedule import DgradPlan, Schedule, SlabPlan
from conv3d_codegen.plan.wgrad_search import WgradSearch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from conv3d_codegen.geometry import ConvGeometry
    from conv3d_codegen.plan.axes import DgradAxis
    from conv3d_codegen.plan.estimate import Work
    from conv3d_codegen.plan.options import EmitOptions
    from conv3d_codegen.plan.problem import Problem

Sizes = tuple[int, int, int, int]
Fold = tuple[int, int]

# Bytes of SBUF per partition that a schedule may plan with: AWS's compiler keeps the rest to itself, and
# stays free of spills up to 200 KiB on trn2 (see TargetSpec.sbuf_bytes_per_partition).
SBUF_BUDGET = 190 * 1024
RESIDENT_FILTERS = 96 * 1024
SUM_BYTES = 64 * 1024
TRIED_SLABS = 5  # of those that fit, largest first: smaller ones repeat more borders and sums
FOLDS = (1, 2, 3, 4, 6, 8, 16)


@dataclass(frozen=True, slots=True)
class Choice:
    """The problem as its cores share it, the schedule taken, and the candidates priced, cheapest first."""

    problem: Problem
    schedule: Schedule
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class Scored:
    """A schedule with its price."""

    problem: Problem
    schedule: Schedule
    work: Work
    sbuf: int

    @property
    def score(self) -> float:
        """Time in ns: the busiest engine, plus a tenth of what can't overlap at the ends."""
        return self.work.busiest[1] + 0.1 * self.work.total


def choose(
    geometry: ConvGeometry, problems: Sequence[Problem], options: EmitOptions
) -> Choice:
    """Take the cheapest schedule that fits; one always does, because every extent can be cut to one."""
    best = [scored for problem in problems for scored in _scored(geometry, problem)]
    if not best:
        raise RequestError("no-schedule", f"{geometry.key()}: no schedule fits SBUF")
    best.sort(key=lambda scored: scored.score)
    reports = tuple(_report(scored, best[0]) for scored in best[:12])
    return Choice(best[0].problem, best[0].schedule, reports)


def _scored(geometry: ConvGeometry, problem: Problem) -> list[Scored]:
    """Price the schedules of one problem that fit."""
    search = _Search(geometry, problem)
    best: list[Scored] = []
    for dgrad, dy_fold, dy_block in search.dgrads():
        fitting = 0
        for sizes in search.slabs(dy_fold):
            scored = search.best_for(dgrad, dy_fold, dy_block, sizes)
            if scored is not None:
                best.append(scored)
                fitting += 1
            if fitting == TRIED_SLABS:
                break
    return best


class _Search:
    def __init__(self, geometry: ConvGeometry, problem: Problem) -> None:
        self.geometry, self.problem = geometry, problem
        self.pricing = Pricing(geometry, problem)

    def dgrads(self) -> list[tuple[DgradPlan | None, Fold, int]]:
        """The plainest way to compute dx and the few best others, by tensor and eviction time alone."""
        channels = self.problem.out_channels
        if self.problem.transposed:
            forward = self._forward() if "dx" in self.geometry.gradients else None
            return [(forward, (1, 1), min(channels, 128))]
        if "dx" not in self.geometry.gradients:
            folds = [(1, 1)]
            if channels <= 64:
                folds += [f for f in product(FOLDS, FOLDS) if math.prod(f) == 128 // channels]
            return [(None, fold, min(channels, 128 // math.prod(fold))) for fold in folds]
        found = []
        for fold, blocked in self._row_modes():
            plan = self._dgrad(fold, blocked)
            if plan is not None:
                block = min(channels, 128 // math.prod(fold))
                work = self.pricing.dgrad_work(plan, self._whole(), block)
                found.append((work.busiest[1] + 0.1 * work.total, plan, fold, block))
        found.sort(key=lambda row: row[0])
        kept = found[:3] + [row for row in found[3:] if row[2] == (1, 1)][:1]
        return [(plan, fold, block) for _, plan, fold, block in kept]

    def _row_modes(self) -> Iterator[tuple[Fold, tuple[bool, bool]]]:
        depth, height, _ = self.problem.axes
        yield (1, 1), (False, False)
        narrow = min(self.problem.in_channels, self.problem.out_channels)
        if narrow > 64:
            return
        for f_d, f_h in product(FOLDS, FOLDS):
            if f_d > depth.out or f_h > height.out or f_d * f_h > 128 // narrow:
                continue
            for b_d in {f_d > 1, depth.stride > 1 or f_d > 1}:
                for b_h in {f_h > 1, height.stride > 1 or f_h > 1}:
                    if b_d or b_h:
                        yield (f_d, f_h), (b_d, b_h)

    def _dgrad(self, fold: Fold, blocked: tuple[bool, bool]) -> DgradPlan | None:
        depth, height = (
            dgrad_axis(axis, f, blocked=b)
            for axis, f, b in zip(self.problem.axes, fold, blocked, strict=False)
        )
        width = dgrad_axis(self.problem.axes[2])
        rows = depth.rows * height.rows
        if rows > 128:
            return None
        in_block = min(self.problem.in_channels, 128 // rows)
        block = min(self.problem.out_channels, 128 // math.prod(fold))
        return self._tiled((depth, height, width), in_block, block)

    def _forward(self) -> DgradPlan:
        """Compute dx of a transposed convolution, row by row."""
        depth, height, width = (forward_axis(axis) for axis in self.problem.axes)
        in_block = min(self.problem.out_channels, 128)
        block = min(self.problem.in_channels, 128)
        return self._tiled((depth, height, width), in_block, block)

    def _tiled(
        self, axes: tuple[DgradAxis, DgradAxis, DgradAxis], in_block: int, dy_block: int
    ) -> DgradPlan:
        blocks = [max(1, ceil_div(axis.size + axis.pad % axis.period, axis.period)) for axis in axes]
        plan = DgradPlan(axes, in_block, balanced_tile(blocks), True)
        resident = self.pricing.filter_bytes(plan, dy_block) <= RESIDENT_FILTERS
        return replace(plan, filters_resident=resident)

    def _whole(self) -> Sizes:
        d, h, w = (
            max(axis.out, (axis.size - 1 + axis.pad_before) // axis.stride + 1)
            for axis in self.problem.axes
        )
        return self.problem.batch, d, h, w

    def slabs(self, fold: Fold) -> Iterator[Sizes]:
        """Cut samples first, then D, then H, then W, each in halves."""
        n, d, h, w = self._whole()
        d, h = (ceil_div(extent, f) * f for extent, f in zip((d, h), fold, strict=True))
        for samples in _halves(n, 1):
            yield samples, d, h, w
        for planes in _halves(d, fold[0]):
            yield 1, planes, h, w
        for rows in _halves(h, fold[1]):
            yield 1, fold[0], rows, w
        for columns in _halves(w, 1):
            yield 1, fold[0], fold[1], columns

    def best_for(
        self, dgrad: DgradPlan | None, dy_fold: Fold, dy_block: int, sizes: Sizes
    ) -> Scored | None:
        """Add the cheapest dw that fits to a way of computing dx."""
        base = Schedule(
            slabs=SlabPlan(sizes),
            dgrad=dgrad,
            wgrad=None,
            bgrad="db" in self.geometry.gradients,
            dy_fold=dy_fold,
            x_fold=(1, 1),
            dy_block=dy_block,
            x_block=min(128, self.problem.in_channels),
            chains_per_pass=1,
        )
        if "dw" not in self.geometry.gradients:
            return self._scored(base)
        best: Scored | None = None
        for wgrad, x_fold in WgradSearch(self.pricing, sizes, dy_fold).candidates():
            chains = self.pricing.chains(wgrad)
            one_slab = all(a >= b for a, b in zip(sizes, self._whole(), strict=True))
            schedule = replace(
                base,
                wgrad=wgrad,
                x_fold=x_fold,
                x_block=min(self.problem.in_channels, 128 // math.prod(x_fold)),
                chains_per_pass=chains if one_slab else min(chains, SUM_BYTES // 2048),
            )
            scored = self._scored(schedule)
            if scored is not None and (best is None or scored.score < best.score):
                best = scored
        return best

    def _scored(self, schedule: Schedule) -> Scored | None:
        sbuf = self.pricing.sbuf_bytes(schedule)
        if sbuf > SBUF_BUDGET:
            return None
        return Scored(self.problem, schedule, self.pricing.work(schedule), sbuf)


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
