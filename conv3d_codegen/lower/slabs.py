# SPDX-License-Identifier: Apache-2.0
"""Which rows of which tensor each slab owns, produces and loads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from conv3d_codegen.lower.windows import Box
from conv3d_codegen.planner.grid import AxisCuts

if TYPE_CHECKING:
    from conv3d_codegen.planner.grid import Index
    from conv3d_codegen.planner.problem import Problem
    from conv3d_codegen.planner.schedule import SlabPlan

NOTHING = Box((0, 0), (0, 0), (0, 0), (0, 0))


@dataclass(frozen=True, slots=True)
class Slab:
    """One cut of the work: rows of the tensor that windows produce and of the one they read; either may be empty."""

    narrow: Box
    wide: Box


def cut_slab(problem: Problem, plan: SlabPlan, index: Index) -> Slab:
    """Cut one slab out of the grid of the planned sizes."""
    first = index[0] * plan.sizes[0]
    samples = first, min(first + plan.sizes[0], problem.batch)
    cuts = [AxisCuts(*pair) for pair in zip(problem.axes, plan.sizes[1:], strict=True)]
    pieces = list(zip(cuts, index[1:], strict=True))
    return Slab(
        Box(samples, *(cut.narrow(position) for cut, position in pieces)),
        Box(samples, *(cut.wide(position) for cut, position in pieces)),
    )
