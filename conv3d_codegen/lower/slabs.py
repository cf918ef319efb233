# SPDX-License-Identifier: Apache-2.0
"""Which rows of which tensor each slab owns, produces and loads."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from conv3d_codegen.lower.windows import Box
from conv3d_codegen.plan.axes import dgrad_axis
from conv3d_codegen.plan.blocks import split_upto

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conv3d_codegen.plan.problem import Problem
    from conv3d_codegen.plan.schedule import SlabPlan

Range = tuple[int, int]

NOTHING = Box((0, 0), (0, 0), (0, 0), (0, 0))


@dataclass(frozen=True, slots=True)
class Slab:
    """One cut of the work: dy rows it owns and dx rows it produces; either box may be empty."""

    dy: Box
    dx: Box


def cut_slabs(problem: Problem, plan: SlabPlan) -> Iterator[Slab]:
    """Cut N, D, H, W in pieces of the planned sizes.

    Positions of dy and of padded dx rows share one coordinate, q: dy row o has q = o, dx rows have
    i + pad in [q·stride, (q + 1)·stride). The first and last piece of an axis take what lies beyond.
    """
    samples = list(split_upto((0, problem.batch), plan.sizes[0]))
    cuts: list[list[tuple[Range, Range]]] = []
    for axis, size in zip(problem.axes, plan.sizes[1:], strict=True):
        rows = dgrad_axis(axis)
        last_row = (axis.size - 1 + axis.pad_before) // axis.stride
        pieces = list(split_upto((0, max(axis.out, last_row + 1)), size))
        cuts.append(
            [
                (
                    (min(low, axis.out), min(high, axis.out)),
                    rows.rows_between(low, high),
                )
                for low, high in pieces
            ]
        )
    for sample, d, h, w in product(samples, *cuts):
        yield Slab(
            dy=Box(sample, d[0], h[0], w[0]),
            dx=Box(sample, d[1], h[1], w[1]),
        )
