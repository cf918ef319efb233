# SPDX-License-Identifier: Apache-2.0
"""The reference agrees with the definition, written once more as plain loops."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conv3d_codegen.dtypes import DTYPES, dtype
from conv3d_codegen.geometry import ConvGeometry
from conv3d_codegen.reference import conv_backward_reference, float_bound
from strategies import FEATURES, geometries

Array = np.ndarray[Any, np.dtype[Any]]


def random_integers(geometry: ConvGeometry, seed: int, magnitude: int = 9) -> tuple[Array, ...]:
    random = np.random.default_rng(seed)
    shapes = (geometry.dy_shape, geometry.x_shape, geometry.filter_shape)
    return tuple(random.integers(-magnitude, magnitude, shape, endpoint=True) for shape in shapes)


def small(geometry: ConvGeometry) -> bool:
    """Few enough products for plain Python."""
    sizes = (*geometry.output_size, *geometry.kernel_size)
    return geometry.batch * int(np.prod(sizes)) * geometry.filter_shape[-1] < 20_000


def loops(geometry: ConvGeometry, dy: Array, x: Array, w: Array) -> dict[str, Array]:
    """Visit every product of the forward pass and hand its gradients on. NCDHW and OIDHW only."""
    dx, dw = np.zeros_like(x), np.zeros_like(w)
    per_group = geometry.in_channels // geometry.groups, geometry.out_channels // geometry.groups
    axes = range(3)
    for o in product(*map(range, dy.shape[2:])):
        for t in product(*map(range, geometry.kernel_size)):
            i = tuple(
                o[a] * geometry.stride[a] + t[a] * geometry.dilation[a] - geometry.padding[2 * a]
                for a in axes
            )
            if not all(0 <= i[a] < geometry.input_size[a] for a in axes):
                continue
            for n, co, c in product(*map(range, (geometry.batch, dy.shape[1], per_group[0]))):
                ci = co // per_group[1] * per_group[0] + c
                dx[(n, ci, *i)] += dy[(n, co, *o)] * w[(co, c, *t)]
                dw[(co, c, *t)] += dy[(n, co, *o)] * x[(n, ci, *i)]
    return {"dx": dx, "dw": dw, "db": dy.sum((0, 2, 3, 4))}


@settings(max_examples=40)
@given(geometries(["groups"], max_channels=6).filter(small), st.integers(0, 99))
def test_ordinary_convolutions_follow_the_definition(geometry: ConvGeometry, seed: int) -> None:
    dy, x, w = random_integers(geometry, seed)
    expected = loops(geometry, dy, x, w.transpose(4, 3, 0, 1, 2))
    expected["dw"] = expected["dw"].transpose(2, 3, 4, 1, 0)
    found = conv_backward_reference(geometry, dy, x, w)
    assert list(found) == ["dx", "dw", "db"]
    for name, gradient in found.items():
        assert gradient.dtype == np.int64
        np.testing.assert_array_equal(gradient, expected[name], err_msg=name)


@settings(max_examples=60)
@given(geometries(FEATURES, max_channels=12))
def test_results_have_the_shapes_and_names_of_the_kernel(geometry: ConvGeometry) -> None:
    found = conv_backward_reference(geometry, *random_integers(geometry, 0))
    shapes = {"dx": geometry.dx_shape, "dw": geometry.dw_shape, "db": geometry.db_shape}
    assert {name: array.shape for name, array in found.items()} == {
        name: shapes[name] for name in geometry.gradients
    }


@pytest.mark.parametrize("name", ["dx", "dw"])
def test_integers_past_what_float64_holds_stay_exact(name: str) -> None:
    geometry = ConvGeometry.from_shapes((1, 1, 1), (1, 1), gradients=(name,))
    dy, x, w = (np.full((1, 1, 1), value) for value in (2**31 + 1, 2**31 - 1, 2**31 - 1))
    assert conv_backward_reference(geometry, dy, x, w)[name].item() == 2**62 - 1


def _rounded(array: Array, bits: int) -> Array:
    """Round float32 values to so many significand bits, ties to even."""
    mantissa, exponent = np.frexp(array)
    return np.ldexp(np.rint(np.ldexp(mantissa, bits)), exponent - bits)


@pytest.mark.parametrize("name", ["dx", "dw", "db"])
@pytest.mark.parametrize("out_dtype", sorted(DTYPES))
@pytest.mark.parametrize(("math", "bits"), [("full", 24), ("tf32", 11), ("bf16", 8)])
def test_the_bound_holds_for_fp32_sums_and_is_not_far_above(
    name: str, out_dtype: str, math: str, bits: int
) -> None:
    geometry = ConvGeometry.from_shapes(
        (2, 6, 7, 8), (4, 3, 3), padding=1, dtype="fp32", out_dtype=out_dtype, math=math
    )
    random = np.random.default_rng(0)
    shapes = (geometry.dy_shape, geometry.x_shape, geometry.filter_shape)
    exact = [random.standard_normal(shape, np.float32) / 4 for shape in shapes]
    narrowed = [_rounded(array, bits) for array in exact]
    if name == "db":
        narrowed[0] = exact[0]
    # In float64 nothing but the narrowing is lost; the sum in fp32 is modelled by one rounding.
    computed = conv_backward_reference(geometry, *narrowed)[name].astype(np.float32)
    got = computed.astype(dtype(out_dtype).numpy).astype(np.float64)
    wide = [array.astype(np.float64) for array in exact]
    error = np.abs(got - conv_backward_reference(geometry, *wide)[name])
    bound = float_bound(geometry, name, *wide)
    assert bound.shape == error.shape
    assert np.all(error <= bound)
    if out_dtype in {"fp8_e4m3", "fp8_e5m2", "bf16"}:
        assert error.max() > 0.05 * bound.max()  # rounding the result dominates: the bound is tight


def test_the_bound_catches_a_sum_kept_in_bf16() -> None:
    geometry = ConvGeometry.from_shapes((1, 1, 4096), (1, 1), gradients=("dw",), out_dtype="fp32")
    # Terms of one sign: each is soon below half a unit in the last place of the sum.
    dy, x = np.random.default_rng(1).uniform(1, 2, (2, 1, 1, 4096))
    w = np.ones((1, 1, 1))
    bf16 = dtype("bf16").numpy
    total = np.zeros((), bf16)
    for term in (dy * x).ravel():
        total = (total.astype(np.float64) + term).astype(bf16)
    error = abs(float(total) - conv_backward_reference(geometry, dy, x, w)["dw"].item())
    assert error > float_bound(geometry, "dw", dy, x, w).item()
