# SPDX-License-Identifier: Apache-2.0
"""Keys are readable, canonical, complete, and read back as what was written."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given

from conv3d_codegen.errors import MalformedKey, RequestError
from conv3d_codegen.geometry import ConvGeometry
from strategies import FEATURES, geometries

PLAIN = ConvGeometry.from_shapes((1, 64, 8, 14, 14), (128, 3, 3, 3), stride=2, padding=1)
PLAIN_KEY = "conv3d-n1-ci64-co128-i8x14x14-k3x3x3-s2x2x2-p1.1.1.1.1.1-d1x1x1-bf16-trn2"


@given(geometries(FEATURES))
def test_a_key_reads_back_as_its_geometry(geometry: ConvGeometry) -> None:
    assert ConvGeometry.parse(geometry.key()) == geometry
    assert geometry.module_name().isidentifier()


def test_defaults_stay_out_of_the_tail() -> None:
    assert PLAIN.key() == PLAIN_KEY


def test_a_key_has_the_numbers_of_the_users_rank_and_a_tail_of_exceptions() -> None:
    geometry = ConvGeometry.from_shapes(
        (2, 8, 14, 15),
        (12, 3, 4),
        stride=2,
        padding=(0, 1, 2, 3),
        transposed=True,
        output_padding=(1, 0),
        groups=4,
        gradients=("db", "dx"),
        dtype="fp32",
        math="tf32",
        out_dtype="bf16",
        layout="NHWC",
        filter_layout="OIHW",
        target="trn3",
        lnc=2,
    )
    assert geometry.key() == (
        "conv2d-n2-ci8-co12-i14x15-k3x4-s2x2-p0.1.2.3-d1x1-fp32-trn3"
        "-g4-t-op1x0-dx.db-out.bf16-math.tf32-ndhwc-oidhw-lnc2"
    )


def test_types_of_dy_and_the_filters_are_in_the_key_where_they_are_others() -> None:
    recipe = replace(PLAIN, dtype="fp8_e4m3", dy_dtype="fp8_e5m2", out_dtype="")
    assert recipe.key() == PLAIN_KEY.replace("bf16", "fp8_e4m3") + "-dy.fp8_e5m2"
    assert replace(recipe, dy_dtype="fp8_e4m3") == replace(recipe, dy_dtype="")
    assert replace(recipe, filter_dtype="fp8_e5m2").key().endswith("-dy.fp8_e5m2-w.fp8_e5m2")


# For each field, a value that differs from PLAIN's and keeps the geometry valid.
CHANGES: dict[str, dict[str, Any]] = {
    "batch": {"batch": 2},
    "in_channels": {"in_channels": 32},
    "out_channels": {"out_channels": 64},
    "input_size": {"input_size": (8, 14, 15)},
    "kernel_size": {"kernel_size": (3, 3, 1)},
    "stride": {"stride": (2, 1, 2)},
    "dilation": {"dilation": (1, 2, 1)},
    "padding": {"padding": (1, 1, 1, 1, 1, 2)},
    "groups": {"groups": 2},
    "transposed": {"transposed": True},
    "output_padding": {"transposed": True, "output_padding": (1, 0, 0)},
    "gradients": {"gradients": ("dx", "dw")},
    "dtype": {"dtype": "fp16"},
    "out_dtype": {"out_dtype": "fp32"},
    "math": {"dtype": "fp32", "math": "bf16"},
    "layout": {"layout": "NDHWC"},
    "filter_layout": {"filter_layout": "ODHWI"},
    "dy_dtype": {"dtype": "fp8_e4m3", "dy_dtype": "fp8_e5m2"},
    "filter_dtype": {"dtype": "fp8_e4m3", "filter_dtype": "fp8_e5m2"},
    "target": {"target": "trn3"},
    "lnc": {"lnc": 2},
}


@pytest.mark.parametrize("field", [field.name for field in fields(ConvGeometry)])
def test_every_field_is_in_the_key(field: str) -> None:
    if field == "rank":
        flat = ConvGeometry.from_shapes((1, 4, 9, 9), (4, 3, 3))
        assert replace(flat, rank=3).key() != flat.key()
        return
    change = CHANGES[field]
    base = replace(PLAIN, **{name: value for name, value in change.items() if name != field})
    assert replace(PLAIN, **change).key() != base.key()


@pytest.mark.parametrize(
    ("key", "complaint"),
    [
        ("", "conv1d, conv2d or conv3d"),
        ("conv4d-n1", "conv1d, conv2d or conv3d"),
        ("conv3d-n1-ci64", "out_channels is missing"),
        (PLAIN_KEY.replace("-k3x3x3", "-k3x3"), "'k3x3' is not kernel_size of a 3-D problem"),
        (PLAIN_KEY.replace("ci64", "c64"), "'c64' is not in_channels"),
        (PLAIN_KEY.replace("n1", "n-1"), "'n' is not batch"),
        (PLAIN_KEY.replace("n1", "n" + "9" * 5000), "is not batch"),
        (PLAIN_KEY.replace("n1", "n²"), "is not batch"),
        (PLAIN_KEY + "-what", "'what' is not known"),
        (PLAIN_KEY + "-t-t", "'t' is not known, or repeated"),
        (PLAIN_KEY + "-", "'' is not known"),
        (PLAIN_KEY + "\n", "is not target"),
        (PLAIN_KEY + "-g1", "not in canonical form"),
        (PLAIN_KEY + "-dy.bf16", "not in canonical form"),
        (PLAIN_KEY + "-lnc2-g2", "not in canonical form"),
        (PLAIN_KEY.replace("n1", "n01"), "not in canonical form"),
    ],
)
def test_a_malformed_key_is_refused_by_the_part_that_is_wrong(key: str, complaint: str) -> None:
    with pytest.raises(MalformedKey) as caught:
        ConvGeometry.parse(key)
    assert complaint in str(caught.value)


def test_a_well_formed_key_of_a_wrong_geometry_names_the_broken_rule() -> None:
    with pytest.raises(RequestError, match="groups 3"):
        ConvGeometry.parse(PLAIN_KEY + "-g3")
