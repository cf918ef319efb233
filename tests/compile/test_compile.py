# SPDX-License-Identifier: Apache-2.0
"""Compiling and verifying with stand-ins that have the documented interfaces of the toolchain."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner

from conv3d_codegen.calls import backward as backward_module
from conv3d_codegen.calls import conv3d_bwd, run
from conv3d_codegen.cli.main import main
from conv3d_codegen.compile import toolchain as toolchain_module
from conv3d_codegen.compile.arrays import read_arrays, write_arrays
from conv3d_codegen.geometry import ConvGeometry
from conv3d_codegen.layers import Layer, format_layers
from conv3d_codegen.packs import load_pack
from hand_written import KERNEL, KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from click.testing import Result

    Toolchain = Callable[..., None]

GEOMETRY = ("--shape", "1,2,2,3,3", "--filter", "3,1,2,2")
NAME = ConvGeometry.from_shapes((1, 2, 2, 3, 3), (3, 1, 2, 2)).module_name()


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def command(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.mark.parametrize(("release", "frontend"), [("0.6", "tracer"), ("0.3", "parser")])
def test_a_neff_and_its_log(
    toolchain: Toolchain, tmp_path: Path, release: str, frontend: str
) -> None:
    toolchain(release)
    result = command("compile", *GEOMETRY, "--target", "trn3", "-o", tmp_path)
    assert result.exit_code == 0, result.stdout
    name = f"{NAME.replace('trn2', 'trn3')}"
    assert json.loads((tmp_path / name / f"{name}.neff").read_text()) == {
        "target": "trn3",
        "lnc": 1,
        "kernel": name,
        "inputs": {
            "dy": ["bfloat16", 1, 3, 2, 2, 2],
            "x_in": ["bfloat16", 1, 2, 2, 3, 3],
            "filters": ["bfloat16", 1, 2, 2, 2, 3],
        },
        "frontend": frontend,
    }
    assert (tmp_path / name / "log.txt").read_text() == f"compiling {name}\n"


def test_the_cache_keeps_what_each_compiler_version_made(toolchain: Toolchain) -> None:
    toolchain("0.6")
    (first,) = json.loads(command("compile", *GEOMETRY, "--json").stdout)
    (again,) = json.loads(command("compile", *GEOMETRY, "--json").stdout)
    assert (first["from_cache"], again["from_cache"]) == (False, True)
    assert first["files"] == again["files"]
    assert first["compiler"] == "nki-0.6.0-neuronx-cc-2.27.5334"


def test_a_pack_takes_in_what_is_compiled(
    toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toolchain()
    layers, pack = tmp_path / "layers.json", tmp_path / "kernels.pack"
    sizes = [2, 3]
    geometries = [ConvGeometry.from_shapes((1, 2, size), (3, 2)) for size in sizes]
    named = [Layer("M", f"l{g.input_size[2]}", g) for g in geometries]
    layers.write_text(format_layers(named, "layers.json"))
    assert command("pack", "build", layers, "-o", pack, "--jobs", 1).exit_code == 0
    monkeypatch.setenv("STAND_IN", "refuse l3")
    result = command("compile", pack, "--json")
    assert result.exit_code == 1
    assert [one["passed"] for one in json.loads(result.stdout)] == [True, False]
    compiled = [len(entry.compiled) for entry in load_pack(pack).manifest.entries]
    assert compiled == [1, 0]
    monkeypatch.setenv("STAND_IN", "")
    (one,) = json.loads(command("compile", pack, "--json").stdout)  # what is missing alone
    assert one["passed"]
    assert load_pack(pack).problems() == ()
    (artifact,) = load_pack(pack).member(one["key"]).artifacts
    assert artifact.files.keys() == {f"{geometries[1].module_name()}.neff", "log.txt"}
    assert load_pack(pack).manifest.by_key[one["key"]].layers == ("M/l3",)


@pytest.mark.parametrize("arguments", [(), ("some.pack", *GEOMETRY)])
def test_either_a_pack_or_a_geometry(arguments: tuple[str, ...]) -> None:
    result = command("compile", *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("error[usage]: name a PACK, or a geometry")


@pytest.mark.parametrize(
    ("behaviour", "options", "complaint"),
    [
        ("refuse", (), "FAILED, exit code 1: RuntimeError: NCC_EBVF030: too many instructions"),
        ("grow", ("--memory", 8), "FAILED, exit code 1: MemoryError"),
        ("forget", (), "FAILED, the compiler wrote no NEFF"),
    ],
)
def test_a_compilation_that_fails(
    toolchain: Toolchain,
    monkeypatch: pytest.MonkeyPatch,
    behaviour: str,
    options: tuple[object, ...],
    complaint: str,
) -> None:
    toolchain()
    monkeypatch.setenv("STAND_IN", behaviour)
    result = command("compile", *GEOMETRY, *options)
    assert result.exit_code == 1
    assert complaint in result.stdout
    monkeypatch.setenv("STAND_IN", "")
    assert "from the cache" not in command("compile", *GEOMETRY).stdout  # nothing bad was kept


def test_a_compiler_that_hangs_is_stopped_with_its_children(
    toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    toolchain()
    command("emit", *GEOMETRY)
    monkeypatch.setenv("STAND_IN", "hang")
    monkeypatch.setenv("STAND_IN_PID", str(tmp_path / "pid"))
    started = time.monotonic()
    result = command("compile", *GEOMETRY, "--timeout", 4)
    assert time.monotonic() - started < 60
    assert result.exit_code == 1
    assert "FAILED, stopped after 4 s" in result.stdout
    child = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 10  # a kill takes effect when the host gets to it
    while is_running(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(child)


def is_running(process: int) -> bool:
    """Say whether a process is there and not merely waiting to be buried."""
    try:
        with open(f"/proc/{process}/stat", encoding="ascii") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("arguments", [("compile",), ("verify", "--backend", "nki")])
def test_without_a_toolchain_the_message_says_what_to_install(
    site: Path, arguments: tuple[str, ...]
) -> None:
    result = command(*arguments, *GEOMETRY)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error[no-toolchain]: nki is not installed; install")
    assert "pip install" in result.stderr
    assert result.stderr.count("\n") == 1


def test_verify_with_the_installed_nki(toolchain: Toolchain, tmp_path: Path) -> None:
    toolchain(compiler=False)
    result = command("verify", *GEOMETRY, "--backend", "nki")
    assert result.exit_code == 0, result.stdout
    assert "nki 0.6.0, simulator" in result.stdout
    assert result.stdout.splitlines()[-1] == "PASSED"
    by_hand = tmp_path / "by_hand.py"
    by_hand.write_text(KERNEL)
    report = json.loads(command("verify", by_hand, "--backend", "nki", "--json").stdout)
    assert (report["passed"], report["key"]) == (True, KEY)


def test_a_wrong_kernel_fails_under_nki_too(toolchain: Toolchain, tmp_path: Path) -> None:
    toolchain(compiler=False)
    by_hand = tmp_path / "by_hand.py"
    by_hand.write_text(KERNEL.replace("stationary=tap1", "stationary=tap0"))
    result = command("verify", by_hand, "--backend", "nki")
    assert result.exit_code == 1
    assert "WRONG" in result.stdout
    by_hand.write_text(KERNEL.replace("nisa.memset", "nisa.no_such_thing"))
    result = command("verify", by_hand, "--backend", "nki")
    assert result.exit_code == 1
    assert "problem" in result.stdout
    assert result.stdout.splitlines()[-1] == "FAILED"


@pytest.fixture
def device(toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Turn this machine into a Neuron host."""
    toolchain()
    (tmp_path / "neuron0").touch()
    monkeypatch.setattr(toolchain_module, "DEVICE", tmp_path / "neuron0")
    forget()
    yield
    forget()


