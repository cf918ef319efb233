# SPDX-License-Identifier: Apache-2.0
"""dx of 8-bit inputs with pairs of dy's channel blocks in one matmul: right, taken where it pays, only where it may."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from conv3d_codegen.api import EmitOptions, emit, emit_scored, plan
from conv3d_codegen.dtypes import dtype
from conv3d_codegen.geometry import ConvGeometry
from conv3d_codegen.planner import search
from conv3d_codegen.planner.axes import dgrad_axis
from conv3d_codegen.planner.double_row import RowLayout, may_double, paired_block, row_layout
from conv3d_codegen.planner.problem import problems_of
from conv3d_codegen.simulator import simulate
from conv3d_codegen.simulator.tensors import Blank
from conv3d_codegen.targets import TARGETS
from conv3d_codegen.verify import verify_source

if TYPE_CHECKING:
    from conv3d_codegen.api import Kernel
    from conv3d_codegen.planner.search import Scored

PAIRED = "perf_mode=nisa.matmul_perf_mode.double_row"


def shaped(shape: tuple[int, ...], filters: tuple[int, ...], **more: Any) -> ConvGeometry:
    recipe = {"dtype": "fp8_e4m3", "dy_dtype": "fp8_e5m2", "out_dtype": "fp32"}
    return ConvGeometry.from_shapes(shape, filters, **recipe | more)


GEOMETRIES = {
    "one pair": shaped((1, 3, 2, 3, 4), (132, 2, 3, 3), padding=1),
    "two pairs": shaped((1, 5, 4, 5), (260, 3, 3), padding=1),
    "several blocks of dx": shaped((1, 130, 3, 4), (256, 2, 2)),
    "stride phases": shaped((1, 4, 3, 6, 7), (130, 3, 3, 3), padding=1, stride=2),
    "a phase without taps": shaped((1, 4, 6, 7), (130, 1, 1), stride=2),
    "dilated": shaped((1, 4, 7, 9), (134, 3, 2), padding=(2, 2, 1, 0), dilation=2),
    "lopsided padding": shaped((1, 4, 4, 5), (130, 3, 4), padding=(0, 2, 3, 0)),
    "more dx than dy": shaped((1, 4, 6, 6), (130, 4, 4)),
    "more dy than dx": shaped((1, 4, 2, 2), (130, 2, 2), padding=3),
    "one column": shaped((1, 4, 5, 1), (130, 3, 1), padding=(1, 1, 0, 0)),
    "rows longer than a PSUM bank": shaped((1, 2, 2, 600), (130, 1, 3), padding=(0, 1)),
    "no window reads a column": shaped((1, 4, 5), (130, 1), stride=3, padding=(0, 2)),
    "batch": shaped((2, 4, 3, 4), (130, 2, 2)),
    "two cores": shaped((2, 4, 3, 4), (130, 2, 2), lnc=2),
    "channels last": shaped((1, 6, 4, 5), (132, 3, 3), padding=1, layout="NHWC"),
    "filters as they are": shaped((1, 130, 4, 5), (132, 2, 2), filter_layout="OIHW"),
    "transposed": shaped((1, 4, 3, 3), (130, 3, 3), stride=(1, 1), transposed=True),
    "trn3": shaped((1, 4, 4, 5), (130, 3, 3), target="trn3", dy_dtype=""),
}


def paired(geometry: ConvGeometry, budget: float = 10_000) -> list[Scored]:
    """List the schedules with double rows that are priced."""
    priced = search.priced(geometry, problems_of(geometry), EmitOptions(), budget)
    return [s for s in priced if s.schedule.dgrad is not None and s.schedule.dgrad.double_row]


def check(geometry: ConvGeometry, scored: Scored) -> None:
    source = emit_scored(geometry, scored).source
    report = verify_source(source, geometry)
    assert PAIRED in source
    assert not report.violations, scored
    assert all(gradient.exact for gradient in report.gradients), scored


@pytest.mark.parametrize("gradients", [("dx",), ("dx", "dw", "db")], ids=",".join)
@pytest.mark.parametrize("name", GEOMETRIES)
def test_pairs_are_exact(name: str, gradients: tuple[str, ...]) -> None:
    geometry = replace(GEOMETRIES[name], gradients=gradients)
    found = paired(geometry)
    for scored in found[:: max(1, len(found) // 2)]:
        check(geometry, scored)
    assert found


def test_normal_values_stay_within_the_bound() -> None:
    geometry = GEOMETRIES["two pairs"]
    source = emit_scored(geometry, paired(geometry)[0]).source
    report = verify_source(source, geometry, inputs="normal", seed=3)
    assert report.passed, [check.verdict for check in report.gradients]


def test_pairs_are_exact_in_loops() -> None:
    geometry = shaped((6, 4, 5, 4), (130, 3, 3), padding=1)
    rolled = [scored for scored in paired(geometry, budget=200) if scored.schedule.rolled]
    check(geometry, rolled[0])


def test_filters_are_exact_that_do_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conv3d_codegen.planner.dgrad_search.RESIDENT_FILTERS", 0)
    geometry = shaped((1, 4, 3, 4), (260, 2, 2), gradients=("dx",))
    scored = paired(geometry)[0]
    assert scored.schedule.dgrad is not None
    assert not scored.schedule.dgrad.filters_resident
    check(geometry, scored)


def makespan_us(kernel: Kernel, geometry: ConvGeometry) -> float:
    shapes = (geometry.dy_shape, geometry.x_shape, geometry.filter_shape)
    types = (dtype(name).numpy for name in geometry.input_dtypes.values())
    run = simulate(kernel.source, list(map(Blank, shapes, types)), target=geometry.target)
    assert not run.violations
    return run.timeline.makespan_us


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("gradients", "share"), [(("dx",), 0.8), (("dx", "dw", "db"), 0.9)])
def test_pairs_are_taken_where_they_pay(
    target: str, gradients: tuple[str, ...], share: float
) -> None:
    geometry = shaped(
        (1, 256, 4, 14, 14), (256, 3, 3, 3), padding=1, gradients=gradients, target=target
    )
    kernel = emit(geometry)
    assert PAIRED in kernel.source
    assert "double row" in kernel.source.split("@nki.jit")[0]
    assert kernel.plan.to_dict()["schedule"]["dgrad"]["double_row"]
    others = [
        scored
        for scored in search.priced(geometry, problems_of(geometry), EmitOptions(), 10_000)
        if scored.schedule.dgrad is not None and not scored.schedule.dgrad.double_row
    ]
    best = emit_scored(geometry, min(others, key=lambda scored: scored.rank))
    assert makespan_us(kernel, geometry) < share * makespan_us(best, geometry)


def test_pairs_are_left_where_they_do_not_pay() -> None:
    """Without taps there is nothing to gain that rounding dy to 8 bits again would not cost."""
    geometry = shaped((1, 256, 4, 28, 28), (256, 1, 1, 1), gradients=("dx",), out_dtype="bf16")
    assert PAIRED not in emit(geometry).source
    assert "double_row" not in plan(geometry).to_dict()["schedule"]["dgrad"]


def test_the_floor_knows_that_8_bits_are_twice_as_fast() -> None:
    geometry = shaped((1, 256, 8, 16, 16), (256, 3, 3, 3), padding=1, out_dtype="bf16")
    in_16_bits = replace(geometry, dtype="bf16", dy_dtype="", out_dtype="")
    assert plan(geometry).floor_us == pytest.approx(plan(in_16_bits).floor_us / 2)


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "bf16", "dy_dtype": ""},
        {"out_channels": 128},  # one block: nothing to pair
        {"out_channels": 131},  # two equal blocks it does not make
        {"in_channels": 262, "out_channels": 262, "groups": 131},
    ],
)
def test_pairs_need_several_equal_blocks_of_8_bits(change: dict[str, Any]) -> None:
    assert not paired(replace(GEOMETRIES["two pairs"], **change))


def test_pairs_need_dense_rows_of_dy() -> None:
    transposed = shaped((1, 4, 3, 3), (130, 3, 3), stride=2, transposed=True)
    assert not paired(transposed)


def test_pairs_need_a_target_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    geometry = GEOMETRIES["one pair"]
    axes = [dgrad_axis(axis) for axis in geometry.axes]
    assert may_double(geometry, axes)
    without = replace(TARGETS["trn2"], double_row=False)
    monkeypatch.setattr("conv3d_codegen.planner.double_row.target", lambda _: without)
    assert not may_double(geometry, axes)


def test_channels_are_cut_in_an_even_number_of_equal_blocks() -> None:
    assert [paired_block(channels, 128) for channels in (256, 192, 512, 384, 130)] == [
        128,
        96,
        128,
        96,
        65,
    ]
    assert paired_block(257, 128) is None


def test_rows_share_the_zeros_between_them() -> None:
    same = ConvGeometry.from_shapes((1, 1, 14), (1, 3), padding=1)
    assert row_layout(dgrad_axis(same.axes[2]), 0, 14) == RowLayout(lead=1, pitch=15)
    part = row_layout(dgrad_axis(same.axes[2]), 5, 9)
    assert part == RowLayout(lead=0, pitch=6)  # neighbours on both sides exist
    valid = ConvGeometry.from_shapes((1, 1, 10), (1, 3))
    assert row_layout(dgrad_axis(valid.axes[2]), 0, 10) == RowLayout(lead=2, pitch=10)
    pointwise = ConvGeometry.from_shapes((1, 1, 10), (1, 1))
    assert row_layout(dgrad_axis(pointwise.axes[2]), 0, 10) == RowLayout(lead=0, pitch=10)
