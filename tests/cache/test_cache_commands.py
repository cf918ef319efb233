# SPDX-License-Identifier: Apache-2.0
"""What `cache` commands print and return."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from conv3d_codegen.cache import Artifact, KernelCache
from conv3d_codegen.cli.main import main
from stored_kernels import geometry, stored

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result


@pytest.fixture
def cache(tmp_path: Path) -> KernelCache:
    filled = KernelCache(tmp_path / "cache")
    for batch in (1, 2):
        filled.put(stored(geometry(batch)))
    filled.put_artifact(stored(geometry(1)), Artifact("neuronx-cc-2.21.1", {"log.txt": b"fine"}))
    return filled


def run(cache: KernelCache, *arguments: object) -> Result:
    return CliRunner().invoke(
        main, ["cache", *map(str, arguments), "--cache-dir", str(cache.folder)]
    )


def test_info_counts(cache: KernelCache) -> None:
    facts = json.loads(run(cache, "info", "--json").stdout)
    assert facts["folder"] == str(cache.folder)
    assert (facts["kernels"], facts["compiled"], facts["damaged"]) == (2, 1, 0)
    assert facts["bytes"] > 2 * len(stored(geometry(1)).source)
    assert str(cache.folder) in run(cache, "info").stdout


def test_the_default_is_where_the_platform_keeps_caches(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    facts = json.loads(CliRunner().invoke(main, ["cache", "info", "--json"]).stdout)
    assert facts["folder"].startswith(str(tmp_path))
    assert facts["folder"].endswith("conv3d_codegen")
    assert not list(tmp_path.iterdir())  # looking creates nothing


def test_list_shows_keys_and_compilers(cache: KernelCache) -> None:
    text = run(cache, "list").stdout
    assert geometry(2).key() in text
    assert "neuronx-cc-2.21.1" in text
    entries = json.loads(run(cache, "list", "--json").stdout)
    assert {entry["kernel"]["key"] for entry in entries} == {geometry(n).key() for n in (1, 2)}
    meta = next(cache.root.glob("*/*/meta.json"))
    meta.write_text("{")
    assert "damaged" in run(cache, "list").stdout


def test_prune_takes_days_and_sizes(cache: KernelCache) -> None:
    assert run(cache, "prune", "--older-than", 1, "--max-size", "1GB").stdout == (
        "deleted 0 kernels, 0 bytes\n"
    )
    meta = next(cache.root.glob("*/conv3d_n2_*/meta.json"))
    os.utime(meta, (0, 0))
    assert "deleted 1 kernels" in run(cache, "prune", "--older-than", "30").stdout
    assert json.loads(run(cache, "prune", "--max-size", "0.1K", "--json").stdout)["kernels"] == 1


@pytest.mark.parametrize("size", ["", "big", "-1", "1X", "1e3", "9" * 40])
def test_prune_refuses_what_is_no_size(cache: KernelCache, size: str) -> None:
    done = run(cache, "prune", "--max-size", size)
    assert done.exit_code == 2
    assert "accepted: such as 500MB" in done.stderr


def test_verify_exits_with_1_on_damage(cache: KernelCache) -> None:
    done = run(cache, "verify")
    assert (done.exit_code, done.stdout) == (0, "2 kernels, 0 problems\n")
    next(cache.root.glob("*/*/*.py")).write_text("x")
    done = run(cache, "verify")
    assert done.exit_code == 1
    assert done.stdout.endswith("2 kernels, 1 problems\n")
    (problem,) = json.loads(run(cache, "verify", "--json").stdout)
    assert "bytes instead of" in problem["problem"]


def test_clear_deletes_and_refuses_other_folders(cache: KernelCache, tmp_path: Path) -> None:
    assert "deleted 2 kernels" in run(cache, "clear").stdout
    assert json.loads(run(cache, "info", "--json").stdout)["kernels"] == 0
    done = run(KernelCache(tmp_path), "clear")
    assert (done.exit_code, done.stderr[:19]) == (2, "error[not-a-cache]:")
