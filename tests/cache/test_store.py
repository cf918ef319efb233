# SPDX-License-Identifier: Apache-2.0
"""Looking up, keeping, and surviving damage."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from conv3d_codegen.cache import Artifact, KernelCache, StoredKernel
from conv3d_codegen.errors import CacheUnwritable
from stored_kernels import OPTIONS, geometry, stored

if TYPE_CHECKING:
    from collections.abc import Callable

    from conv3d_codegen.geometry import ConvGeometry
    from conv3d_codegen.planner.options import EmitOptions

PROBLEM = geometry()
KERNEL = stored(PROBLEM)
NEFF = Artifact("neuronx-cc-2.21.1", {"kernel.neff": b"\0code", "log.txt": b"fine"})


@pytest.fixture
def cache(tmp_path: Path) -> KernelCache:
    return KernelCache(tmp_path / "cache")


def entry_of(cache: KernelCache) -> Path:
    (meta,) = cache.root.glob("*/*/meta.json")
    return meta.parent


def refuse(problem: ConvGeometry, options: EmitOptions) -> NoReturn:
    pytest.fail(f"{problem.key()} was emitted")


def test_a_kernel_is_emitted_once(cache: KernelCache) -> None:
    assert cache.get(PROBLEM, OPTIONS) is None
    assert not cache.peek(PROBLEM, OPTIONS)
    assert cache.fetch(PROBLEM, OPTIONS, stored) == KERNEL
    assert cache.peek(PROBLEM, OPTIONS)
    assert cache.fetch(PROBLEM, OPTIONS, refuse) == KERNEL
    assert KernelCache(cache.folder).get(PROBLEM, OPTIONS) == KERNEL


def test_other_options_are_another_kernel(cache: KernelCache) -> None:
    cache.put(KERNEL)
    assert cache.get(PROBLEM, replace(OPTIONS, nki="0.3")) is None
    assert cache.get(geometry(2), OPTIONS) is None


def test_the_kernel_lies_in_a_file_named_like_its_function(cache: KernelCache) -> None:
    cache.put(KERNEL)
    file = entry_of(cache) / f"{PROBLEM.module_name()}.py"
    assert file.read_text() == KERNEL.source


def test_an_entry_has_the_permissions_of_any_new_file(cache: KernelCache) -> None:
    cache.put(KERNEL)
    umask = os.umask(0)
    os.umask(umask)
    assert entry_of(cache).stat().st_mode & 0o777 == 0o777 & ~umask


def test_a_kernel_of_another_generator_is_not_kept(cache: KernelCache) -> None:
    foreign = replace(KERNEL, info=replace(KERNEL.info, recipe="0" * 64))
    with pytest.raises(ValueError, match="another generator"):
        cache.put(foreign)


def edit_meta(change: Callable[[dict], object]) -> Callable[[Path], None]:
    def damage(entry: Path) -> None:
        meta = json.loads((entry / "meta.json").read_text())
        change(meta["kernel"])
        (entry / "meta.json").write_text(json.dumps(meta))

    return damage


def kernel_file(entry: Path) -> Path:
    (file,) = entry.glob("*.py")
    return file


DAMAGES: dict[str, Callable[[Path], object]] = {
    "truncated text": lambda entry: os.truncate(kernel_file(entry), 30),
    "empty text": lambda entry: os.truncate(kernel_file(entry), 0),
    "changed text": lambda entry: kernel_file(entry).write_text("x" * len(KERNEL.source)),
    "no text": lambda entry: kernel_file(entry).unlink(),
    "no meta": lambda entry: (entry / "meta.json").unlink(),
    "empty meta": lambda entry: (entry / "meta.json").write_text(""),
    "meta is no object": lambda entry: (entry / "meta.json").write_text("[1]"),
    "meta is not text": lambda entry: (entry / "meta.json").write_bytes(b"\xff"),
    "escaping name": edit_meta(lambda meta: meta["file"].update(name="../../x.py")),
    "other name": edit_meta(lambda meta: meta["file"].update(name="x.py")),
    "no checksum": edit_meta(lambda meta: meta["file"].pop("sha256")),
    "short checksum": edit_meta(lambda meta: meta["file"].update(sha256="abc")),
    "negative size": edit_meta(lambda meta: meta["file"].update(size=-1)),
    "true size": edit_meta(lambda meta: meta["file"].update(size=True)),
    "malformed key": edit_meta(lambda meta: meta.update(key="conv9d")),
    "another key": edit_meta(lambda meta: meta.update(key=geometry(3).key())),
    "another recipe": edit_meta(lambda meta: meta.update(recipe="0" * 64)),
    "unknown option": edit_meta(lambda meta: meta["options"].update(colour="red")),
    "option of another kind": edit_meta(lambda meta: meta["options"].update(unroll=3)),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_entry_is_logged_in_one_line_set_aside_and_made_again(
    cache: KernelCache, caplog: pytest.LogCaptureFixture, damage: Callable[[Path], object]
) -> None:
    cache.put(KERNEL)
    entry = entry_of(cache)
    damage(entry)
    with caplog.at_level(logging.WARNING):
        assert cache.fetch(PROBLEM, OPTIONS, stored) == KERNEL
    (record,) = caplog.records
    assert "damaged cache entry" in record.message
    assert str(entry) in record.message
    assert "\n" not in record.message
    assert len(list((cache.root / "damaged").iterdir())) == 1
    assert cache.fetch(PROBLEM, OPTIONS, refuse) == KERNEL


def test_get_sets_damage_aside_too(cache: KernelCache) -> None:
    cache.put(KERNEL)
    kernel_file(entry_of(cache)).unlink()
    assert cache.get(PROBLEM, OPTIONS) is None
    cache.put(KERNEL)
    assert cache.get(PROBLEM, OPTIONS) == KERNEL


def test_an_entry_under_the_name_of_another_is_damage(
    cache: KernelCache, caplog: pytest.LogCaptureFixture
) -> None:
    cache.put(KERNEL)
    first = entry_of(cache)
    cache.put(stored(geometry(2)))
    (second,) = (path for path in first.parent.iterdir() if path != first)
    shutil.rmtree(first)
    shutil.copytree(second, first)
    assert cache.get(PROBLEM, OPTIONS) is None
    assert "recipe" in caplog.text


def test_artifacts_belong_to_their_kernel_and_compiler(cache: KernelCache) -> None:
    other = Artifact("neuronx-cc-2.22.0", {"kernel.neff": b"newer"})
    cache.put_artifact(KERNEL, other)
    cache.put_artifact(KERNEL, NEFF)
    assert cache.artifacts(PROBLEM, OPTIONS) == (NEFF, other)
    assert cache.artifacts(geometry(2), OPTIONS) == ()
    again = replace(NEFF, files={"kernel.neff": b"again"})
    cache.put_artifact(KERNEL, again)
    assert cache.artifacts(PROBLEM, OPTIONS) == (again, other)
    assert cache.get(PROBLEM, OPTIONS) == KERNEL


def test_a_damaged_artifact_is_set_aside_alone(
    cache: KernelCache, caplog: pytest.LogCaptureFixture
) -> None:
    cache.put_artifact(KERNEL, NEFF)
    (code,) = cache.root.rglob("kernel.neff")
    code.write_bytes(b"\0CODE")
    assert cache.artifacts(PROBLEM, OPTIONS) == ()
    assert "kernel.neff" in caplog.text
    assert cache.get(PROBLEM, OPTIONS) == KERNEL


@pytest.mark.parametrize("name", ["../x", "/x", ".x", "a/b", "a\\b", "", "a\nb"])
def test_an_artifact_cannot_leave_its_folder(name: str) -> None:
    with pytest.raises(ValueError, match="safe"):
        Artifact("neuronx-cc", {name: b""})
    with pytest.raises(ValueError, match="safe"):
        Artifact(name, {})


@pytest.mark.parametrize("failing", [1, 2])
def test_a_write_that_fails_halfway_leaves_nothing_to_read(
    cache: KernelCache, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    cache.put(stored(geometry(2)))
    calls = []

    def write(function: Callable[..., object]) -> Callable[..., object]:
        def maybe(path: Path, *arguments: Any, **more: object) -> object:
            calls.append(path)
            if len(calls) == failing:
                function(path, arguments[0][:10], **more)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return function(path, *arguments, **more)

        return maybe

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", write(Path.write_bytes))
        patch.setattr(Path, "write_text", write(Path.write_text))
        with pytest.raises(CacheUnwritable, match="no space left on device"):
            cache.put(KERNEL)
    assert len(calls) == failing
    assert cache.get(PROBLEM, OPTIONS) is None
    assert len(list(cache.root.rglob("*.py"))) == 1


def test_a_cache_below_a_file_costs_a_warning_but_not_the_kernel(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    cache = KernelCache(tmp_path / "file" / "cache")
    assert cache.fetch(PROBLEM, OPTIONS, stored) == KERNEL
    (record,) = caplog.records
    assert record.message.startswith("cache-unwritable: cache folder ")
    with pytest.raises(CacheUnwritable):
        cache.put(KERNEL)


def test_text_is_only_taken_with_its_checksum() -> None:
    content = KERNEL.source.encode()
    assert StoredKernel.checked(KERNEL.info, content) == KERNEL
    with pytest.raises(ValueError, match="bytes instead of"):
        StoredKernel.checked(KERNEL.info, content[:-1])
    with pytest.raises(ValueError, match="SHA-256"):
        StoredKernel.checked(KERNEL.info, content[:-1] + b"x")
