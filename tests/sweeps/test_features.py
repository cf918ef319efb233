# SPDX-License-Identifier: Apache-2.0
"""Kernels with every feature, alone, in pairs and all together, are exact and break no rule."""

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
PAIRS = list(combinations(FEATURES, 2))


@settings(PATIENT, max_examples=60, derandomize=True)
@given(geometries(features=FEATURES, max_channels=40))
def test_all_features_at_once(geometry: ConvGeometry) -> None:
    assert_exact(geometry)


@pytest.mark.sweep
@pytest.mark.parametrize("feature", FEATURES)
@settings(PATIENT, max_examples=300)
@given(data=st.data())
def test_one_feature(feature: str, data: st.DataObject) -> None:
    assert_exact(data.draw(geometries(features=[feature])))


@pytest.mark.sweep
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
@settings(PATIENT, max_examples=300)
@given(data=st.data())
def test_two_features(pair: tuple[str, str], data: st.DataObject) -> None:
    assert_exact(data.draw(geometries(features=pair, max_channels=64)))


@pytest.mark.sweep
@settings(PATIENT, max_examples=1000)
@given(geometries(features=FEATURES, max_channels=64))
def test_more_of_all_features_at_once(geometry: ConvGeometry) -> None:
    """Three and more together: half of dy's channels in lower ranks without dx was wrong in no pair."""
    assert_exact(geometry)
