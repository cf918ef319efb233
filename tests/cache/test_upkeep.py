# SPDX-License-Identifier: Apache-2.0
"""Listing, verifying, pruning and clearing a cache."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from conv3d_codegen.cache import Artifact, KernelCache
from conv3d_codegen.cache.upkeep import (
    clear,
    list_entries,
    prune,
    set_aside_folders,
    verify_cache,
)
from conv3d_codegen.errors import RequestError
from stored_kernels import OPTIONS, geometry, stored

if TYPE_CHECKING:
    from pathlib import Path

DAY = 86400.0


@pytest.fixture
def cache(tmp_path: Path) -> KernelCache:
    """Fill a cache with kernels last used 0, 1, 2 and 3 days ago."""
    filled = KernelCache(tmp_path)
    for days in range(4):
        filled.put(stored(geometry(days + 1)))
    now = time.time()
    for entry in list_entries(filled):
        assert entry.info is not None
        used = now - (entry.info.geometry.batch - 1) * DAY
        os.utime(entry.folder / "meta.json", (used, used))
    return filled


def batches(cache: KernelCache) -> list[int]:
    return [entry.info.geometry.batch for entry in list_entries(cache) if entry.info]


def test_entries_are_listed_by_last_use(cache: KernelCache) -> None:
    assert batches(cache) == [1, 2, 3, 4]
    assert cache.get(geometry(3), OPTIONS) is not None
    assert batches(cache) == [3, 1, 2, 4]


def test_an_entry_shows_its_size_and_compilers(cache: KernelCache) -> None:
    before = list_entries(cache)[0]
    cache.put_artifact(stored(geometry(1)), Artifact("neuronx-cc-2.21.1", {"log.txt": b"x" * 5000}))
    after = list_entries(cache)[0]
    assert before.folder == after.folder
    assert before.size + 5000 < after.size < before.size + 6000
    assert (before.compilers, after.compilers) == ((), ("neuronx-cc-2.21.1",))


def test_an_empty_cache_is_no_error(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path / "none")
    assert list_entries(cache) == ()
    assert verify_cache(cache) == ()
    assert prune(cache, max_age=0).entries == 0
    assert clear(cache).entries == 0
    assert not cache.folder.exists()


def test_prune_by_age(cache: KernelCache) -> None:
    removed = prune(cache, max_age=1.5 * DAY)
    assert (removed.entries, batches(cache)) == (2, [1, 2])


def test_prune_by_size_keeps_what_was_used_last(cache: KernelCache) -> None:
    sizes = [entry.size for entry in list_entries(cache)]
    assert prune(cache, max_size=sum(sizes)).entries == 0
    removed = prune(cache, max_size=sum(sizes) - 1)
    assert (removed.entries, removed.size) == (1, sizes[-1])
    assert batches(cache) == [1, 2, 3]
    assert prune(cache, max_size=0).entries == 3


def test_prune_without_limits_deletes_only_what_is_of_no_use(cache: KernelCache) -> None:
    (target,) = {entry.folder.parent for entry in list_entries(cache)}
    (next(target.iterdir()) / "meta.json").write_text("damaged")
    for batch in range(1, 5):
        cache.get(geometry(batch), OPTIONS)
    assert len(set_aside_folders(cache)) == 1
    dead, writing = target / ".new-1", target / ".new-2"
    for folder in (dead, writing):
        (folder / "part").mkdir(parents=True)
    os.utime(dead, (0, 0))
    assert prune(cache).entries == 0
    assert set_aside_folders(cache) == []
    assert (dead.exists(), writing.exists()) == (False, True)
    assert len(list_entries(cache)) == 3


def test_verify_names_what_is_damaged_and_changes_nothing(cache: KernelCache) -> None:
    cache.put_artifact(stored(geometry(2)), Artifact("cc", {"kernel.neff": b"code"}))
    assert verify_cache(cache) == ()
    (code,) = cache.root.rglob("kernel.neff")
    code.write_bytes(b"edoc")
    text = next(list_entries(cache)[0].folder.glob("*.py"))
    text.write_text("changed")
    problems = verify_cache(cache)
    assert {problem.folder for problem in problems} == {code.parent, text.parent}
    assert text.name in {problem.message.split()[0] for problem in problems}
    assert len(list_entries(cache)) == 4


def test_an_unreadable_entry_is_listed_and_can_be_pruned(cache: KernelCache) -> None:
    folder = list_entries(cache)[0].folder
    (folder / "meta.json").write_text("{")
    assert [entry.folder for entry in list_entries(cache) if entry.info is None] == [folder]
    prune(cache, max_size=0)
    assert list_entries(cache) == ()


def test_clear_deletes_every_entry_and_only_of_a_cache(cache: KernelCache) -> None:
    assert clear(cache).entries == 4
    assert list_entries(cache) == ()
    assert cache.get(geometry(1), OPTIONS) is None


def test_clear_refuses_a_folder_that_is_not_a_cache(tmp_path: Path) -> None:
    precious = tmp_path / "v1" / "thesis" / "chapter.txt"
    precious.parent.mkdir(parents=True)
    precious.write_text("words")
    with pytest.raises(RequestError, match=r"holds no CACHEDIR\.TAG"):
        clear(KernelCache(tmp_path))
    assert precious.read_text() == "words"
