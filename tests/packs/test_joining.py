# SPDX-License-Identifier: Apache-2.0
"""Comparing, merging, extracting and installing packs."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from conv3d_codegen.cache import Artifact
from conv3d_codegen.errors import ConflictingPacks, RequestError
from conv3d_codegen.packs import installed_packs, load_pack
from conv3d_codegen.packs.compare import compare_packs
from conv3d_codegen.packs.extract import extract
from conv3d_codegen.packs.merge import merge_packs
from conv3d_codegen.packs.wheel import write_wheel
from conv3d_codegen.packs.write import pack_member, write_pack
from stored_kernels import geometry, packed, stored

if TYPE_CHECKING:
    from pathlib import Path

    from conv3d_codegen.packs import Pack

OLD, NEW = Artifact("cc-1", {"kernel.neff": b"old"}), Artifact("cc-2", {"kernel.neff": b"new"})


def compiled(path: Path, artifact: Artifact, layer: str) -> Pack:
    return write_pack(path, [pack_member(stored(geometry(1)), [layer], [artifact])])


def test_equal_packs_do_not_differ(tmp_path: Path) -> None:
    assert not compare_packs(packed(tmp_path / "a", 1, 2), packed(tmp_path / "b", 1, 2))


def test_differences_are_told_by_key_and_by_number(tmp_path: Path) -> None:
    a, b = packed(tmp_path / "a", 1, 2), packed(tmp_path / "b", 2, 3, text="# shorter")
    found = compare_packs(a, b)
    assert found
    assert (found.only_a, found.only_b) == ((geometry(1).key(),), (geometry(3).key(),))
    (changed,) = found.changed
    assert changed.key == geometry(2).key()
    assert changed.differences["instructions"] == (len(stored(geometry(2)).source), 9)
    assert set(changed.differences) == {"instructions", "sha256"}


def test_artifacts_and_layers_count_as_differences(tmp_path: Path) -> None:
    a, b = compiled(tmp_path / "a", OLD, "net/x"), compiled(tmp_path / "b", NEW, "net/y")
    (changed,) = compare_packs(a, b).changed
    assert changed.differences == {"layers": ("net/x", "net/y"), "compiled by": ("cc-1", "cc-2")}


def test_merged_packs_hold_everything(tmp_path: Path) -> None:
    a, b = packed(tmp_path / "a", 1, 2), packed(tmp_path / "b", 2, 3)
    merged = merge_packs([a, b], tmp_path / "m")
    assert merged.manifest == load_pack(tmp_path / "m").manifest
    assert (tmp_path / "m").read_bytes() == packed(tmp_path / "all", 1, 2, 3).path.read_bytes()
    assert merge_packs([b, a], tmp_path / "n").manifest == merged.manifest


def test_a_pack_can_be_merged_into_its_own_file(tmp_path: Path) -> None:
    a, b = packed(tmp_path / "a", 1, 2), packed(tmp_path / "b", 3)
    merge_packs([a, b], tmp_path / "a")
    assert load_pack(tmp_path / "a").problems() == ()
    assert len(load_pack(tmp_path / "a")) == 3


def test_merging_joins_layers_and_artifacts_of_equal_kernels(tmp_path: Path) -> None:
    a, b = compiled(tmp_path / "a", OLD, "net/x"), compiled(tmp_path / "b", NEW, "net/y")
    (member,) = merge_packs([a, b], tmp_path / "m").members()
    assert member.entry.layers == ("net/x", "net/y")
    assert member.artifacts == (OLD, NEW)


def test_different_kernels_of_one_geometry_need_a_decision(tmp_path: Path) -> None:
    a, b = packed(tmp_path / "a", 1, 2), packed(tmp_path / "b", 2, text="# newer")
    with pytest.raises(ConflictingPacks, match=f"{geometry(2).key()}.*--prefer"):
        merge_packs([a, b], tmp_path / "m")
    assert not (tmp_path / "m").exists()
    first, last = (
        merge_packs([a, b], tmp_path / "f", "first"),
        merge_packs([a, b], tmp_path / "l", "last"),
    )
    assert first.find(geometry(2)) == stored(geometry(2))
    assert last.find(geometry(2)) == stored(geometry(2), text="# newer")
    assert last.find(geometry(1)) == stored(geometry(1))


def test_extracted_files_are_the_kernels(tmp_path: Path) -> None:
    out = tmp_path / "out"
    pack = compiled(tmp_path / "a", OLD, "net/x")
    name = geometry(1).module_name()
    written = extract(pack, out, force=False)
    assert written == (out / f"{name}.py", out / "compiled" / name / "cc-1" / "kernel.neff")
    assert written[0].read_text() == stored(geometry(1)).source
    assert written[1].read_bytes() == b"old"
    assert extract(pack, out, force=False) == written


@pytest.mark.parametrize("which", [0, 1])
def test_extraction_does_not_replace_what_others_wrote(tmp_path: Path, which: int) -> None:
    pack = compiled(tmp_path / "a", OLD, "net/x")
    file = extract(pack, tmp_path / "out", force=False)[which]
    file.write_text("mine")
    with pytest.raises(RequestError, match="not-ours"):
        extract(pack, tmp_path / "out", force=False)
    assert file.read_text() == "mine"
    extract(pack, tmp_path / "out", force=True)
    assert file.read_text() != "mine"


def test_an_unpacked_wheel_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack = packed(tmp_path / "a", 1, 2)
    wheel = write_wheel(pack, tmp_path, "Some.Net-kernels", "1.0")
    assert wheel.name == "some_net_kernels-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as zipped:
        zipped.extractall(tmp_path / "site")
    assert not list((tmp_path / "site").rglob("*.py"))  # it is data
    before = installed_packs()
    monkeypatch.syspath_prepend(tmp_path / "site")
    (found,) = (installed for installed in installed_packs() if installed not in before)
    assert found.manifest == pack.manifest
    assert found.find(geometry(2)) == stored(geometry(2))


def test_a_damaged_installed_pack_is_logged_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with zipfile.ZipFile(write_wheel(packed(tmp_path / "a", 1), tmp_path, "broken", "1")) as zipped:
        zipped.extractall(tmp_path / "site")
    (tmp_path / "site" / "broken" / "kernels.pack").write_bytes(b"PK")
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert all("site" not in str(pack.path) for pack in installed_packs())
    assert "installed pack broken is ignored" in caplog.text


def test_pip_installs_and_uninstalls_the_wheel(tmp_path: Path) -> None:
    wheel = write_wheel(packed(tmp_path / "a", 1), tmp_path, "net-kernels", "2.0rc1")
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-deps"]
    done = subprocess.run(
        [*pip, "--no-index", "--target", site, wheel], capture_output=True, text=True, check=False
    )
    if "No module named pip" in done.stderr:
        pytest.skip("this environment has no pip")
    assert done.returncode == 0, done.stderr
    assert (site / "net_kernels" / "kernels.pack").read_bytes() == (tmp_path / "a").read_bytes()
    assert (site / "net_kernels-2.0rc1.dist-info" / "entry_points.txt").exists()


def test_the_same_pack_gives_the_same_wheel(tmp_path: Path) -> None:
    pack = packed(tmp_path / "a", 1)
    first = write_wheel(pack, tmp_path / "x", "net", "1")
    assert first.read_bytes() == write_wheel(pack, tmp_path / "y", "net", "1").read_bytes()


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("", "1"),
        ("-net", "1"),
        ("a/b", "1"),
        ("net\nRequires-Dist: x", "1"),
        ("net", "one"),
        ("net", "1\n"),
    ],
)
def test_names_and_versions_that_no_package_has_are_refused(
    tmp_path: Path, name: str, version: str
) -> None:
    pack = packed(tmp_path / "a", 1)
    with pytest.raises(RequestError, match=r"wheel-(name|version)"):
        write_wheel(pack, tmp_path / "out", name, version)
    assert not (tmp_path / "out").exists()
