# SPDX-License-Identifier: Apache-2.0
"""What `pack` commands print, write and return, with real kernels."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from conv3d_codegen import load_pack
from conv3d_codegen.cli.main import main
from conv3d_codegen.emission import emit_stored
from conv3d_codegen.layers import Layer, format_layers
from conv3d_codegen.packs import workers
from stored_kernels import OPTIONS, REFUSED, emit_or_die, geometry, layers, packed

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def layers_file(folder: Path, *wanted: Layer) -> Path:
    path = folder / "net.json"
    path.write_text(format_layers(wanted, path.name))
    return path


def test_build_verify_list_and_extract_with_processes(tmp_path: Path) -> None:
    file = layers_file(tmp_path, *layers(1, 2))
    pack, cache = tmp_path / "net.pack", tmp_path / "cache"
    build = ("pack", "build", file, "-o", pack, "--jobs", 2, "--cache-dir", cache)
    done = run(*build)
    assert done.exit_code == 0, done.output
    assert done.stdout == ""
    assert done.stderr.startswith(f"2 emitted, 0 found, 0 failed\n{pack}: 2 kernels, ")
    assert load_pack(pack).find(geometry(2)) == emit_stored(geometry(2), OPTIONS)

    before = pack.read_bytes()
    again = json.loads(run(*build, "--json").stdout)
    assert (again["emitted"], again["found"], again["failures"]) == (0, 2, [])
    assert pack.read_bytes() == before

    assert run("pack", "verify", pack).stdout == "2 kernels, 0 problems\n"
    verified = run("pack", "verify", pack, "--reemit", "--jobs", 1)
    assert (verified.exit_code, verified.stderr) == (0, "")
    assert verified.stdout == "2 kernels, 0 problems, 0 not what is emitted now\n"

    listing = run("pack", "list", pack).stdout
    assert listing.count("net/conv") == 2
    assert geometry(1).key() in listing
    described = json.loads(run("pack", "list", pack, "--json").stdout)
    assert described["digest"] == again["digest"]
    assert described["kernels"][0]["layers"] == ["net/conv1"]
    assert described["kernels"][0]["summary"]["instructions"] > 0

    assert run("pack", "extract", pack, "-o", tmp_path / "out").exit_code == 0
    kernel = tmp_path / "out" / f"{geometry(1).module_name()}.py"
    assert run("verify", kernel).exit_code == 0
    assert run("diff", kernel, kernel).exit_code == 0


def test_build_tells_every_failure_and_exits_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "try_to_emit", emit_or_die)
    file = layers_file(tmp_path, *layers(1, REFUSED, 2))
    build = ("pack", "build", file, "-o", tmp_path / "p", "--jobs", 1, "--cache-dir", tmp_path)
    done = run(*build)
    assert done.exit_code == 1
    assert done.stderr.splitlines()[:2] == [
        "error[refused]: net/conv7: not today",
        "2 emitted, 0 found, 1 failed",
    ]
    assert len(load_pack(tmp_path / "p")) == 2
    described = json.loads(run(*build, "--json").stdout)
    (failure,) = described["failures"]
    assert failure == {
        "layers": ["net/conv7"],
        "key": geometry(REFUSED).key(),
        "code": "refused",
        "message": "not today",
    }


def test_wrong_requests_write_nothing(tmp_path: Path) -> None:
    file = layers_file(tmp_path, *layers(1))
    (tmp_path / "letter").write_text("Dear reader")
    cases = {
        "malformed-layers": ("build", tmp_path / "letter", "-o", tmp_path / "p"),
        "not-ours": ("build", file, "-o", tmp_path / "letter"),
        "file": ("build", tmp_path / "none.json", "-o", tmp_path / "p"),
        "cache-unwritable": ("build", file, "-o", tmp_path / "p", "--cache-dir", file / "x"),
        "malformed-pack": ("verify", tmp_path / "letter"),
        "no-cluster": ("build", file, "-o", tmp_path / "p", "--dask", "nowhere"),
    }
    for code, arguments in cases.items():
        if code == "no-cluster":
            pytest.importorskip("distributed", reason="Dask is an extra")
        jobs = ("--jobs", 1) if arguments[0] == "build" else ()
        done = run("pack", *arguments, *jobs)
        assert (done.exit_code, done.stdout) == (2, ""), done.output
        assert done.stderr.startswith(f"error[{code}]: "), done.stderr
        assert done.stderr.count("\n") == 1
    assert not (tmp_path / "p").exists()
    assert (tmp_path / "letter").read_text() == "Dear reader"


def test_verify_tells_damage_from_drift(tmp_path: Path) -> None:
    pack = packed(tmp_path / "p", 1, text="# other text\n" * 9).path
    drifted = run("pack", "verify", pack, "--reemit", "--jobs", 1)
    assert drifted.exit_code == 3
    assert drifted.stdout == (
        f"{geometry(1).key()}: another text is emitted now\n"
        "1 kernels, 0 problems, 1 not what is emitted now\n"
    )
    content = pack.read_bytes()
    middle = content.index(b".py") + 5
    pack.write_bytes(content[:middle] + b"\0" + content[middle + 1 :])
    damaged = run("pack", "verify", pack, "--json")
    assert damaged.exit_code == 1
    assert len(json.loads(damaged.stdout)["problems"]) == 1


def test_diff_exits_with_3_where_packs_differ(tmp_path: Path) -> None:
    a, b = packed(tmp_path / "a", 1, 2).path, packed(tmp_path / "b", 2, 3, text="# x").path
    assert (run("pack", "diff", a, a).exit_code, run("pack", "diff", a, a).stdout) == (0, "")
    done = run("pack", "diff", a, b)
    assert done.exit_code == 3
    assert f"only in {a}: {geometry(1).key()}" in done.stdout
    assert f"{geometry(2).key()} differs" in done.stdout
    assert json.loads(run("pack", "diff", a, b, "--json").stdout)["only_b"] == [geometry(3).key()]


def test_merge_and_wheel(tmp_path: Path) -> None:
    a, b = packed(tmp_path / "a", 1).path, packed(tmp_path / "b", 2).path
    other = packed(tmp_path / "c", 1, text="# x").path
    done = run("pack", "merge", a, b, "-o", tmp_path / "m", "--json")
    assert json.loads(done.stdout)["kernels"] == 2
    assert run("pack", "merge", a, other, "-o", tmp_path / "n").exit_code == 2
    assert not (tmp_path / "n").exists()
    assert run("pack", "merge", a, other, "-o", tmp_path / "n", "--prefer", "last").exit_code == 0
    done = run("pack", "wheel", a, "--name", "net", "--version", "1.0", "-o", tmp_path, "--json")
    assert json.loads(done.stdout) == {"path": str(tmp_path / "net-1.0-py3-none-any.whl")}


def test_a_dask_cluster_emits(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="Dask is an extra")
    file = layers_file(tmp_path, *layers(1, 2))
    serial, clustered = tmp_path / "serial", tmp_path / "clustered"
    build = ("pack", "build", file, "--jobs", 1)
    assert run(*build, "-o", serial, "--cache-dir", tmp_path / "x").exit_code == 0
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None
    ) as cluster:
        address = ("--dask", cluster.scheduler_address)
        done = run(*build, "-o", clustered, "--cache-dir", tmp_path / "y", *address)
    assert done.exit_code == 0, done.output
    assert done.stderr.startswith("2 emitted, 0 found")
    assert clustered.read_bytes() == serial.read_bytes()
