# SPDX-License-Identifier: Apache-2.0
"""Plain lists, and what the command does with what it reads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from conv3d_codegen.cli.main import main
from conv3d_codegen.errors import RequestError
from conv3d_codegen.geometry import ConvGeometry
from conv3d_codegen.importers.plain import read_plain
from conv3d_codegen.layers import read_layers

if TYPE_CHECKING:
    from pathlib import Path

GEOMETRY = ConvGeometry.from_shapes((1, 4, 6, 7), (8, 3, 3), stride=(2, 1), padding=1)
LAYERS_ENTRY = {
    "model": "net", "layer": "stem", "n": 1, "cin": 4, "cout": 8, "in": [6, 7], "kernel": [3, 3],
    "stride": [2, 1], "padding": 1,
}  # fmt: skip
PYTHON_ENTRY = {
    "batch": 1, "in_channels": 4, "out_channels": 8, "input_size": [6, 7], "kernel_size": [3, 3],
    "stride": [2, 1], "padding": 1,
}  # fmt: skip
TOML = """
[[layers]]
name = "stem"
batch = 1
in_channels = 4
out_channels = 8
input_size = [6, 7]
kernel_size = [3, 3]
stride = [2, 1]
padding = 1
"""


@pytest.mark.parametrize("entry", [LAYERS_ENTRY, PYTHON_ENTRY, GEOMETRY.key()])
def test_an_entry_in_any_form(entry: object) -> None:
    (layer,) = read_plain(json.dumps([entry]), "file", is_toml=False).layers
    assert layer.geometry == GEOMETRY
    assert layer.name == ("net/stem" if entry is LAYERS_ENTRY else "file/entry1")


def test_toml_and_objects_around_the_list() -> None:
    (layer,) = read_plain(TOML, "file", is_toml=True).layers
    assert (layer.name, layer.geometry) == ("file/stem", GEOMETRY)
    assert read_plain(json.dumps({"layers": [PYTHON_ENTRY]}), "file", is_toml=False).layers


def test_entries_that_are_no_problem_are_skipped_by_number() -> None:
    text = json.dumps([3, "conv3d", {"n": 1}, GEOMETRY.key()])
    imported = read_plain(text, "file", is_toml=False)
    assert len(imported.layers) == 1
    assert [skipped.where for skipped in imported.skipped] == ["entry 1", "entry 2", "entry 3"]


@pytest.mark.parametrize(
    ("text", "is_toml"), [("[", False), ("3", False), ("{}", False), ("=", True)]
)
def test_a_text_that_is_no_list_is_refused(text: str, is_toml: bool) -> None:
    with pytest.raises(RequestError, match="malformed-layers: file: "):
        read_plain(text, "file", is_toml=is_toml)


def test_the_command_writes_once_and_says_what_it_skipped(tmp_path: Path) -> None:
    source, target = tmp_path / "net.json", tmp_path / "layers.toml"
    source.write_text(json.dumps([GEOMETRY.key(), 3]))
    arguments = ["import", "plain", str(source), "-o", str(target), "--layout", "NHWC"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "skipped entry 2" in result.stderr
    (layer,) = read_layers(target)
    assert (layer.name, layer.geometry.layout) == ("net/entry1", "NDHWC")
    again = CliRunner().invoke(main, arguments)
    assert again.exit_code == 2
    assert again.stderr.splitlines()[-1].startswith("error[not-ours]")
    assert CliRunner().invoke(main, [*arguments, "--force"]).exit_code == 0


def test_json_names_layers_and_skipped_entries() -> None:
    text = json.dumps([GEOMETRY.key(), 3])
    result = CliRunner().invoke(main, ["import", "plain", "-", "--json"], input=text)
    described = json.loads(result.stdout)
    assert described["layers"] == ["stdin/entry1"]
    assert [skipped["where"] for skipped in described["skipped"]] == ["entry 2"]


@pytest.mark.parametrize("notation", ["miopen", "benchdnn", "plain"])
def test_a_file_without_convolutions_writes_nothing(notation: str, tmp_path: Path) -> None:
    source, target = tmp_path / "empty.json", tmp_path / "layers.json"
    source.write_text("[]")
    result = CliRunner().invoke(main, ["import", notation, str(source), "-o", str(target)])
    assert result.exit_code == 2
    assert result.stderr.startswith("error[no-layers]: ")
    assert not target.exists()
