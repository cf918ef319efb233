# SPDX-License-Identifier: Apache-2.0
"""Element types of inputs and results, and how much of fp32 matmuls keep."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from conv3d_codegen.api import emit
from conv3d_codegen.dtypes import DTYPES, compute_dtype
from conv3d_codegen.geometry import ConvGeometry
from conv3d_codegen.simulator import simulate
from conv3d_codegen.verify import verify_geometry
from exactness import assert_exact

BASE = ConvGeometry(
    batch=2,
    in_channels=10,
    out_channels=12,
    input_size=(3, 5, 6),
    kernel_size=(2, 3, 3),
    padding=(1, 0, 1, 1, 1, 1),
)


@pytest.mark.parametrize(("dtype", "out_dtype"), list(product(DTYPES, DTYPES)))
def test_every_pair_of_types_is_exact(dtype: str, out_dtype: str) -> None:
    assert_exact(replace(BASE, dtype=dtype, out_dtype=out_dtype))


@pytest.mark.parametrize("math", ["tf32", "bf16"])
def test_narrower_math_is_exact_on_small_integers(math: str) -> None:
    assert_exact(replace(BASE, dtype="fp32", out_dtype="", math=math))


@pytest.mark.parametrize("math", ["full", "tf32", "bf16"])
def test_normal_values_stay_within_the_bound_of_the_math(math: str) -> None:
    report = verify_geometry(
        replace(BASE, dtype="fp32", out_dtype="", math=math), inputs="normal", seed=1
    )
    assert report.passed, [check.verdict for check in report.gradients]


def test_narrower_math_multiplies_what_it_says() -> None:
    source = emit(replace(BASE, dtype="fp32", out_dtype="", math="tf32", gradients=("dx",))).source
    assert "nl.tfloat32" in source
    source = emit(replace(BASE, dtype="fp32", out_dtype="", math="bf16", gradients=("dx",))).source
    assert "nl.bfloat16" in source


def test_db_keeps_fp32_whatever_the_math() -> None:
    """Db multiplies nothing, so a narrower matmul must not cost it any bits."""
    geometry = replace(BASE, dtype="fp32", out_dtype="", math="bf16")
    random = np.random.default_rng(0)
    shapes = geometry.dy_shape, geometry.x_shape, geometry.filter_shape
    dy, x, w = (random.integers(0, 2**14, shape).astype(np.float32) for shape in shapes)
    db = simulate(emit(geometry).source, (dy, x, w)).outputs[2]
    assert np.array_equal(db, dy.sum(axis=(0, 2, 3, 4), dtype=np.float64))


@pytest.mark.parametrize(("x", "dy", "filters"), list(product(("fp8_e4m3", "fp8_e5m2"), repeat=3)))
def test_8_bit_types_may_be_mixed(x: str, dy: str, filters: str) -> None:
    """Loads cast either type to bf16, which holds all values of both."""
    mixed = replace(BASE, dtype=x, dy_dtype=dy, filter_dtype=filters, out_dtype="fp32")
    assert_exact(mixed)
    report = verify_geometry(mixed, inputs="normal", seed=2)
    assert report.passed, [check.verdict for check in report.gradients]


def test_kernels_say_which_input_has_another_type() -> None:
    source = emit(replace(BASE, dtype="fp8_e4m3", dy_dtype="fp8_e5m2", out_dtype="bf16")).source
    assert "fp8_e4m3 with dy in fp8_e5m2 to bf16" in source


def test_8_bit_inputs_are_computed_in_a_type_that_holds_their_values() -> None:
    for name in ("fp8_e4m3", "fp8_e5m2"):
        every = np.arange(256, dtype=np.uint8).view(DTYPES[name].numpy).astype(np.float32)
        held = every.astype(DTYPES[compute_dtype(name, "full")].numpy).astype(np.float32)
        assert np.array_equal(every, held, equal_nan=True)
