# SPDX-License-Identifier: Apache-2.0
"""Taps of W side by side in the columns of dx's matmuls, where dx's channels and rows fill a part of them alone.

A matmul of several taps moves the same dy columns for all of them, and each tap's product belongs to other columns of
dx. So every tap has partitions of its own in PSUM, a quarter or a half of them, where engines may start to read
(NKI guide: partitions 0, 32, 64 and 96), and the products meet when the tile is evicted.

The tap of distance `delta` brings dy column B - delta to dx block B (see planner.axes). So dx blocks [first, stop) take
dy columns [first - largest delta, stop - smallest delta), which are zero where there are none.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from conv3d_codegen.planner.blocks import BANK_COLUMNS, ceil_div, split_upto
from conv3d_codegen.planner.estimate import dx_cuts

if TYPE_CHECKING:
    from conv3d_codegen.planner.axes import DgradAxis

Range = tuple[int, int]

SIDES = (2, 4)  # taps that may lie side by side: on halves or on quarters of the partitions
MOST_MATMULS = 3  # that share a tile, each with a PSUM bank of its own
MOST_HALO = BANK_COLUMNS // 4  # columns of a tile that only some of its taps use


def may_share(axis: DgradAxis, beside: int) -> bool:
    """Whether an axis has several taps, but not many, that read dy's columns one by one, and not far apart."""
    taps = len(axis.entries())
    if axis.blocked or axis.step > 1 or taps == 1:
        return False
    low, high = axis.deltas
    return ceil_div(taps, beside) <= MOST_MATMULS and high - low <= MOST_HALO


def side_blocks(axis: DgradAxis, low: int, high: int) -> Range:
    """Blocks that hold dx columns [low, high), of all phases together."""
    spans = [axis.blocks_for(phase, low, high) for phase in axis.phases]
    held = [span for span in spans if span[0] < span[1]]
    return min((first for first, _ in held), default=0), max((stop for _, stop in held), default=0)


def side_sources(axis: DgradAxis, first: int, stop: int) -> Range:
    """Dy columns, existing or not, that dx blocks [first, stop) take."""
    low, high = axis.deltas
    return first - high, stop - low


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
    taps = len(axis.entries())
    matmuls = ceil_div(taps, beside)
    for cut in dx_cuts(axis, slab):
        for first, stop in split_upto(side_blocks(axis, *cut), tile):
            low, high = side_sources(axis, first, stop)
            boxes += matmuls
            columns += matmuls * (high - low)
            for phase in axis.phases:
                more = max(0, len(phase.taps) - 1)
                copies += 1
                copied += stop - first
                adds += more
                added += more * (stop - first)
    return SideCounts(boxes, columns, copies, copied, adds, added)
