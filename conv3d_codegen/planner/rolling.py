# SPDX-License-Identifier: Apache-2.0
"""Which axes of the slab grid become hardware loops, so that a kernel's text stays within a budget."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

from conv3d_codegen.planner.grid import axis_runs, slab_kinds
from conv3d_codegen.planner.model import ROLLED_SINCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conv3d_codegen.planner.estimate import Work
    from conv3d_codegen.planner.options import EmitOptions
    from conv3d_codegen.planner.problem import Problem
    from conv3d_codegen.planner.schedule import Schedule

TOGETHER = (1, 2, 3, 4, 6, 8, 12, 16)  # slabs of a run that one iteration may take
# Distances of all iterations lie in one partition on their way to HBM, 4 bytes each.
MOST_ITERATIONS = 16384
# Between iterations the engines meet: the first load and the last store hide behind nothing, and each
# takes about 2 us before a byte moves (AWS NKI DMA guide).
MEETING_NS = 4000.0


@dataclass(frozen=True, slots=True)
class Rolled:
    """A schedule with its loops: instructions of the text, and time that the loops add."""

    schedule: Schedule
    instructions: float
    added_ns: float


def can_roll(options: EmitOptions) -> bool:
    """Whether loops are wanted, and known to the oldest release that must accept the text."""
    return options.unroll == "auto" and _release(options.nki) >= _release(ROLLED_SINCE)


def _release(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in name.split("."))


def roll(problem: Problem, schedule: Schedule, work: Work, passes: int, budget: float) -> Rolled:
    """Roll as little as the budget allows; where nothing meets it, what gives the shortest text."""
    flat = Rolled(schedule, work.instructions, 0.0)
    if work.instructions <= budget:
        return flat
    found = [flat, *_loops(problem, schedule, work, passes)]
    fitting = [rolled for rolled in found if rolled.instructions <= budget]
    if fitting:
        return min(fitting, key=lambda rolled: rolled.added_ns)
    return min(found, key=lambda rolled: rolled.instructions)


def _loops(problem: Problem, schedule: Schedule, work: Work, passes: int) -> Iterator[Rolled]:
    """Price every set of axes that can be rolled."""
    runs = [axis_runs(problem, schedule, number) for number in range(4)]
    slabs = math.prod(sum(run) for run in runs)
    axes = [number for number in range(4) if max(runs[number]) > 1]
    for count in range(1, len(axes) + 1):
        for rolled in combinations(axes, count):
            if math.prod(max(runs[number]) for number in rolled) > MOST_ITERATIONS:
                continue
            repeated = (work.instructions - work.once) / slabs
            for together in TOGETHER:
                if together > max(1, max(runs[rolled[-1]]) // 2):
                    break
                looped = replace(schedule, rolled=rolled, together=together)
                counts = [
                    [count for _, count in slab_kinds(run, looped.per_iteration(number))]
                    for number, run in enumerate(runs)
                ]
                # Kinds that are repeated as often share an iteration: see planner.grid.slab_groups.
                meetings = passes * math.prod(sum(set(counts[number])) for number in rolled)
                yield Rolled(
                    looped,
                    work.once + math.prod(map(len, counts)) * repeated,
                    meetings * (MEETING_NS + work.dma / slabs / passes),
                )