def forget() -> None:
    """Undo what a process remembers of nki and of kernels made ready for it."""
    for memo in (backward_module.prepare, run.device_runner):
        memo.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "nki"]:
        del sys.modules[name]


@pytest.mark.usefixtures("device")
def test_on_a_neuron_host_verify_uses_the_device() -> None:
    assert "nki 0.6.0, device" in command("verify", *GEOMETRY, "--backend", "nki").stdout


@pytest.mark.usefixtures("device")
def test_on_a_neuron_host_calls_go_through_nki(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "simulator_runner", None)
    x, w = np.ones((1, 2, 2, 3, 3), np.float32), np.ones((1, 2, 2, 2, 3), np.float32)
    dy = np.ones((1, 3, 2, 2, 2), np.float32)
    dx, dw, db = conv3d_bwd(dy, x, w)
    assert (dx.shape, dw.shape) == (x.shape, w.shape)
    np.testing.assert_array_equal(db, np.full(3, 8, np.float32))
    np.testing.assert_array_equal(conv3d_bwd(dy, x, w, compute_dx=False, compute_dw=False), db)


def test_doctor_tells_what_there_is(toolchain: Toolchain) -> None:
    toolchain()
    found = json.loads(command("doctor", "--json").stdout)["toolchain"]
    assert found["nki"] == "0.6.0"
    assert found["dialect"] == "nki 0.3 and later"
    assert found["device"].startswith("none")


@pytest.mark.parametrize("kind", [np.float32, np.int64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3])
def test_arrays_keep_their_types_on_the_way(kind: Any, tmp_path: Path) -> None:
    array = np.arange(6).reshape(2, 1, 3).astype(kind)
    write_arrays(tmp_path / "arrays", [array, array[:0], array[..., ::-1]])
    same, empty, backwards = read_arrays(tmp_path / "arrays")
    assert (same.dtype, same.shape, empty.shape) == (array.dtype, array.shape, (0, 1, 3))
    np.testing.assert_array_equal(same.astype(float), array.astype(float))
    np.testing.assert_array_equal(backwards.astype(float), array[..., ::-1].astype(float))
