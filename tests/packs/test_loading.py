# SPDX-License-Identifier: Apache-2.0
"""Loading a pack: what is whole is found, what is not is one clear error."""

from __future__ import annotations

import io
import json
import stat
import zipfile
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conv3d_codegen import load_pack
from conv3d_codegen.cache import Artifact
from conv3d_codegen.errors import MalformedPack
from conv3d_codegen.packs import archive, pack
from conv3d_codegen.packs.extract import extract
from conv3d_codegen.packs.write import pack_member, write_pack
from stored_kernels import geometry, packed, stored

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conv3d_codegen.packs import Pack

NEFF = Artifact("neuronx-cc-2.21.1", {"kernel.neff": b"\0code", "log.txt": b"fine"})
KERNEL_1 = f"kernels/{geometry(1).module_name()}.py"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Write a pack of three kernels, one of them compiled."""
    members = [pack_member(stored(geometry(n)), [f"net/{n}"], [NEFF][n - 1 :]) for n in (1, 2, 3)]
    return write_pack(tmp_path / "some.pack", members).path


def read_all(loaded: Pack) -> list[object]:
    return [(member.kernel, member.artifacts) for member in loaded.members()]


def test_kernels_and_artifacts_come_back(path: Path) -> None:
    loaded = load_pack(str(path))
    assert len(loaded) == 3
    assert loaded.find(geometry(2)) == stored(geometry(2))
    assert loaded.find(geometry(4)) is None
    assert read_all(loaded) == [
        (stored(geometry(1)), (NEFF,)),
        (stored(geometry(2)), ()),
        (stored(geometry(3)), ()),
    ]
    assert loaded.manifest.by_key[geometry(3).key()].layers == ("net/3",)
    assert loaded.problems() == ()


def test_equal_content_is_equal_bytes(path: Path, tmp_path: Path) -> None:
    again = write_pack(tmp_path / "again.pack", load_pack(path).members())
    assert again.path.read_bytes() == path.read_bytes()
    assert again.manifest.digest == load_pack(path).manifest.digest
    with zipfile.ZipFile(path) as zipped:
        assert {info.date_time for info in zipped.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert {info.create_system for info in zipped.infolist()} == {3}
        assert zipped.testzip() is None


def test_the_digest_does_not_depend_on_compression(path: Path, tmp_path: Path) -> None:
    stored_path = tmp_path / "stored.pack"
    rewrite(path, stored_path, lambda members: None, zipfile.ZIP_STORED)
    assert stored_path.read_bytes() != path.read_bytes()
    assert load_pack(stored_path).manifest.digest == load_pack(path).manifest.digest


def test_an_empty_pack_is_a_pack(tmp_path: Path) -> None:
    assert len(load_pack(packed(tmp_path / "empty.pack").path)) == 0


def rewrite(
    source: Path,
    target: Path,
    change: Callable[[dict[str, bytes]], object],
    method: int = zipfile.ZIP_DEFLATED,
) -> None:
    """Copy an archive with its members changed."""
    with zipfile.ZipFile(source) as zipped:
        members = {name: zipped.read(name) for name in zipped.namelist()}
    change(members)
    with zipfile.ZipFile(target, "w", method) as zipped:
        for name, content in members.items():
            zipped.writestr(name, content)


def edit(change: Callable[[Any], object]) -> Callable[[dict[str, bytes]], None]:
    def edit_manifest(members: dict[str, bytes]) -> None:
        document = json.loads(members["manifest.json"])
        change(document)
        members["manifest.json"] = json.dumps(document).encode()

    return edit_manifest


def first(change: Callable[[Any], object]) -> Callable[[dict[str, bytes]], None]:
    return edit(lambda document: change(document["kernels"][0]))


UNFIT: dict[str, tuple[Callable[[dict[str, bytes]], object], str]] = {
    "no manifest": (lambda m: m.pop("manifest.json"), "manifest.json is missing"),
    "manifest is not JSON": (lambda m: m.update({"manifest.json": b"{"}), "Expecting"),
    "manifest is not text": (lambda m: m.update({"manifest.json": b'{"\xff'}), "decode"),
    "manifest is a list": (lambda m: m.update({"manifest.json": b"[]"}), "does not say"),
    "manifest nests": (lambda m: m.update({"manifest.json": b"[" * 100_000}), "nested too deeply"),
    "repeated field": (
        lambda m: m.update({"manifest.json": b'{"schema": 1, "schema": 2}'}),
        "names a field twice",
    ),
    "another format": (edit(lambda d: d.update(format="tar")), "does not say that this is a"),
    "future schema": (edit(lambda d: d.update(schema=2)), "schema 2, and this version reads up to"),
    "no schema": (edit(lambda d: d.pop("schema")), "schema is None"),
    "kernels is no list": (edit(lambda d: d.update(kernels={})), r"kernels is \{\}"),
    "kernel is no object": (edit(lambda d: d.update(kernels=[7])), "7 is not an object"),
    "key twice": (edit(lambda d: d["kernels"].append(d["kernels"][0])), "lists a key twice"),
    "compiled file twice": (
        first(lambda k: k["compiled"].append(k["compiled"][0])),
        "lists a compiled file twice",
    ),
    "missing kernel": (lambda m: m.pop(KERNEL_1), "is missing"),
    "missing artifact": (
        lambda m: m.pop(next(name for name in m if name.endswith(".neff"))),
        "kernel.neff is missing",
    ),
    "another member": (lambda m: m.update({"kernels/more.py": b""}), "is not in manifest.json"),
    "escaping member": (lambda m: m.update({"../evil.py": b"x"}), "'../evil.py' is not in"),
    "absolute member": (lambda m: m.update({"/etc/evil": b"x"}), "'/etc/evil' is not in"),
    "escaping kernel": (first(lambda k: k["file"].update(name="../x.py")), "not a safe file name"),
    "escaping compiler": (
        first(lambda k: k["compiled"][0].update(compiler="../..")),
        "not a safe file name",
    ),
    "escaping artifact": (
        first(lambda k: k["compiled"][0]["files"][0].update(name="/x")),
        "not a safe file name",
    ),
    "misnamed kernel": (first(lambda k: k["file"].update(name="x.py")), "is in x.py instead of"),
    "malformed key": (first(lambda k: k.update(key="conv4d")), "malformed-key"),
    "other size": (first(lambda k: k["file"].update(size=3)), "bytes instead of 3"),
    "unknown option": (first(lambda k: k["options"].update(speed=9)), "no option 'speed'"),
    "layers are no list": (first(lambda k: k.update(layers="a")), "layers is 'a'"),
    "a layer is no text": (first(lambda k: k.update(layers=[1])), "not all text"),
    "a layer with escapes": (first(lambda k: k.update(layers=["\x1b[2J"])), "not printable"),
    "no summary": (first(lambda k: k.pop("summary")), "summary is None"),
}


@pytest.mark.parametrize(("change", "problem"), UNFIT.values(), ids=UNFIT)
def test_an_unfit_pack_is_refused_in_one_line(
    path: Path, change: Callable[[dict[str, bytes]], object], problem: str
) -> None:
    rewrite(path, path, change)
    with pytest.raises(MalformedPack, match=problem) as caught:
        load_pack(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_wrong_content_is_found_when_it_is_read(path: Path) -> None:
    def change(members: dict[str, bytes]) -> None:
        members[KERNEL_1] = members[KERNEL_1].swapcase()

    rewrite(path, path, change)
    loaded = load_pack(path)
    with pytest.raises(MalformedPack, match="SHA-256"):
        loaded.find(geometry(1))
    with pytest.raises(MalformedPack, match="SHA-256"):
        read_all(loaded)
    (problem,) = loaded.problems()
    assert geometry(1).module_name() in problem
    assert loaded.find(geometry(2)) == stored(geometry(2))


def test_nothing_is_extracted_from_a_damaged_pack(path: Path, tmp_path: Path) -> None:
    last = f"kernels/{geometry(3).module_name()}.py"
    rewrite(path, path, lambda members: members.update({last: members[last].swapcase()}))
    with pytest.raises(MalformedPack):
        extract(load_pack(path), tmp_path / "out", force=True)
    assert not (tmp_path / "out").exists()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_that_stands_twice_is_refused(path: Path) -> None:
    with zipfile.ZipFile(path, "a") as zipped:
        zipped.writestr(KERNEL_1, "import os")
    with pytest.raises(MalformedPack, match="stands twice"):
        load_pack(path)


def archive_of(path: Path, info: zipfile.ZipInfo) -> Path:
    with zipfile.ZipFile(path, "w") as zipped:
        zipped.writestr(info, "content")
    return path


def test_links_encryption_and_rare_methods_are_refused(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("kernels/link.py")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with pytest.raises(MalformedPack, match="is no regular file"):
        load_pack(archive_of(tmp_path / "link.pack", link))
    rare = zipfile.ZipInfo("manifest.json")
    rare.compress_type = zipfile.ZIP_LZMA
    with pytest.raises(MalformedPack, match="method 14"):
        load_pack(archive_of(tmp_path / "rare.pack", rare))
    plain = archive_of(tmp_path / "secret.pack", zipfile.ZipInfo("manifest.json")).read_bytes()
    flags = plain.index(b"PK\x01\x02") + 8
    (tmp_path / "secret.pack").write_bytes(plain[:flags] + b"\x01" + plain[flags + 1 :])
    with pytest.raises(MalformedPack, match="is encrypted"):
        load_pack(tmp_path / "secret.pack")


@pytest.mark.parametrize(
    ("module", "limit", "problem"),
    [
        (archive, "MAX_MEMBERS", "members, more than"),
        (archive, "MAX_MEMBER_BYTES", "bytes, more than"),
        (archive, "MAX_TOTAL_BYTES", "bytes when unpacked, more than"),
        (pack, "MAX_MANIFEST_BYTES", "manifest.json has more than"),
    ],
)
def test_what_is_too_large_is_refused_unread(
    path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, limit: str, problem: str
) -> None:
    monkeypatch.setattr(module, limit, 3)
    with pytest.raises(MalformedPack, match=problem):
        load_pack(path)


def test_a_member_is_not_unpacked_beyond_its_stated_size(path: Path) -> None:
    zeros = io.BytesIO()
    with zipfile.ZipFile(zeros, "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("manifest.json", b"0" * 50_000_000)
    content = bytearray(zeros.getvalue())
    size = content.index(b"PK\x01\x02") + 24
    content[size : size + 4] = (100).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(MalformedPack, match="damaged"):
        load_pack(path)


def test_what_is_no_zip_is_no_pack(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    with pytest.raises(MalformedPack, match="accepted: a whole pack"):
        load_pack(tmp_path / "text")
    with pytest.raises(FileNotFoundError):
        load_pack(tmp_path / "none")


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_truncated_and_changed_packs_are_malformed_or_the_same(
    path: Path, data: st.DataObject
) -> None:
    content = bytearray(path.read_bytes())
    expected = read_all(load_pack(path))
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    else:
        for _ in range(data.draw(st.integers(1, 4))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    changed = path.with_name("changed.pack")
    changed.write_bytes(content)
    try:
        found = read_all(load_pack(changed))
    except MalformedPack as error:
        assert str(changed) in str(error)
    else:
        assert found == expected
