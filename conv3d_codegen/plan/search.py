# SPDX-License-Identifier: Apache-2.0
"""Picks a schedule: enumerates the ways to cut, fold and spread, drops what does not fit, takes the cheapest."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

from conv3d_codegen.errors import RequestError
from conv3d_codegen.plan.axes import dgrad_axis
from conv3d_codegen.plan.blocks import ceil_div
from conv3d_codegen.plan.candidates import Pricing
from conv3d_codegen.plan.correlation import correlation_axis
from conv3d_codegen.plan.estimate import balanced_tile, dgrad_counts
from conv3d_codegen.plan.model import Candidate
from conv3d_codegen.plan.schedule import DgradPlan, Schedule, SlabPlan, WgradPlan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conv3d_codegen.geometry import ConvGeometry
    from conv3d_codegen.plan.estimate import Work
    from conv3d_codegen.plan.options import EmitOptions
    from conv3d_codegen.plan.problem import Problem
    from conv3d_codegen.plan.schedule import Side

Sizes = tuple[int, int, int, int]
Fold = tuple[int, int]

# Bytes of SBUF per partition that a schedule may plan with: AWS's compiler keeps the rest to itself, and
# stays free of spills up to 200 KiB on trn2 (see TargetSpec.sbuf_bytes_per_partition).
SBUF_BUDGET = 190 * 1024
RESIDENT_FILTERS = 96 * 1024
SUM_BYTES = 64 * 1024
FOLDS = (1, 2, 3, 4, 6, 8, 16)


@dataclass(frozen=True, slots=True)
class Choice:
    """The schedule taken, and the candidates that were priced, cheapest first."""

    schedule: Schedule
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class Scored:
    """A schedule with its price."""

    schedule: Schedule
    work: Work
    sbuf: int

    @property
    def score(self) -> float:
        """Time in ns: the busiest engine, plus a tenth of what can't overlap at the ends."""
        return self.work.busiest[1] + 0.1 * self.work.total


def choose(geometry: ConvGeometry, problem: Problem, options: EmitOptions) -> Choice:
    """Take the cheapest schedule that fits; one always does, because every extent can be cut to one."""
    search = _Search(geometry, problem)
    best: list[Scored] = []
    for dgrad, dy_fold, dy_block in search.dgrads():
        for sizes in search.slabs(dy_fold):
            scored = search.best_for(dgrad, dy_fold, dy_block, sizes)
            if scored is not None:
                best.append(scored)
    if not best:
        raise RequestError("no-schedule", f"{geometry.key()}: no schedule fits SBUF")
    best.sort(key=lambda scored: scored.score)
    return Choice(best[0].schedule, tuple(_report(scored, best[0]) for scored in best[:12]))


