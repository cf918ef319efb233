# SPDX-License-Identifier: Apache-2.0
"""Which taps a row of a dy block has in the matrices of one axis of dx, as even progressions.

Each progression is one loop of a transfer: taps at an even distance go to places at an even distance.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conv3d_codegen.planner.axes import DgradAxis


@dataclass(frozen=True, slots=True)
class Progression:
    """Taps tap, tap + tap_step, … at places place, place + place_step, …; a place is entry · rows + dx row."""

    tap: int
    place: int
    count: int
    tap_step: int
    place_step: int

    @property
    def places(self) -> slice:
        """All places."""
        return slice(
            self.place, self.place + (self.count - 1) * self.place_step + 1, self.place_step
        )


@lru_cache(maxsize=4096)
def progressions(axis: DgradAxis, row: int) -> tuple[Progression, ...]:
    """Cut what one row of a dy block has into progressions, by place."""
    places = sorted(
        (entry * axis.rows + r, tap)
        for entry, block_tap in enumerate(axis.entries())
        for u, r, tap in block_tap.triples
        if u == row
    )
    found = []
    start = 0
    while start < len(places):
        count, place_step, tap_step = _even(places[start:])
        place, tap = places[start]
        found.append(Progression(tap, place, count, tap_step, place_step))
        start += count
    return tuple(found)


def _even(places: Sequence[tuple[int, int]]) -> tuple[int, int, int]:
    """Count the (place, tap) pairs that go on as they begin, and give both steps; taps never go down."""
    steps = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(places)]
    if not steps or steps[0][1] < 1:
        return 1, 1, 1
    count = next((n for n, step in enumerate(steps) if step != steps[0]), len(steps))
    return count + 1, *steps[0]
