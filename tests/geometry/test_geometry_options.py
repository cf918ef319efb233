# SPDX-License-Identifier: Apache-2.0
"""The geometry as it is written on the command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from conv3d_codegen import errors
from conv3d_codegen.cli.geometry_options import geometry_options
from conv3d_codegen.geometry import ConvGeometry

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = "--shape 1,64,8,14,14 --filter 128,3,3,3"
ENTRY = {"model": "M", "layer": "l", "n": 1, "cin": 4, "cout": 8, "in": [6, 7], "kernel": [3, 3]}


def read(arguments: str, *, required: bool = True) -> ConvGeometry | None:
    """Run a command that takes a geometry, and return it."""
    received: list[ConvGeometry | None] = []

    @click.command()
    @geometry_options(required=required)
    def command(geometry: ConvGeometry | None) -> None:
        received.append(geometry)

    command.main(arguments.split(), standalone_mode=False)
    return received[0]


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (
            PLAIN,
            "conv3d-n1-ci64-co128-i8x14x14-k3x3x3-s1x1x1-p0.0.0.0.0.0-d1x1x1-bf16-trn2",
        ),
        (
            f"{PLAIN} --stride 2 --padding 0,1,1,2,2,1 --dilation 1,2,1",
            "conv3d-n1-ci64-co128-i8x14x14-k3x3x3-s2x2x2-p0.1.1.2.2.1-d1x2x1-bf16-trn2",
        ),
        (
            "--shape 2,8,14,15 --filter 12,3,4 --padding 1,2 --groups 4 --layout NHWC"
            " --filter-layout OIHW --lnc 2 --target trn3",
            "conv2d-n2-ci8-co12-i14x15-k3x4-s1x1-p1.1.2.2-d1x1-bf16-trn3-g4-ndhwc-oidhw-lnc2",
        ),
        (
            "--shape 1,8,7 --filter 12,3 --stride 2 --transposed --output-padding 1 --grads db,dw"
            " --dtype fp32 --math tf32 --out-dtype bf16",
            "conv1d-n1-ci8-co12-i7-k3-s2-p0.0-d1-fp32-trn2-t-op1-dw.db-out.bf16-math.tf32",
        ),
    ],
)
def test_numbers_state_a_geometry(arguments: str, key: str) -> None:
    geometry = read(arguments)
    assert geometry is not None
    assert geometry.key() == key
    assert read(f"--key {key}") == geometry


def test_a_layer_of_a_file_is_a_geometry_that_choices_may_change(tmp_path: Path) -> None:
    file = tmp_path / "layers.json"
    file.write_text(json.dumps([ENTRY, ENTRY | {"layer": "m", "out_dtype": "fp32"}]))
    plain = ConvGeometry.from_shapes((1, 4, 6, 7), (8, 3, 3))
    assert read(f"--from {file}:M/l") == plain
    changed = read(f"--from {file}:M/l --dtype fp16 --grads dw")
    assert changed == ConvGeometry.from_shapes(
        (1, 4, 6, 7), (8, 3, 3), dtype="fp16", gradients=("dw",)
    )
    kept = read(f"--from {file}:m --dtype fp16")
    assert kept is not None
    assert kept.out_dtype == "fp32"


def test_types_of_dy_and_the_filters_follow_that_of_x(tmp_path: Path) -> None:
    mixed = ENTRY | {"dtype": "fp8_e4m3", "dy_dtype": "fp8_e5m2"}
    file = tmp_path / "layers.json"
    file.write_text(json.dumps([mixed]))
    geometry = read(f"--from {file}")
    assert geometry == read("--shape 1,4,6,7 --filter 8,3,3 --dtype fp8_e4m3 --dy-dtype fp8_e5m2")
    changed = read(f"--from {file} --dtype fp8_e5m2 --filter-dtype fp8_e4m3")
    assert changed is not None
    assert changed.input_dtypes == {"dy": "fp8_e5m2", "x": "fp8_e5m2", "filters": "fp8_e4m3"}


def test_a_file_with_one_layer_needs_no_name(tmp_path: Path) -> None:
    file = tmp_path / "with:colon.json"
    file.write_text(json.dumps([ENTRY]))
    assert read(f"--from {file}") == ConvGeometry.from_shapes((1, 4, 6, 7), (8, 3, 3))


def test_a_file_with_several_layers_needs_one(tmp_path: Path) -> None:
    file = tmp_path / "layers.json"
    file.write_text(json.dumps([ENTRY, ENTRY | {"layer": "m"}]))
    with pytest.raises(errors.UnknownLayer, match=r"2 layers.*layers\.json:MODEL/LAYER"):
        read(f"--from {file}")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("", "no geometry"),
        ("--stride 2", "--stride: this is not a whole geometry"),
        ("--shape 1,2,3", "--shape: this is not a whole geometry"),
        ("--key K --lnc 2 --filter 3,3", "--key with --filter, --lnc"),
        ("--key K --from F", "--key with --from"),
        ("--from F --transposed --dtype fp32", "--from with --transposed"),
    ],
)
def test_a_geometry_is_stated_once_and_whole(arguments: str, complaint: str) -> None:
    with pytest.raises(errors.ConflictingOptions, match=complaint):
        read(arguments)


def test_lists_are_integers_between_commas() -> None:
    with pytest.raises(errors.NotAnInteger, match=r"--shape 1,a,3: .* accepted: N,C,\[D,"):
        read("--shape 1,a,3 --filter 3,3")


def test_an_optional_geometry_is_none_if_nothing_is_said() -> None:
    assert read("", required=False) is None
    with pytest.raises(errors.ConflictingOptions):
        read("--groups 2", required=False)


def test_help_shows_the_defaults() -> None:
    @click.command()
    @geometry_options()
    def command(geometry: ConvGeometry) -> None: ...

    text = CliRunner().invoke(command, ["--help"]).output
    for default in ("dx,dw,db", "bf16", "full", "NCDHW", "DHWCN", "trn2"):
        assert f"[default: {default}]" in " ".join(text.split())
