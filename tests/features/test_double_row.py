# SPDX-License-Identifier: Apache-2.0
"""Double rows of 8-bit inputs: right, taken where they pay, and only where they may be.

In dx a matmul contracts two blocks of dy's channels, in dw two positions of every partition.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from conv3d_codegen.api import EmitOptions, emit, emit_scored, plan
from conv3d_codegen.dtypes import dtype
from conv3d_codegen.geometry import ConvGeometry
from conv3d_codegen.planner import search
from conv3d_codegen.planner.axes import dgrad_axis
from conv3d_codegen.planner.correlation import correlation_axis
from conv3d_codegen.planner.double_row import RowLayout, may_double, paired_block, row_layout
from conv3d_codegen.planner.estimate import paired_steps, wgrad_counts
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


# More positions than partitions, so that some partitions have several.
POSITIONS = {
    "columns": shaped((1, 130, 3, 50), (132, 3, 3), padding=1),
    "samples": shaped((6, 130, 5, 6), (132, 1, 1)),
    "planes": shaped((1, 100, 6, 5, 6), (130, 1, 3, 3), padding=(0, 1, 1)),
    "no taps along H": shaped((1, 100, 6, 5, 6), (130, 3, 1, 3), padding=(1, 0, 1)),
    "few channels": shaped((1, 20, 9, 20), (70, 3, 3)),
    "an odd number": shaped((5, 90, 7, 7), (88, 2, 2)),
    "strided": shaped((1, 130, 25, 23), (130, 3, 3), padding=1, stride=2),
    "dilated": shaped((2, 130, 11, 12), (130, 2, 2), dilation=2),
    "dilated and strided": shaped((3, 130, 17, 17), (130, 2, 2), dilation=2, stride=2),
    "lopsided padding": shaped((2, 100, 9, 10), (130, 3, 4), padding=(0, 2, 3, 0)),
    "more columns than a PSUM bank": shaped((3, 520, 7, 9), (90, 1, 2)),
    "channels last": shaped((2, 96, 9, 10), (132, 3, 3), padding=1, layout="NHWC"),
    "two cores": shaped((6, 130, 8, 8), (130, 2, 2), lnc=2),
    "transposed": shaped((2, 130, 9, 10), (130, 2, 3), stride=2, transposed=True),
    "trn3": shaped((2, 130, 9, 10), (130, 3, 3), target="trn3", dy_dtype=""),
}


def priced(geometry: ConvGeometry, budget: float = 10_000) -> list[Scored]:
    return list(search.priced(geometry, problems_of(geometry), EmitOptions(), budget))


def paired(geometry: ConvGeometry, budget: float = 10_000) -> list[Scored]:
    """List the schedules whose dx contracts two blocks of channels."""
    found = priced(geometry, budget)
    return [s for s in found if s.schedule.dgrad is not None and s.schedule.dgrad.double_row]


def pairing_positions(geometry: ConvGeometry, budget: float = 10_000) -> list[Scored]:
    """List the schedules whose dw contracts two positions."""
    found = priced(geometry, budget)
    return [s for s in found if s.schedule.wgrad and s.schedule.wgrad.pair_axis is not None]


def check(geometry: ConvGeometry, scored: Scored) -> str:
    source = emit_scored(geometry, scored).source
    report = verify_source(source, geometry)
    assert not report.violations, scored
    assert all(gradient.exact for gradient in report.gradients), scored
    return source


@pytest.mark.parametrize("gradients", [("dx",), ("dx", "dw", "db")], ids=",".join)
@pytest.mark.parametrize("name", GEOMETRIES)
def test_pairs_of_channels_are_exact(name: str, gradients: tuple[str, ...]) -> None:
    geometry = replace(GEOMETRIES[name], gradients=gradients)
    found = paired(geometry)
    assert found
    for scored in found[:: max(1, len(found) // 2)]:
        assert PAIRED in check(geometry, scored)


@pytest.mark.parametrize("name", POSITIONS)
def test_pairs_of_positions_are_exact(name: str) -> None:
    geometry = replace(POSITIONS[name], gradients=("dw", "db"))
    found = pairing_positions(geometry)
    assert found
    texts = [check(geometry, scored) for scored in found[:: max(1, len(found) // 4)]]
    assert any(PAIRED in text for text in texts)


@pytest.mark.parametrize("axis", range(4), ids="NDHW".__getitem__)
def test_positions_are_paired_along_any_axis(axis: int) -> None:
    geometry = shaped((3, 96, 5, 5, 7), (90, 1, 1, 1), stride=2, gradients=("dw",))
    scored = priced(geometry)[0]
    assert scored.schedule.wgrad is not None
    wgrad = replace(scored.schedule.wgrad, lengths=(0, 0, 0, 0), pair_axis=axis)
    forced = replace(scored, schedule=replace(scored.schedule, wgrad=wgrad))
    assert PAIRED in check(geometry, forced)


def test_normal_values_stay_within_the_bound() -> None:
    geometry = shaped((1, 130, 4, 6), (260, 3, 3), padding=1)
    scored = next(s for s in paired(geometry) if s in pairing_positions(geometry))
    report = verify_source(emit_scored(geometry, scored).source, geometry, inputs="normal", seed=3)
    assert report.passed, [check.verdict for check in report.gradients]


def test_pairs_are_exact_in_loops() -> None:
    geometry = shaped((12, 130, 9, 16), (132, 3, 3), padding=1)
    for found in (paired(geometry, 300), pairing_positions(geometry, 300)):
        rolled = [scored for scored in found if scored.schedule.rolled]
        assert PAIRED in check(geometry, rolled[0])


def test_filters_are_exact_that_do_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conv3d_codegen.planner.dgrad_search.RESIDENT_FILTERS", 0)
    geometry = shaped((1, 4, 3, 4), (260, 2, 2), gradients=("dx",))
    scored = paired(geometry)[0]
    assert scored.schedule.dgrad is not None
    assert not scored.schedule.dgrad.filters_resident
    assert PAIRED in check(geometry, scored)


def makespan_us(kernel: Kernel, geometry: ConvGeometry) -> float:
    shapes = (geometry.dy_shape, geometry.x_shape, geometry.filter_shape)
    types = (dtype(name).numpy for name in geometry.input_dtypes.values())
    run = simulate(kernel.source, list(map(Blank, shapes, types)), target=geometry.target)
    assert not run.violations
    return run.timeline.makespan_us


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("gradients", [("dx",), ("dw",), ("dx", "dw", "db")], ids=",".join)
def test_pairs_are_taken_where_they_pay(target: str, gradients: tuple[str, ...]) -> None:
    geometry = shaped(
        (1, 256, 4, 14, 14), (256, 3, 3, 3), padding=1, gradients=gradients, target=target
    )
    kernel = emit(geometry)
    assert PAIRED in kernel.source
    assert "double row" in kernel.source.split("@nki.jit")[0]
    others = [
        scored
        for scored in priced(geometry)
        if not (scored.schedule.dgrad and scored.schedule.dgrad.double_row)
        and not (scored.schedule.wgrad and scored.schedule.wgrad.pair_axis is not None)
    ]
    best = emit_scored(geometry, min(others, key=lambda scored: scored.rank))
    assert makespan_us(kernel, geometry) < 0.8 * makespan_us(best, geometry)


def test_pairs_are_left_where_they_do_not_pay() -> None:
    """Without taps there is nothing to gain that rounding dy to 8 bits again would not cost."""
    geometry = shaped((1, 256, 4, 28, 28), (256, 1, 1, 1), gradients=("dx",), out_dtype="bf16")
    assert PAIRED not in emit(geometry).source


def test_plans_name_pairs_only_where_there_are_some() -> None:
    """Digests of plans must not change for kernels that stay the same."""
    geometry = shaped((1, 256, 4, 14, 14), (256, 3, 3, 3), padding=1)
    with_pairs = plan(geometry).to_dict()["schedule"]
    assert with_pairs["dgrad"]["double_row"]
    assert with_pairs["wgrad"]["pair_axis"] in range(4)
    without = plan(replace(geometry, dtype="bf16", dy_dtype="")).to_dict()["schedule"]
    assert "double_row" not in without["dgrad"]
    assert "pair_axis" not in without["wgrad"]


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


def test_positions_are_paired_in_8_bits_and_one_group_at_a_time() -> None:
    geometry = shaped((1, 130, 3, 8, 8), (130, 1, 3, 3), padding=1, gradients=("dw",))
    assert pairing_positions(geometry)
    assert not pairing_positions(replace(geometry, dtype="bf16", dy_dtype=""))
    grouped = replace(geometry, in_channels=96, out_channels=96, groups=12)
    assert all(scored.problem.groups == 1 for scored in pairing_positions(grouped))


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


def test_steps_take_two_valid_entries_at_once() -> None:
    (_, _, axis) = ConvGeometry.from_shapes((1, 1, 7), (1, 3), padding=1).axes
    shifted = correlation_axis(axis, "wide")
    assert wgrad_counts(shifted, 7, 0).pairs == 6 + 7 + 6
    assert paired_steps(shifted, 7, 0) == 3 + 4 + 3
    assert paired_steps(shifted, 7, 4) == 3 * 2  # in two groups, whose borders are zeros
    assert paired_steps(shifted, 4, 0) == (2 + 2 + 2) + (2 + 2 + 1)
