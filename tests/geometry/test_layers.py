# SPDX-License-Identifier: Apache-2.0
"""LAYERS files: what they say, and what is wrong with those that cannot be read."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conv3d_codegen import errors
from conv3d_codegen.errors import RequestError
from conv3d_codegen.geometry import ConvGeometry
from conv3d_codegen.layers import (
    Layer,
    bench_layers,
    format_layers,
    parse_layers,
    read_layers,
    select_layer,
)
from strategies import FEATURES, geometries

DATA = Path(__file__).parents[1] / "data"
NAME = {"model": "M", "layer": "l"}
ENTRY = NAME | {"n": 1, "cin": 4, "cout": 8, "in": [5, 6, 7], "kernel": [3, 3, 3]}

layers = st.builds(
    Layer,
    st.text(max_size=9),
    st.text(max_size=9),
    geometries(FEATURES),
    source=st.text(max_size=20),
    note=st.text(max_size=20),
)


@given(st.lists(layers, max_size=3), st.sampled_from(["layers.json", "layers.toml"]))
def test_what_is_written_reads_back(written: list[Layer], filename: str) -> None:
    assert list(parse_layers(format_layers(written, filename), filename)) == written


def test_an_entry_says_only_what_is_not_a_default() -> None:
    geometry = ConvGeometry.from_shapes((1, 4, 6, 7), (8, 3, 3), stride=(2, 1), padding=1)
    assert format_layers([Layer("M", "l", geometry)], "layers.json") == (
        '[\n{"model": "M", "layer": "l", "n": 1, "cin": 4, "cout": 8, "in": [6, 7], '
        '"kernel": [3, 3], "stride": [2, 1], "padding": 1}\n]\n'
    )


def test_unit_axes_can_be_written_out() -> None:
    entry = ENTRY | {"in": [1, 6, 7], "kernel": [1, 3, 3], "rank": 2}
    (layer,) = parse_layers(json.dumps([entry]), "layers.json")
    assert layer.geometry == ConvGeometry.from_shapes((1, 4, 6, 7), (8, 3, 3))


def test_the_layers_of_public_models_are_all_read() -> None:
    found = read_layers(DATA / "model_layers.json")
    assert len(found) == 359
    kinds = Counter(
        "transposed" if layer.geometry.transposed else layer.geometry.groups > 1 for layer in found
    )
    assert kinds == {"transposed": 14, True: 39, False: 306}
    assert {layer.name for layer in bench_layers()} <= {layer.name for layer in found}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[", "layers.json: Expecting value"),
        ("{}", "layers.json: the top level is not a list"),
        ("[3]", "layers.json, entry 1: not an object"),
        (json.dumps([ENTRY, {"model": "M"}]), "layers.json, entry 2: layer is missing"),
        (json.dumps([ENTRY | {"strides": 2}]), "entry 1 (M/l): strides is not a field of a layer"),
        (json.dumps([ENTRY | {"in": 5}]), "in is 5; accepted: a list"),
        (json.dumps([ENTRY | {"groups": "2"}]), "groups is '2'; accepted: an integer"),
        (json.dumps([ENTRY | {"stride": 1.5}]), "stride is 1.5; accepted: an integer or a list"),
        (json.dumps([ENTRY | {"transposed": 1}]), "transposed is 1; accepted: true or false"),
        (json.dumps([ENTRY | {"out": [3, 4, 4]}]), "out is [3, 4, 4]; accepted: [3, 4, 5]"),
    ],
)
def test_a_malformed_file_is_refused_by_name_and_entry(text: str, complaint: str) -> None:
    with pytest.raises(errors.MalformedLayers) as caught:
        parse_layers(text, "layers.json")
    assert complaint in str(caught.value)


@pytest.mark.parametrize("text", ["[[layers]", "[model]\n"])
def test_malformed_toml_is_refused(text: str) -> None:
    with pytest.raises(errors.MalformedLayers, match=r"layers\.toml"):
        parse_layers(text, "layers.toml")


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "layers.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(errors.MalformedLayers, match="not UTF-8 text"):
        read_layers(tmp_path / "layers.json")


def test_a_broken_rule_keeps_its_code_and_names_the_entry() -> None:
    with pytest.raises(errors.GroupsError, match=r"layers\.json, entry 1 \(M/l\): groups 3"):
        parse_layers(json.dumps([ENTRY | {"groups": 3}]), "layers.json")


def test_layers_are_found_by_name_where_it_is_unique() -> None:
    entries = [ENTRY, ENTRY | {"layer": "m"}, ENTRY | {"model": "N"}]
    found = parse_layers(json.dumps(entries), "layers.json")
    assert select_layer(found, "M/l", "layers.json") is found[0]
    assert select_layer(found, "m", "layers.json") is found[1]
    with pytest.raises(errors.UnknownLayer, match="2 layers have that name; accepted: M/l, N/l"):
        select_layer(found, "l", "layers.json")
    with pytest.raises(errors.UnknownLayer, match="no such layer; accepted: M/l, M/m, N/l"):
        select_layer(found, "x", "layers.json")


BUGS: list[dict[str, Any]] = json.loads((DATA / "bug_geometries.json").read_text("utf-8"))
NOT_OF_A_LAYER = ("expect", "title", "scaled")
# One framework lets output padding reach the stride; PyTorch and CANN refuse it, and so do we.
REFUSED_HERE = {"bu-4916": errors.OutputPaddingRange}


@pytest.mark.parametrize("bug", BUGS, ids=[bug["layer"] for bug in BUGS])
def test_geometries_of_bug_reports_are_valid_or_refused_by_the_right_rule(
    bug: dict[str, Any],
) -> None:
    entry = {name: value for name, value in bug.items() if name not in NOT_OF_A_LAYER}
    refused = REFUSED_HERE.get(bug["layer"])
    if bug["expect"] == "valid" and not refused:
        (layer,) = parse_layers(json.dumps([entry]), "bugs.json")
        assert ConvGeometry.parse(layer.geometry.key()) == layer.geometry
        return
    expected = {"empty": errors.EmptyProblem, "reject": RequestError}
    with pytest.raises(refused or expected[bug["expect"]]):
        parse_layers(json.dumps([entry]), "bugs.json")
