# SPDX-License-Identifier: Apache-2.0
"""Which rows of which tensor each slab owns, produces and loads."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from conv3d_codegen.lower.windows import Box
from conv3d_codegen.plan.blocks import split_upto

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conv3d_codegen.geometry import AxisGeometry
    from conv3d_codegen.plan.problem import Problem
    from conv3d_codegen.plan.schedule import SlabPlan

Range = tuple[int, int]

NOTHING = Box((0, 0), (0, 0), (0, 0), (0, 0))


@dataclass(frozen=True, slots=True)
class Slab:
    """One cut of the work: rows of the tensor that windows produce and of the one they read; either may be empty."""

    narrow: Box
    wide: Box


def cut_slabs(problem: Problem, plan: SlabPlan) -> Iterator[Slab]:
    """Cut N, D, H, W in pieces of the planned sizes.

    Windows and what they read share one coordinate, q: window o has q = o, the rows i of the padded wide tensor have
    i + pad in [q·stride, (q + 1)·stride). The first and last piece of an axis take what lies beyond.
    """
    samples = list(split_upto((0, problem.batch), plan.sizes[0]))
    cuts: list[list[tuple[Range, Range]]] = []
    for axis, size in zip(problem.axes, plan.sizes[1:], strict=True):
        last_row = (axis.size - 1 + axis.pad_before) // axis.stride
        pieces = list(split_upto((0, max(axis.out, last_row + 1)), size))
        cuts.append([(_windows(axis, piece), _rows(axis, piece)) for piece in pieces])
    for sample, d, h, w in product(samples, *cuts):
        yield Slab(
            narrow=Box(sample, d[0], h[0], w[0]),
            wide=Box(sample, d[1], h[1], w[1]),
        )


def _windows(axis: AxisGeometry, piece: Range) -> Range:
    """Windows of a piece."""
    low, high = piece
    return min(low, axis.out), min(high, axis.out)


def _rows(axis: AxisGeometry, piece: Range) -> Range:
    """Rows of the wide tensor in a piece."""
    low = max(0, piece[0] * axis.stride - axis.pad_before)
    high = min(axis.size, piece[1] * axis.stride - axis.pad_before)
    return low, max(low, high)
