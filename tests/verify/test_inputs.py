# SPDX-License-Identifier: Apache-2.0
"""Integer inputs keep every sum exact, and are large enough to expose a narrow accumulator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from conv3d_codegen.dtypes import DTYPES, dtype
from conv3d_codegen.errors import RequestError
from conv3d_codegen.geometry import ConvGeometry
from conv3d_codegen.reference import conv_backward_reference
from conv3d_codegen.verify import make_inputs, verify_source
from conv3d_codegen.verify.inputs import EXACT_SUM_LIMIT, integer_magnitude
from hand_written import KERNEL
from strategies import FEATURES, geometries

SMALL = ConvGeometry.from_shapes((1, 4, 1, 1, 6), (8, 1, 1, 2))


@settings(max_examples=50, deadline=None)
@given(geometries(features=FEATURES, max_channels=8))
def test_magnitudes_of_the_terms_add_up_to_less_than_fp32_holds(geometry: ConvGeometry) -> None:
    operands = make_inputs(geometry, "integers", seed=0)
    terms = [np.abs(array.astype(np.int64)) for array in (operands.dy, operands.x, operands.w)]
    sums = conv_backward_reference(geometry, *terms)
    assert all(values.max() < EXACT_SUM_LIMIT for values in sums.values())


@pytest.mark.parametrize("name", DTYPES)
def test_integers_are_representable_and_use_the_range(name: str) -> None:
    operands = make_inputs(replace(SMALL, dtype=name, out_dtype="fp32"), "integers", seed=3)
    assert operands.dy.dtype == dtype(name).numpy
    values = operands.w.astype(np.float64)
    assert np.array_equal(values, np.rint(values))
    assert 2 <= np.abs(values).max() <= 15


def test_every_input_has_its_own_type() -> None:
    recipe = replace(SMALL, dtype="fp8_e4m3", dy_dtype="fp8_e5m2", out_dtype="fp32")
    operands = make_inputs(recipe, "integers", seed=3)
    types = [array.dtype for array in (operands.dy, operands.x, operands.w)]
    assert types == [dtype(name).numpy for name in ("fp8_e5m2", "fp8_e4m3", "fp8_e4m3")]
    assert np.abs(operands.x.astype(np.float64)).max() <= 8  # e5m2 holds no more integers in a row


def test_long_reductions_get_smaller_integers_then_an_error() -> None:
    def magnitude(width: int) -> int:
        gradients = ("dw",)
        wide = ConvGeometry.from_shapes((1, 1, 1, 1, width), (1, 1, 1, 1), gradients=gradients)
        return integer_magnitude(wide)

    assert magnitude(100) == 15
    assert magnitude(1_000_000) == 4
    assert magnitude(EXACT_SUM_LIMIT - 1) == 1
    with pytest.raises(RequestError, match="reduction-too-long"):
        magnitude(EXACT_SUM_LIMIT)


def test_same_seed_same_inputs() -> None:
    first, again, other = (make_inputs(SMALL, "normal", seed) for seed in (1, 1, 2))
    assert np.array_equal(first.x, again.x)
    assert not np.array_equal(first.x, other.x)


def test_partial_sums_staged_in_bf16_are_found_out() -> None:
    staged = (
        KERNEL.replace(
            "stationary=tap1, moving=rows[0:8, 0:6], accumulate=True",
            "stationary=tap1, moving=rows[0:8, 0:6], accumulate=False",
        )
        .replace(
            "    nisa.nc_matmul(dst=acc, stationary=tap1",
            '    part = nl.ndarray((4, 6), dtype=nl.bfloat16, buffer=nl.sbuf, name="part")\n'
            "    nisa.tensor_copy(dst=part, src=acc)\n"
            "    nisa.nc_matmul(dst=acc, stationary=tap1",
        )
        .replace(
            "nisa.tensor_copy(dst=out, src=acc)",
            "nisa.tensor_tensor(dst=out, data1=acc, data2=part, op=nl.add)",
        )
    )
    report = verify_source(staged)
    assert not report.violations
    assert report.gradients[0].wrong_elements > 0
