# SPDX-License-Identifier: Apache-2.0
"""Sizes that slabs can have: every axis whole, in halves, in quarters, and so on."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from conv3d_codegen.planner.blocks import ceil_div

if TYPE_CHECKING:
    from collections.abc import Iterator

Sizes = tuple[int, int, int, int]
Steps = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]

# Steps from a size to its neighbours, as how much further D, H and W are cut.
MOVES = (
    (1, 0, 0),
    (-1, 0, 0),
    (0, 1, 0),
    (0, -1, 0),
    (0, 0, 1),
    (0, 0, -1),
    (1, -1, 0),
    (-1, 1, 0),
)


@dataclass(frozen=True)
class SlabGrid:
    """Extents along N, D, H and W, largest first; of several samples, slabs hold all positions."""

    steps: Steps

    @classmethod
    def of(cls, whole: Sizes, grain: tuple[int, int]) -> SlabGrid:
        """Cut the slab that holds the whole problem, D and H in multiples of the grain."""
        n, d, h, w = whole
        return cls((_halves(n, 1), _halves(d, grain[0]), _halves(h, grain[1]), _halves(w, 1)))

    def largest_first(self) -> Iterator[Sizes]:
        """Cut samples first, then D, then H, then W: borders and sums are repeated least."""
        n, d, h, w = self.steps
        for samples in n[:-1]:
            yield samples, d[0], h[0], w[0]
        for planes in d[:-1]:
            yield 1, planes, h[0], w[0]
        for rows in h[:-1]:
            yield 1, d[-1], rows, w[0]
        for columns in w:
            yield 1, d[-1], h[-1], columns

    def neighbours(self, sizes: Sizes) -> Iterator[Sizes]:
        """Give the sizes one step away: one axis cut more or less often, or D in exchange for H."""
        samples, *extents = sizes
        if samples > 1:
            return
        steps = self.steps[1:]
        places = [axis.index(extent) for axis, extent in zip(steps, extents, strict=True)]
        for move in MOVES:
            d, h, w = (place + by for place, by in zip(places, move, strict=True))
            if all(0 <= at < len(axis) for at, axis in zip((d, h, w), steps, strict=True)):
                yield 1, steps[0][d], steps[1][h], steps[2][w]

    def all(self) -> Iterator[Sizes]:
        """Every size."""
        n, d, h, w = self.steps
        for samples in n[:-1]:
            yield samples, d[0], h[0], w[0]
        for planes, rows, columns in product(d, h, w):
            yield 1, planes, rows, columns


def _halves(extent: int, unit: int) -> tuple[int, ...]:
    """Extent in whole units, then ever smaller even pieces in multiples of unit."""
    sizes: list[int] = []
    pieces = 1
    while not sizes or sizes[-1] > unit:
        size = ceil_div(ceil_div(extent, pieces), unit) * unit
        if not sizes or size != sizes[-1]:
            sizes.append(size)
        pieces *= 2
    return tuple(sizes)
