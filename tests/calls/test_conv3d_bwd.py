# SPDX-License-Identifier: Apache-2.0
"""`conv3d_bwd` on numpy arrays: right, quick to dispatch, clear about what it refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from conv3d_codegen.calls import backward as backward_module
from conv3d_codegen.calls import conv3d_bwd, run, run_kernel
from conv3d_codegen.dtypes import dtype
from conv3d_codegen.errors import RequestError
from conv3d_codegen.geometry import ConvGeometry
from conv3d_codegen.reference import conv_backward_reference
from conv3d_codegen.verify import make_inputs

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

# What a call may cost before the kernel runs, by the requirement.
MOST_DISPATCH_SECONDS = 50e-6

GEOMETRIES = {
    "plain": ConvGeometry.from_shapes((1, 3, 3, 4, 5), (4, 2, 3, 3), dtype="fp32"),
    "strided": ConvGeometry.from_shapes(
        (2, 4, 5, 6, 4), (3, 3, 3, 2), stride=(2, 1, 2), padding=(0, 1, 1, 2, 0, 1), dtype="fp16"
    ),
    "grouped": ConvGeometry.from_shapes((1, 4, 3, 4, 4), (6, 2, 2, 2), groups=2, dilation=2),
    "2-D": ConvGeometry.from_shapes((1, 3, 5, 6), (4, 3, 3), padding=1),
    "mixed 8-bit floats": ConvGeometry.from_shapes(
        (1, 3, 5, 6), (4, 3, 3), dtype="fp8_e4m3", dy_dtype="fp8_e5m2"
    ),
    "1-D": ConvGeometry.from_shapes((2, 3, 9), (4, 3), stride=2),
}


def operands(geometry: ConvGeometry) -> tuple[Any, Any, Any]:
    inputs = make_inputs(geometry, "integers", seed=1)
    return inputs.dy, inputs.x, inputs.w


def steps(geometry: ConvGeometry) -> dict[str, Any]:
    rank = geometry.rank
    return {
        "stride": geometry.stride[-rank:],
        "padding": list(geometry.padding[-2 * rank :]),
        "dilation": geometry.dilation[-rank:],
        "groups": geometry.groups,
    }


def expected(geometry: ConvGeometry, dy: Any, x: Any, w: Any) -> dict[str, Any]:
    integers = (array.astype(np.int64) for array in (dy, x, w))
    to_type = dtype(geometry.out_dtype).numpy
    reference = conv_backward_reference(geometry, *integers)
    return {name: gradient.astype(to_type) for name, gradient in reference.items()}


@pytest.mark.parametrize("name", GEOMETRIES)
def test_gradients_are_exact(name: str) -> None:
    geometry = GEOMETRIES[name]
    arrays = operands(geometry)
    results = conv3d_bwd(*arrays, **steps(geometry))
    for got, (gradient, right) in zip(results, expected(geometry, *arrays).items(), strict=True):
        assert got.dtype == right.dtype
        np.testing.assert_array_equal(got, right, err_msg=gradient)


def test_gradients_that_are_not_asked_for_are_left_out() -> None:
    geometry = GEOMETRIES["plain"]
    arrays = operands(geometry)
    right = expected(geometry, *arrays)
    dx, db = conv3d_bwd(*arrays, compute_dw=False)
    np.testing.assert_array_equal(dx, right["dx"])
    np.testing.assert_array_equal(db, right["db"])
    dw = conv3d_bwd(*arrays, compute_dx=False, compute_db=False)
    np.testing.assert_array_equal(dw, right["dw"])


def test_other_layouts_go_by_geometry() -> None:
    geometry = ConvGeometry.from_shapes(
        (1, 3, 4, 5), (4, 2, 2), layout="NHWC", filter_layout="OIHW", gradients=("dx", "dw")
    )
    arrays = operands(geometry)
    results = run_kernel(geometry, *arrays)
    for got, right in zip(results, expected(geometry, *arrays).values(), strict=True):
        np.testing.assert_array_equal(got, right)


@pytest.mark.parametrize("batch_first", [(0, 3, 3, 4, 5)])
def test_an_empty_batch_needs_no_kernel(
    batch_first: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backward_module, "runner_for", None)
    x, w = np.zeros(batch_first, np.float32), np.ones((2, 3, 3, 3, 4), np.float32)
    dy = np.zeros((0, 4, 2, 2, 3), np.float32)
    dx, dw, db = conv3d_bwd(dy, x, w)
    assert (dx.shape, dx.dtype) == (x.shape, x.dtype)
    assert (dw.shape, db.shape) == (w.shape, (4,))
    assert not dw.any()
    assert not db.any()
    assert conv3d_bwd(dy, x, w, compute_dx=False, compute_dw=False).shape == (4,)


def test_a_repeated_call_is_dispatched_in_microseconds(
    benchmark: BenchmarkFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    geometry = GEOMETRIES["strided"]
    arrays, how = operands(geometry), steps(geometry)
    monkeypatch.setattr(backward_module, "runner_for", lambda *_, **__: lambda *tensors: tensors)
    backward_module.prepare.cache_clear()
    benchmark.pedantic(conv3d_bwd, arrays, how, rounds=200, iterations=20, warmup_rounds=1)
    backward_module.prepare.cache_clear()
    if benchmark.stats is not None:  # benchmarks are switched off where tests run in parallel
        assert benchmark.stats.stats.median < MOST_DISPATCH_SECONDS


FLOATS = GEOMETRIES["plain"]


@pytest.mark.parametrize(
    ("change", "how", "code", "complaint"),
    [
        ({"dy": (1, 4, 2, 2, 2)}, {}, "wrong-shape", "accepted: 1x4x2x2x3"),
        ({"dy": (2, 4, 2, 2, 3)}, {}, "wrong-shape", "accepted: 1x4x2x2x3"),
        ({"filters": (2, 3, 3, 2, 4)}, {}, "wrong-shape", "accepted: 2x3x3x3x4"),
        ({"filters": (3, 3, 3, 4)}, {}, "wrong-shape", "they differ in rank"),
        ({}, {"stride": (1, 2)}, "wrong-count", "stride 1,2"),
        ({}, {"padding": 1.5}, "not-an-integer", "padding"),
        ({}, {"groups": 2}, "groups", "groups do not divide"),
        ({}, {"compute_dx": 0, "compute_dw": 0, "compute_db": 0}, "nothing-to-compute", "no grad"),
    ],
)
def test_what_does_not_belong_together_is_refused(
    change: dict[str, tuple[int, ...]], how: dict[str, Any], code: str, complaint: str
) -> None:
    shapes = {"dy": FLOATS.dy_shape, "x_in": FLOATS.x_shape, "filters": FLOATS.filter_shape}
    arrays = {name: np.zeros(shape, np.float32) for name, shape in (shapes | change).items()}
    with pytest.raises(RequestError, match=complaint) as caught:
        conv3d_bwd(**arrays, **how)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("types", "code"),
    [
        ((np.float64, np.float64, np.float64), "unknown-dtype"),
        ((np.float32, np.float16, np.float32), "mixed-dtypes"),
    ],
)
def test_dtypes_without_a_kernel_are_refused(types: tuple[Any, ...], code: str) -> None:
    shapes = (FLOATS.dy_shape, FLOATS.x_shape, FLOATS.filter_shape)
    arrays = [np.zeros(shape, kind) for shape, kind in zip(shapes, types, strict=True)]
    with pytest.raises(RequestError) as caught:
        conv3d_bwd(*arrays)
    assert caught.value.code == code


def test_tensors_of_a_framework_need_a_device() -> None:
    with pytest.raises(RequestError, match=r"conv3d_codegen\.torch") as caught:
        run.runner_for(FLOATS, is_numpy=False)
    assert caught.value.code == "no-device"


def test_the_number_of_cores_is_chosen_as_for_nki_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[ConvGeometry] = []

    def runner_for(geometry: ConvGeometry, **_: Any) -> Any:
        seen.append(geometry)
        return lambda *tensors: tensors

    monkeypatch.setattr(backward_module, "runner_for", runner_for)
    backward_module.prepare.cache_clear()
    arrays = operands(FLOATS)
    conv3d_bwd[2](*arrays)
    conv3d_bwd(*arrays)
    backward_module.prepare.cache_clear()
    assert [geometry.lnc for geometry in seen] == [2, 1]


def test_a_kernel_that_breaks_a_rule_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    geometry = ConvGeometry.from_shapes((1, 3, 3, 4, 5), (4, 1, 3, 3), dtype="fp32")
    broken = run.find_source(geometry).replace("accumulate=False", "accumulate=True")
    monkeypatch.setattr(run, "find_source", lambda _: broken)
    run.simulator_runner.cache_clear()
    with pytest.raises(RequestError, match=r"\[accumulate-before-open\]") as caught:
        run_kernel(geometry, *operands(geometry))
    run.simulator_runner.cache_clear()
    assert caught.value.code == "kernel-rejected"
