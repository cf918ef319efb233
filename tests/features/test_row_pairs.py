# SPDX-License-Identifier: Apache-2.0
"""dw of few channels: several rows beside the stationary channels meet all rows that their taps reach."""

from __future__ import annotations

from itertools import islice

import pytest

from conv3d_codegen.api import EmitOptions, emit_scored, plan
from conv3d_codegen.geometry import ConvGeometry
from conv3d_codegen.planner.problem import problems_of
from conv3d_codegen.planner.search import priced
from conv3d_codegen.verify import verify_source

shaped = ConvGeometry.from_shapes
CASES = {
    "one channel": shaped((1, 1, 6, 9, 10), (8, 3, 3, 3), padding=1),
    "batch": shaped((2, 3, 5, 9, 10), (8, 3, 3, 3), padding=1),
    "strided, some taps alone reach a border": shaped(
        (1, 3, 4, 13, 12), (16, 3, 7, 7), padding=3, stride=(1, 2, 2)
    ),
    "dilation leaves rows between taps": shaped((1, 2, 14, 9), (4, 3, 3), padding=2, dilation=2),
    "stride as long as the taps": shaped((1, 1, 8, 8, 8), (8, 2, 2, 2), stride=2),
    "taps innermost in dw": shaped(
        (1, 3, 4, 9, 6), (5, 3, 4, 2), padding=(1, 3, 0), stride=(2, 1, 3), filter_layout="OIDHW"
    ),
    "channels last": shaped(
        (2, 4, 3, 7, 6), (6, 2, 3, 3), padding=2, filter_layout="ODHWI", layout="NDHWC"
    ),
    "transposed": shaped((1, 4, 3, 4, 5), (6, 2, 3, 3), stride=2, transposed=True),
    "two cores": shaped((2, 4, 3, 9, 5), (6, 2, 3, 1), padding=1, lnc=2),
    "fp32": shaped((1, 4, 3, 9, 5), (6, 2, 1, 3), dtype="fp32"),
}


@pytest.mark.parametrize("budget", [10_000, 300])
@pytest.mark.parametrize("name", CASES)
def test_pairs_of_rows_are_exact(name: str, budget: int) -> None:
    """Every way of spreading positions, flat and in loops."""
    geometry = CASES[name]
    schedules = {
        scored.schedule: scored
        for scored in priced(geometry, problems_of(geometry), EmitOptions(), budget)
        if scored.schedule.wgrad is not None and scored.schedule.wgrad.rows > 1
    }
    if name.startswith("dilation"):
        assert not schedules, "a slab's last row could be of another unit than the others"
        return
    step = max(1, len(schedules) // 3)
    for scored in islice(schedules.values(), 0, 3 * step, step):
        report = verify_source(emit_scored(geometry, scored).source, geometry)
        assert not report.violations, scored.schedule
        assert all(check.exact for check in report.gradients), scored.schedule


def test_the_search_takes_them_where_columns_would_be_idle() -> None:
    few = plan(shaped((1, 1, 16, 32, 64), (32, 3, 3, 3), padding=1)).schedule.wgrad
    many = plan(shaped((1, 128, 8, 16, 16), (128, 3, 3, 3), padding=1)).schedule.wgrad
    assert few is not None
    assert many is not None
    assert few.rows > 1
    assert many.rows == 1


def test_rows_are_not_more_than_a_partition_has() -> None:
    """Rows beyond would be partitions, transfers and sums of zeros."""
    geometry = shaped((1, 8, 2, 29, 37), (8, 1, 3, 3), padding=(0, 1, 1))
    schedules = (
        scored.schedule for scored in priced(geometry, problems_of(geometry), EmitOptions(), 10_000)
    )
    rows = [(s.wgrad.rows, s.wgrad.lengths[2] or s.slabs.sizes[2]) for s in schedules if s.wgrad]
    assert any(beside > 1 for beside, _ in rows)
    assert all(beside <= held for beside, held in rows)
