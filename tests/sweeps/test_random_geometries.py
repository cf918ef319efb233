# SPDX-License-Identifier: Apache-2.0
"""Kernels of random geometries are exact and break no rule."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conv3d_codegen.verify import verify_geometry
from exactness import assert_exact
from strategies import geometries, paired_geometries

if TYPE_CHECKING:
    from conv3d_codegen.geometry import ConvGeometry

PATIENT = settings(deadline=None, suppress_health_check=list(HealthCheck))


@settings(PATIENT, max_examples=100, derandomize=True)
@given(geometries(features=["gradients"]))
def test_a_hundred_geometries(geometry: ConvGeometry) -> None:
    assert_exact(geometry)


@settings(PATIENT, max_examples=20, derandomize=True)
@given(geometries(max_channels=40), st.sampled_from(["fp16", "fp32"]))
def test_other_element_types(geometry: ConvGeometry, dtype: str) -> None:
    assert_exact(replace(geometry, dtype=dtype, out_dtype=""))


@settings(PATIENT, max_examples=20, derandomize=True)
@given(paired_geometries())
def test_pairs_of_8_bit_channels(geometry: ConvGeometry) -> None:
    assert_exact(geometry)


@settings(PATIENT, max_examples=20, derandomize=True)
@given(geometries(max_channels=40), st.integers(0, 2**32 - 1))
def test_normal_values_stay_within_the_bound(geometry: ConvGeometry, seed: int) -> None:
    report = verify_geometry(geometry, inputs="normal", seed=seed)
    assert report.passed, [result.verdict for result in report.gradients]


@pytest.mark.sweep
@settings(PATIENT, max_examples=300)
@given(paired_geometries())
def test_many_pairs_of_8_bit_channels(geometry: ConvGeometry) -> None:
    assert_exact(geometry)


@pytest.mark.sweep
@settings(PATIENT, max_examples=2000)
@given(geometries(features=["gradients"]))
def test_two_thousand_geometries(geometry: ConvGeometry) -> None:
    assert_exact(geometry)
