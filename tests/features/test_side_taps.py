# SPDX-License-Identifier: Apache-2.0
"""dx of few channels: taps of W side by side in a matmul's columns, whose products meet when a tile is evicted."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from conv3d_codegen.api import EmitOptions, emit_scored, plan
from conv3d_codegen.geometry import AxisGeometry, ConvGeometry
from conv3d_codegen.planner.axes import dgrad_axis
from conv3d_codegen.planner.estimate import balanced_tile
from conv3d_codegen.planner.problem import problems_of
from conv3d_codegen.planner.search import priced
from conv3d_codegen.planner.side_taps import (
    may_share,
    side_blocks,
    side_counts,
    side_shift,
    side_sources,
)
from conv3d_codegen.verify import verify_source

MOST_PRICED = 60  # of each budget


def shaped(shape: tuple[int, ...], filters: tuple[int, ...], **more: Any) -> ConvGeometry:
    return ConvGeometry.from_shapes(shape, filters, gradients=("dx",), **more)


CASES = {
    "one channel": shaped((1, 1, 6, 9, 10), (8, 3, 3, 3), padding=1),
    "no padding": shaped((1, 3, 4, 6, 7), (40, 3, 3, 3)),
    "more padding than taps": shaped((1, 3, 2, 5, 6), (8, 2, 3, 3), padding=3),
    "batch": shaped((2, 3, 5, 9, 10), (8, 3, 3, 3), padding=1),
    "two runs of taps, stride phases in both": shaped(
        (1, 3, 4, 13, 12), (16, 3, 7, 7), padding=3, stride=(1, 2, 2)
    ),
    "a phase without taps": shaped((1, 2, 7, 9), (16, 2, 2), stride=3, padding=1),
    "as many phases as taps": shaped((1, 1, 8, 8, 8), (8, 2, 2, 2), stride=2),
    "dilated": shaped((1, 2, 14, 9), (4, 3, 3), padding=2, dilation=2),
    "dilated and strided": shaped((1, 2, 9, 17), (8, 3, 4), padding=2, dilation=3, stride=2),
    "columns that no window reads": shaped((1, 2, 4, 11), (8, 2, 2), stride=3),
    "a line": shaped((1, 1, 60), (16, 10), stride=4),
    "several blocks of dy": shaped((1, 16, 3, 5, 6), (200, 3, 3, 3), padding=1),
    "many runs of taps": shaped((1, 2, 40), (8, 13)),
    "halves": shaped((1, 20, 3, 5, 6), (32, 3, 3, 3), padding=1),
    "rows longer than a PSUM bank": shaped((1, 2, 3, 600), (16, 2, 3), padding=(0, 1)),
    "taps innermost, dy on partitions": shaped(
        (1, 3, 4, 6, 6), (8, 3, 3, 3), padding=1, filter_layout="OIDHW"
    ),
    "channels innermost": shaped((1, 3, 4, 6, 6), (8, 3, 3, 3), padding=1, filter_layout="ODHWI"),
    "channels last": shaped((1, 4, 3, 7, 6), (6, 2, 3, 3), padding=2, layout="NDHWC"),
    "channels last, rounded to 8 bits": shaped(
        (1, 4, 3, 7, 6), (6, 2, 3, 3), padding=2, layout="NDHWC", dtype="fp8_e4m3"
    ),
    "groups": shaped((1, 8, 3, 6, 7), (16, 3, 3, 3), padding=1, groups=4),
    "depthwise": shaped((1, 16, 3, 6, 7), (16, 3, 3, 3), padding=1, groups=16),
    "depthwise, idle columns": shaped((1, 5, 3, 6, 7), (10, 3, 3, 3), padding=1, groups=5),
    "depthwise, packs of unequal size": shaped((1, 63, 2, 2, 4), (63, 2, 1, 3), groups=63),
    "the last channels alone": shaped((1, 160, 3, 4, 5), (24, 3, 3, 3), padding=1),
    "the last channels alone, halves": shaped((1, 190, 9, 6), (130, 3, 3), padding=1, stride=2),
    "the last channels alone, channels last": shaped(
        (1, 4, 6, 130), (6, 3, 3), padding=1, layout="NHWC"
    ),
    "the last channels alone, two cores": shaped((1, 272, 5, 6), (4, 3, 3), padding=1, lnc=2),
    "transposed": shaped((1, 40, 3, 4, 5), (2, 2, 3, 3), padding=1, transposed=True),
    "two cores": shaped((2, 4, 3, 9, 5), (6, 2, 3, 3), padding=1, lnc=2),
    "fp32": shaped((1, 4, 3, 9, 5), (6, 2, 3, 3), dtype="fp32"),
}


@pytest.mark.parametrize("name", CASES)
def test_taps_side_by_side_are_exact(name: str) -> None:
    """Flat and in loops; the few best ways of each kind are among those that the search prices."""
    geometry = CASES[name]
    found = {}
    for budget in (10_000, 300):
        schedules = priced(geometry, problems_of(geometry), EmitOptions(), budget)
        for scored in islice(schedules, MOST_PRICED):
            dgrad = scored.schedule.dgrad
            if dgrad is not None and dgrad.shares_columns:
                besides = tuple(way.beside for way in dgrad.ways)
                found.setdefault((besides, dgrad.axes, scored.schedule.rolled), scored)
    assert found
    for scored in found.values():
        report = verify_source(emit_scored(geometry, scored).source, geometry)
        assert not report.violations, scored.schedule
        assert all(check.exact for check in report.gradients), scored.schedule


def test_the_search_takes_them_where_columns_would_be_idle() -> None:
    few = plan(shaped((1, 1, 16, 32, 64), (32, 3, 3, 3), padding=1)).schedule.dgrad
    many = plan(shaped((1, 128, 8, 16, 16), (128, 3, 3, 3), padding=1)).schedule.dgrad
    assert few is not None
    assert many is not None
    assert few.beside > 1
    assert many.beside == 1


def test_tiles_leave_room_for_columns_that_some_taps_use() -> None:
    assert balanced_tile((1, 8, 128)) == (1, 4, 128)
    assert balanced_tile((1, 8, 128), halo=2) == (1, 3, 128)
    assert balanced_tile((1, 8, 512), halo=2) == (1, 1, 256)


def test_counts_follow_the_taps() -> None:
    """Seven taps in two phases: two matmuls of a tile, and as many evictions as there are taps in the first."""
    axis = dgrad_axis(CASES["two runs of taps, stride phases in both"].as_correlation().axes[2])
    assert may_share(axis, 4)
    assert side_shift(axis, 4) == 2
    blocks = side_blocks(axis, 0, 12)
    assert blocks == (1, 8)
    assert side_sources(axis, 4, *blocks) == (0, 8)
    counts = side_counts(axis, axis.dy_size + 2, 7, 4)
    assert (counts.boxes, counts.columns) == (2, 16)
    assert (counts.copies, counts.adds) == (2, 2)


def test_runs_of_taps_that_serve_other_phases_do_not_lie_side_by_side() -> None:
    axis = dgrad_axis(AxisGeometry(20, 5, stride=3, dilation=1, pad_before=1, pad_after=1))
    assert side_shift(axis, 2) is None
    assert not may_share(axis, 2)
    assert not may_share(axis, 4)