class _Search:
    def __init__(self, geometry: ConvGeometry, problem: Problem) -> None:
        self.geometry, self.problem = geometry, problem
        self.pricing = Pricing(geometry, problem)

    def dgrads(self) -> list[tuple[DgradPlan | None, Fold, int]]:
        """The plainest way to compute dx and the few best others, by tensor and eviction time alone."""
        channels = self.problem.out_channels
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
        kept = found[:4] + [row for row in found[4:] if row[2] == (1, 1)][:1]
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
        blocks = []
        for axis in (depth, height, width):
            most = ceil_div(axis.size + axis.pad % axis.period, axis.period)
            blocks.append(max(1, most))
        in_block = min(self.problem.in_channels, 128 // rows)
        plan = DgradPlan((depth, height, width), in_block, balanced_tile(blocks), True)
        block = min(self.problem.out_channels, 128 // math.prod(fold))
        resident = self.pricing.filter_bytes(plan, block) <= RESIDENT_FILTERS
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
        for wgrad, x_fold in self.wgrads(sizes, dy_fold):
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
        return Scored(schedule, self.pricing.work(schedule), sbuf)

    def wgrads(self, sizes: Sizes, dy_fold: Fold) -> Iterator[tuple[WgradPlan, Fold]]:
        """Ways to put the taps on either tensor and to spread positions over partitions."""
        for roles in self._roles():
            channels = self.problem.in_channels
            folds: list[Fold] = [(1, 1)]
            if channels <= 64:
                limit = 128 // channels
                folds += [f for f in product(FOLDS, FOLDS) if limit // 2 < math.prod(f) <= limit]
            for x_fold in folds:
                for lengths in self._lengths(roles, sizes, (dy_fold, x_fold)):
                    yield replace(roles, lengths=lengths), x_fold

    def _roles(self) -> Iterator[WgradPlan]:
        """Which tensor moves, and which axis's taps go beside the stationary channels."""
        axes = self.problem.axes
        unit = all(axis.stride == 1 for axis in axes)
        channels = {"wide": self.problem.in_channels, "narrow": self.problem.out_channels}
        sides: list[Side] = ["wide", "narrow"] if unit else ["wide"]
        for moving in sides:
            blocks = {channels[moving], min(channels[moving], 128)}
            still = channels["narrow" if moving == "wide" else "wide"]
            for block in sorted(blocks, reverse=True):
                yield WgradPlan(moving, None, (0, 0, 0, 0), block)
                for axis in (1, 0, 2):
                    # Beside the channels only where they leave columns idle and entries can be neighbours.
                    geometry = axes[axis]
                    if still <= 64 and geometry.kernel > 1 and geometry.stride == 1:
                        yield WgradPlan(moving, axis, (0, 0, 0, 0), block)

    def _lengths(
        self, roles: WgradPlan, sizes: Sizes, folds: tuple[Fold, Fold]
    ) -> Iterator[Sizes]:
        samples = min(sizes[0], self.problem.batch)
        per_axis: list[list[tuple[int, int]]] = []
        for number in range(3):
            dy_fold, x_fold = ((f[number] if number < 2 else 1) for f in folds)
            options = self._axis_lengths(number, roles, sizes[number + 1], (dy_fold, x_fold))
            if not options:
                return
            per_axis.append(options)
        sample_options = [(0, 1)] + [
            (length, samples // length)
            for length in range(1, samples)
            if samples % length == 0 and self.problem.batch % length == 0
        ]
        usable = [
            (math.prod(groups for _, groups in row), row)
            for row in product(sample_options, *per_axis)
            if math.prod(groups for _, groups in row) <= 128
            and sum(groups > 1 for _, groups in row) <= 3
            and self._neighbours(roles, row, sizes)
        ]
        most = max((groups for groups, _ in usable), default=0)
        for groups, row in usable:
            if groups * 2 > most:
                n, d, h, w = (length for length, _ in row)
                yield n, d, h, w

    def _neighbours(
        self, roles: WgradPlan, row: tuple[tuple[int, int], ...], sizes: Sizes
    ) -> bool:
        """Whether the packed taps' entries are neighbours in the turned buffer (axis order W, D, H)."""
        packed = roles.stationary_axis
        if packed is None:
            return True
        axis = self.problem.axes[packed]
        if axis.dilation > 1 and row[packed + 1][0] != 1:
            return False
        inner = {1: (), 0: (1,), 2: (0, 1)}[packed]
        for number in inner:
            extent = min(sizes[number + 1], self.problem.axes[number].out)
            if (row[number + 1][0] or extent) > 1:
                return False
        return True

    def _axis_lengths(
        self, number: int, roles: WgradPlan, size: int, folds: tuple[int, int]
    ) -> list[tuple[int, int]]:
        """(length, groups) of one axis: the whole extent, or even pieces that respect folds and slab cuts."""
        shifted = roles.shifted(number)
        axis = correlation_axis(self.problem.axes[number], shifted)
        plain_fold, shifted_fold = folds if shifted == "wide" else folds[::-1]
        if shifted_fold > 1 and not (axis.dilation == 1 if axis.kernel > 1 else axis.stride == 1):
            return []
        extent = min(size, axis.owner_size)
        cut = size < axis.owner_size
        options = [(0, 1)]
        if cut and shifted == "narrow":
            return options
        seen = {1}
        step = math.lcm(plain_fold, shifted_fold // math.gcd(shifted_fold, axis.stride))
        for groups in range(2, min(extent, 128) + 1):
            length = ceil_div(ceil_div(extent, groups), step) * step
            actual = ceil_div(extent, length)
            if actual in seen or (cut and size % length):
                continue
            seen.add(actual)
            options.append((length, actual))
        if len(options) > 12:
            options = options[:4] + options[4 : -6 : ceil_div(len(options) - 10, 3)] + options[-6:]
        return options


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
    if schedule.wgrad is not None:
        wgrad = schedule.wgrad
        name += f" moving {wgrad.moving}"
        if wgrad.stationary_axis is not None:
            name += f" packed {'DHW'[wgrad.stationary_axis]}"
        name += f" lengths {'x'.join(map(str, wgrad.lengths))}"
    ratio = scored.score / best.score
    verdict = "taken" if scored is best else f"{ratio:.2f} times the time"
    return Candidate(name, time / 1000, bound, scored.sbuf, verdict)
