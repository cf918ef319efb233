# SPDX-License-Identifier: Apache-2.0
"""Geometries on which other libraries were reported to fail give exact kernels here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conv3d_codegen.layers import parse_layers
from exactness import assert_exact

DATA = Path(__file__).parents[1] / "data"
BUGS: list[dict[str, Any]] = json.loads((DATA / "bug_geometries.json").read_text("utf-8"))
NOT_OF_A_LAYER = ("expect", "title", "scaled")
# Its output padding reaches the stride: refused, which tests/geometry/test_layers.py checks.
REFUSED_HERE = ("bu-4916",)
VALID = [bug for bug in BUGS if bug["expect"] == "valid" and bug["layer"] not in REFUSED_HERE]


@pytest.mark.sweep
@pytest.mark.parametrize("bug", VALID, ids=[bug["layer"] for bug in VALID])
def test_reported_geometry(bug: dict[str, Any]) -> None:
    entry = {name: value for name, value in bug.items() if name not in NOT_OF_A_LAYER}
    (layer,) = parse_layers(json.dumps([entry]), "bug_geometries.json")
    assert_exact(layer.geometry)
