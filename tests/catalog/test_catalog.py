# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from conv3d_codegen.catalog import (
    Drift,
    find_drift,
    load_catalog,
    regenerate,
    render_catalog,
)
from conv3d_codegen.cli.main import main
from conv3d_codegen.errors import RequestError

if TYPE_CHECKING:
    from pathlib import Path

KEY = "conv3d-n1-ci1-co1-i1x1x1-k1x1x1-s1x1x1-p0.0.0.0.0.0-d1x1x1-bf16-trn2"
NAME = "trn2/conv3d_n1_ci1_co1_i1x1x1_k1x1x1_s1x1x1_p0_0_0_0_0_0_d1x1x1_bf16_trn2.py"
ENTRY = f'[[kernel]]\nwhy = "smallest"\nkey = "{KEY}"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a catalog of one kernel, up to date."""
    (tmp_path / "catalog.toml").write_text(ENTRY)
    regenerate(tmp_path)
    return tmp_path


def test_regenerate_writes_kernel_and_manifest_once(folder: Path) -> None:
    manifest = json.loads((folder / "MANIFEST.json").read_text())["kernels"]
    assert list(manifest) == [NAME]
    assert manifest[NAME]["why"] == "smallest"
    assert manifest[NAME]["key"] == KEY
    assert regenerate(folder) == ()


def test_every_kind_of_drift_is_found_and_mended(folder: Path) -> None:
    kernel = folder / NAME
    kernel.write_text(kernel.read_text() + "# by hand\n")
    extra = folder / "trn2" / "extra.py"
    extra.write_text("")
    (folder / "MANIFEST.json").unlink()
    expected = {
        Drift(NAME, "changed"),
        Drift("trn2/extra.py", "not in the catalog"),
        Drift("MANIFEST.json", "missing"),
    }
    assert set(find_drift(folder, render_catalog(folder))) == expected
    assert set(regenerate(folder)) == expected
    assert find_drift(folder, render_catalog(folder)) == ()
    assert not extra.exists()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[[kernel]\n", "malformed-catalog"),
        (ENTRY + ENTRY, "malformed-catalog"),
        (f'[[kernel]]\nkey = "{KEY}"\n', "malformed-catalog"),
        (ENTRY.replace(KEY, "conv3d-n1"), "malformed-key"),
    ],
)
def test_a_malformed_catalog_is_a_request_error(tmp_path: Path, text: str, code: str) -> None:
    (tmp_path / "catalog.toml").write_text(text)
    with pytest.raises(RequestError) as caught:
        load_catalog(tmp_path)
    assert caught.value.code == code


def test_check_and_diff_exit_with_3_on_drift(folder: Path) -> None:
    def run(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(main, ["catalog", *arguments, "--folder", str(folder)])
        return result.exit_code, result.stdout

    assert run("check")[0] == 0
    assert run("diff") == (0, "")
    kernel = folder / NAME
    kernel.write_text(kernel.read_text().replace("    nisa.", "    nisa. ", 1))
    code, text = run("check")
    assert (code, text) == (3, f"{NAME}: changed\n")
    assert json.loads(run("check", "--json")[1]) == [{"path": NAME, "kind": "changed"}]
    code, text = run("diff")
    assert code == 3
    assert "-    nisa" in text
    assert "+    nisa" in text
    assert json.loads(run("diff", "--json")[1])[0]["path"] == NAME
    assert run("regen")[0] == 0
    assert run("check")[0] == 0
