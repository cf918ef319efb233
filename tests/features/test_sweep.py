# SPDX-License-Identifier: Apache-2.0
"""Random geometries of every feature and of every pair of features: exact, and no rule broken."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exactness import assert_exact
from strategies import FEATURES, geometries

if TYPE_CHECKING:
    from conv3d_codegen.geometry import ConvGeometry

PATIENT = settings(deadline=None, suppress_health_check=list(HealthCheck))
SETS = [(feature,) for feature in FEATURES] + list(combinations(FEATURES, 2))


@settings(PATIENT, max_examples=40, derandomize=True)
@given(geometries(features=FEATURES, max_channels=40))
def test_all_features_together(geometry: ConvGeometry) -> None:
    assert_exact(geometry)


@pytest.mark.sweep
@pytest.mark.parametrize("features", SETS, ids="-".join)
@settings(PATIENT, max_examples=300)
@given(data=st.data())
def test_three_hundred_geometries(data: st.DataObject, features: tuple[str, ...]) -> None:
    assert_exact(data.draw(geometries(features=features)))
