# SPDX-License-Identifier: Apache-2.0
"""Hardware loops along every axis give the same results as unrolled text, and keep within the budget."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from conv3d_codegen.api import EmitOptions, emit, emit_scored, plan
from conv3d_codegen.geometry import ConvGeometry
from conv3d_codegen.lower import budget
from conv3d_codegen.planner.grid import slab_groups
from conv3d_codegen.planner.problem import problems_of
from conv3d_codegen.planner.search import choose, priced
from conv3d_codegen.verify import verify_geometry, verify_source

if TYPE_CHECKING:
    from conv3d_codegen.planner.search import Choice, Scored

BASE = ConvGeometry(
    batch=1,
    in_channels=3,
    out_channels=4,
    input_size=(1, 1, 1),
    kernel_size=(3, 3, 3),
    padding=(1, 1, 1, 1, 1, 1),
)
PLANAR = replace(BASE, kernel_size=(1, 3, 3), padding=(0, 0, 1, 1, 1, 1))
POINTWISE = replace(BASE, kernel_size=(1, 1, 1), padding=(0, 0, 0, 0, 0, 0))

# What is rolled, and a geometry on which that is possible.
KINDS: dict[str, tuple[tuple[int, ...], ConvGeometry]] = {
    "samples": ((0,), replace(BASE, batch=4, input_size=(3, 5, 5))),
    "planes": ((1,), replace(BASE, input_size=(18, 4, 4))),
    "planes, stride 2": ((1,), replace(BASE, input_size=(18, 5, 4), stride=(2, 2, 1))),
    "rows": ((2,), replace(PLANAR, input_size=(1, 18, 5))),
    "columns": ((3,), replace(PLANAR, input_size=(1, 1, 12))),
    "a line": ((3,), replace(POINTWISE, input_size=(6, 5, 7), in_channels=70)),
    "samples and planes": ((0, 1), replace(BASE, batch=3, input_size=(18, 3, 3))),
    "planes and rows": ((1, 2), replace(BASE, input_size=(18, 18, 3))),
    "channels last": ((0, 1), replace(BASE, batch=2, input_size=(18, 3, 3), layout="NDHWC")),
    "dilation": ((1,), replace(BASE, input_size=(20, 4, 3), dilation=(2, 1, 1))),
    "groups": ((0,), replace(BASE, batch=3, in_channels=8, out_channels=8, groups=4, input_size=(2, 4, 4))),
    "depthwise": ((0,), replace(BASE, batch=3, in_channels=8, out_channels=8, groups=8, input_size=(2, 4, 4))),
    "transposed": ((0,), replace(BASE, batch=3, input_size=(2, 3, 3), stride=(2, 2, 1), transposed=True)),
    "two cores": ((0,), replace(BASE, batch=8, input_size=(2, 4, 4), lnc=2)),
    "fp32": ((0,), replace(BASE, batch=3, input_size=(3, 4, 4), dtype="fp32")),
    "only dx": ((0,), replace(BASE, batch=3, input_size=(3, 4, 4), gradients=("dx",))),
    "only db": ((0,), replace(BASE, batch=3, input_size=(3, 4, 4), gradients=("db",))),
}  # fmt: skip


def schedules_of_kind(geometry: ConvGeometry, rolled: tuple[int, ...]) -> list[Scored]:
    """Find the schedules with the loops wanted: with no instructions allowed, everything is rolled."""
    found = [
        scored
        for scored in priced(geometry, problems_of(geometry), EmitOptions(), 1)
        if scored.schedule.rolled == rolled
    ]
    assert found, "no schedule rolls these axes"
    return sorted(found, key=lambda scored: scored.work.instructions)


@pytest.mark.parametrize("kind", KINDS)
def test_loops_are_exact(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rolled, geometry = KINDS[kind]
    scored = schedules_of_kind(geometry, rolled)[0]

    def forced(*arguments: object) -> Choice:
        choice = choose(*arguments)  # type: ignore[arg-type]  # handed through
        return replace(choice, problem=scored.problem, schedule=scored.schedule)

    monkeypatch.setattr(budget, "choose", forced)
    kernel = emit(geometry)
    report = verify_source(kernel.source, geometry)
    assert not report.violations
    assert all(check.exact for check in report.gradients)
    assert "nl.fori_loop(" in kernel.source
    counts, run = kernel.plan.counts, report.run.counts
    assert run.text == counts.instructions * geometry.lnc
    assert run.executed == counts.executed * geometry.lnc
    assert run.executed > run.text


@pytest.mark.parametrize("together", [2, 3])
@pytest.mark.parametrize(
    ("rolled", "geometry"),
    [
        ((0,), replace(BASE, batch=8, input_size=(2, 4, 4))),
        ((1,), replace(BASE, input_size=(22, 4, 4))),
        ((1,), replace(BASE, input_size=(22, 4, 4), stride=(2, 1, 1), transposed=True)),
        ((0, 1), replace(BASE, batch=2, input_size=(22, 3, 3))),
    ],
    ids=["samples", "planes", "planes, transposed", "samples and planes"],
)
def test_iterations_of_several_slabs_are_exact(
    rolled: tuple[int, ...], geometry: ConvGeometry, together: int
) -> None:
    """Also where they do not divide the run: then the rest stands alone."""
    scored = schedules_of_kind(geometry, rolled)[-1]  # of the most slabs
    scored = replace(scored, schedule=replace(scored.schedule, together=together))
    groups = slab_groups(scored.problem, scored.schedule)
    assert any(group.iterations > 1 and len(group.slabs) >= together for group in groups)
    report = verify_source(emit_scored(geometry, scored).source, geometry)
    assert not report.violations
    assert all(check.exact for check in report.gradients)


def test_iterations_take_as_many_slabs_as_the_budget_allows() -> None:
    """Between iterations the engines meet, so that fewer of them are faster."""
    geometry = replace(BATCH, batch=24)
    short, long = (
        plan(geometry, EmitOptions(max_instructions=most)).schedule for most in (200, 420)
    )
    assert short.rolled == long.rolled == (0,)
    assert short.together < long.together


BATCH = replace(BASE, batch=9, in_channels=8, out_channels=8, input_size=(3, 6, 6))


def test_loops_keep_text_within_the_budget() -> None:
    options = EmitOptions(max_instructions=200)
    assert plan(BATCH, EmitOptions(unroll="full")).counts.instructions > 200
    kernel = emit(BATCH, options)
    assert kernel.plan.schedule.rolled
    assert kernel.plan.counts.instructions <= 200
    assert verify_geometry(BATCH, options).passed
    assert emit(BATCH, options).digest == kernel.digest


def test_short_text_is_not_rolled() -> None:
    assert "fori_loop" not in emit(BATCH).source


def test_rolled_and_unrolled_results_agree() -> None:
    rolled = verify_geometry(BATCH, EmitOptions(max_instructions=200), inputs="normal")
    flat = verify_geometry(BATCH, EmitOptions(unroll="full"), inputs="normal")
    assert rolled.passed
    assert flat.passed
    assert rolled.run.counts.text < flat.run.counts.text
