# SPDX-License-Identifier: Apache-2.0
"""Taps of W side by side in the columns of dx's matmuls, where dx's channels and rows fill a part of them alone.

A matmul of several taps moves the same dy columns for all of them, and each tap's product belongs to other columns of
dx. So every tap has partitions of its own in PSUM, a quarter or a half of them, where engines may start to read
(NKI guide: partitions 0, 32, 64 and 96), and the products meet when the tile is evicted.

The tap of distance `delta` brings dy column B - delta to dx block B (see planner.axes). So dx blocks [first, stop) take
dy columns [first - largest delta, stop - smallest delta), which are zero where there are none. Where there are more
taps than lie side by side, the next run of them adds to the same partitions: each of its taps serves the phase of the
one before it, from dy columns a fixed `shift` further back.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from conv3d_codegen.planner.blocks import BANK_COLUMNS, split_upto
from conv3d_codegen.planner.estimate import dx_cuts

if TYPE_CHECKING:
    from conv3d_codegen.planner.axes import DgradAxis

Range = tuple[int, int]

ALONG_W = 2  # of (D, H, W)
SIDES = (2, 4)  # taps that may lie side by side: on halves or on quarters of the partitions
MOST_HALO = BANK_COLUMNS // 4  # columns of a tile that only some of its taps use


@dataclass(frozen=True, slots=True)
class SideTap:
    """A tap of W: the phase it serves, and its distance in dy columns."""

    phase: int
    delta: int


@lru_cache(maxsize=4096)
def side_taps(axis: DgradAxis) -> tuple[SideTap, ...]:
    """List the taps in order."""
    found = (
        (tap.triples[0][2], SideTap(number, tap.delta))
        for number, phase in enumerate(axis.phases)
        for tap in phase.taps
    )
    return tuple(tap for _, tap in sorted(found, key=lambda row: row[0]))


@lru_cache(maxsize=4096)
def side_shift(axis: DgradAxis, beside: int) -> int | None:
    """Dy columns from a run of so many taps back to the next one; None if the next one serves other phases."""
    taps = side_taps(axis)
    pairs = list(zip(taps, taps[beside:], strict=False))
    if any(tap.phase != after.phase for tap, after in pairs):
        return None
    shifts = {after.delta - tap.delta for tap, after in pairs}
    return shifts.pop() if shifts else 0


def may_share(axis: DgradAxis, beside: int) -> bool:
    """Whether an axis has several taps that read dy's columns one by one, and some side by side not far apart."""
    if axis.blocked or axis.step > 1 or len(axis.entries()) == 1:
        return False
    low, high = side_deltas(axis, beside)
    return side_shift(axis, beside) is not None and high - low <= MOST_HALO


def side_deltas(axis: DgradAxis, beside: int) -> Range:
    """Smallest and largest distance of the first run of taps."""
    deltas = [tap.delta for tap in side_taps(axis)[:beside]]
    return min(deltas), max(deltas)


def side_blocks(axis: DgradAxis, low: int, high: int) -> Range:
    """Blocks that hold dx columns [low, high), of all phases together."""
    spans = [axis.blocks_for(phase, low, high) for phase in axis.phases]
    held = [span for span in spans if span[0] < span[1]]
    return min((first for first, _ in held), default=0), max((stop for _, stop in held), default=0)


def side_sources(axis: DgradAxis, beside: int, first: int, stop: int) -> Range:
    """Dy columns, existing or not, that the first run of taps takes for dx blocks [first, stop)."""
    low, high = side_deltas(axis, beside)
    return first - high, stop - low


def side_runs(axis: DgradAxis, beside: int) -> tuple[tuple[Range, int], ...]:
    """Taps of each run, and how many dy columns further back than the first one it reads."""
    shift = side_shift(axis, beside) or 0
    runs = split_upto((0, len(axis.entries())), beside)
    return tuple((run, number * shift) for number, run in enumerate(runs))


def side_reads(axis: DgradAxis, beside: int, sources: Range) -> Range:
    """Dy columns, existing or not, that all runs read where the first one takes some."""
    back = [distance for _, distance in side_runs(axis, beside)]
    return sources[0] - max(back), sources[1] - min(back)


@dataclass(frozen=True, slots=True)
class SideCounts:
    """W of dx over all slabs: matmuls and their columns, evictions by copies and by adding, and theirs."""

    boxes: int
    columns: int
    copies: int
    copied: int
    adds: int
    added: int


@lru_cache(maxsize=4096)
def side_counts(axis: DgradAxis, slab: int, tile: int, beside: int) -> SideCounts:
    """Count W where so many taps lie side by side."""
    boxes = columns = copies = copied = adds = added = 0
    taps, runs = side_taps(axis), len(side_runs(axis, beside))
    for cut in dx_cuts(axis, slab):
        for first, stop in split_upto(side_blocks(axis, *cut), tile):
            low, high = side_sources(axis, beside, first, stop)
            boxes += runs
            columns += runs * (high - low)
            for phase in range(len(axis.phases)):
                more = max(0, sum(tap.phase == phase for tap in taps[:beside]) - 1)
                copies += 1
                copied += stop - first
                adds += more
                added += more * (stop - first)
    return SideCounts(boxes, columns, copies, copied, adds, added)
