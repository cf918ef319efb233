# SPDX-License-Identifier: Apache-2.0
"""Every schedule that the search compares gives an exact kernel, not only the one it takes."""

from __future__ import annotations

from collections import defaultdict
from itertools import chain, zip_longest
from typing import TYPE_CHECKING

import pytest

from conv3d_codegen.api import EmitOptions, emit_scored
from conv3d_codegen.geometry import ConvGeometry
from conv3d_codegen.planner import search
from conv3d_codegen.planner.problem import problems_of
from conv3d_codegen.verify import verify_source

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from conv3d_codegen.planner.search import Scored

shaped = ConvGeometry.from_shapes
SMALL = {
    "ordinary": shaped((2, 40, 4, 6, 7), (72, 3, 3, 3), padding=1),
    "many channels": shaped((1, 136, 3, 5, 5), (130, 3, 3, 3), padding=1),
    "few channels": shaped((1, 3, 5, 9, 10), (8, 3, 3, 3), padding=1),
    "strided": shaped((1, 12, 5, 9, 9), (24, 3, 3, 3), padding=1, stride=2),
    "pointwise": shaped((2, 24, 3, 6, 8), (40, 1, 1, 1)),
    "line": shaped((2, 20, 50), (24, 5), padding=2),
    "long filters": shaped((1, 2, 101), (130, 100)),
    "pairs of 8-bit channels": shaped(
        (1, 12, 2, 5, 6), (192, 2, 3, 3), padding=1, dtype="fp8_e4m3", out_dtype="fp32"
    ),
    "pairs of 8-bit positions": shaped(
        (2, 96, 2, 5, 6), (90, 1, 3, 3), padding=(0, 1, 1), dtype="fp8_e5m2", out_dtype="fp32"
    ),
    "grouped": shaped((1, 24, 4, 6, 6), (24, 3, 3, 3), padding=1, groups=6),
    "depthwise": shaped((1, 24, 4, 6, 6), (24, 3, 3, 3), padding=1, groups=24),
    "transposed": shaped((1, 12, 3, 4, 5), (16, 2, 3, 3), stride=2, transposed=True),
    "channels last": shaped((1, 16, 4, 6, 8), (24, 3, 3, 3), padding=1, layout="NDHWC"),
}
LONG_TEXT, SHORT_TEXT = 10_000, 300  # instructions: the second makes loops
TIGHT_SBUF = 12 * 1024  # bytes per partition that leave no room to weave or to keep all sums


def kind(scored: Scored) -> Hashable:
    """Tell what a schedule does differently from others, apart from sizes."""
    schedule = scored.schedule
    dgrad, wgrad = schedule.dgrad, schedule.wgrad
    return (
        scored.problem.groups,
        schedule.dy_fold,
        schedule.x_fold,
        dgrad and tuple((axis.blocked, axis.rows, axis.step) for axis in dgrad.axes),
        dgrad and (dgrad.double_row, *(way.beside for way in dgrad.ways)),
        wgrad and (wgrad.moving, wgrad.stationary_axis, wgrad.pair_axis, wgrad.rows > 1),
        schedule.woven,
        schedule.dx_last,
        schedule.filters_late,
        schedule.loads_ahead,
        schedule.together > 1,
        schedule.chains_per_pass > 1,
        schedule.rolled,
    )


def sample(geometry: ConvGeometry, most: int) -> Iterator[Scored]:
    """Yield up to so many schedules: one of every kind first, or kinds spread evenly."""
    kinds = defaultdict(list)
    seen = set()
    problems = problems_of(geometry)
    for scored in chain.from_iterable(
        search.priced(geometry, problems, EmitOptions(), budget)
        for budget in (LONG_TEXT, SHORT_TEXT)
    ):
        if (identity := (scored.problem, scored.schedule)) not in seen:
            seen.add(identity)
            kinds[kind(scored)].append(scored)
    rounds = [[s for s in row if s is not None] for row in zip_longest(*kinds.values())]
    for row in rounds:
        step = max(1, len(row) // most)
        taken = row[::step][:most]
        yield from taken
        most -= len(taken)
        if most == 0:
            return


def check(geometry: ConvGeometry, most: int) -> None:
    checked = 0
    for scored in sample(geometry, most):
        report = verify_source(emit_scored(geometry, scored).source, geometry)
        assert not report.violations, scored
        assert all(gradient.exact for gradient in report.gradients), scored
        checked += 1
    assert checked


@pytest.fixture(params=["ample", "tight"])
def sbuf(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the search plan with all of SBUF, or with little."""
    if request.param == "tight":
        monkeypatch.setattr(search, "SBUF_BUDGET", TIGHT_SBUF)


@pytest.mark.usefixtures("sbuf")
@pytest.mark.parametrize("name", SMALL)
def test_some_candidates_of_each_class(name: str) -> None:
    check(SMALL[name], 3)


@pytest.mark.parametrize("layout", ["NCDHW", "NDHWC"])
def test_no_row_counts_in_two_slabs(layout: str) -> None:
    """Padding shifts where slabs cut x, so pieces of two rows once ended inside the next slab."""
    padding = (1, 1, 0, 0, 0, 0)
    check(shaped((1, 2, 4, 1, 1), (2, 3, 1, 1), padding=padding, layout=layout), 1000)


@pytest.mark.sweep
@pytest.mark.usefixtures("sbuf")
@pytest.mark.parametrize("name", SMALL)
def test_candidates_of_each_class(name: str) -> None:
    check(SMALL[name], 150)
