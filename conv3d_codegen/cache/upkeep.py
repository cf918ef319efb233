# SPDX-License-Identifier: Apache-2.0
"""Looking after a cache: what is in it, what is wrong with it, and making room."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conv3d_codegen.cache.entry import (
    DOOMED,
    META,
    UNFINISHED,
    artifact_folders,
    delete_folder,
    read_artifact,
    read_info,
    read_kernel,
    visible_folders,
)
from conv3d_codegen.cache.store import DAMAGED, LOCKS, TAG
from conv3d_codegen.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from conv3d_codegen.cache.records import KernelInfo
    from conv3d_codegen.cache.store import KernelCache

# A writer that has been at one entry for longer than this is dead.
UNFINISHED_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel in the cache: what it is (None if that cannot be read), its size and last use."""

    folder: Path
    info: KernelInfo | None
    size: int
    used: float  # seconds since the epoch
    compilers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """A damaged entry or artifact."""

    folder: Path
    message: str


@dataclass(frozen=True, slots=True)
class Removed:
    """How much was deleted."""

    entries: int
    size: int


def list_entries(cache: KernelCache) -> tuple[Entry, ...]:
    """List the entries, the most recently used first."""
    found = [entry for folder in _entry_folders(cache) if (entry := _entry(folder)) is not None]
    return tuple(sorted(found, key=lambda entry: (-entry.used, entry.folder.name)))


def verify_cache(cache: KernelCache) -> tuple[Problem, ...]:
    """Check every entry and every compiled file, and change nothing."""
    problems = []
    for folder in _entry_folders(cache):
        problems += _problems(folder, read_kernel)
        for place in artifact_folders(folder):
            problems += _problems(place, read_artifact)
    return tuple(problems)


def set_aside_folders(cache: KernelCache) -> list[Path]:
    """Return the damaged folders that were set aside."""
    return visible_folders(cache.root / DAMAGED)


def prune(
    cache: KernelCache, *, max_age: float | None = None, max_size: int | None = None
) -> Removed:
    """Delete what was set aside or left unfinished, then the entries unused for longest.

    Args:
        cache: the cache.
        max_age: seconds; entries that were last used before that are deleted.
        max_size: bytes; entries are deleted, oldest first, until the rest is within it.
    """
    _sweep(cache)
    now = time.time()
    kept_size = 0
    removed = []
    for entry in list_entries(cache):
        too_old = max_age is not None and now - entry.used > max_age
        too_much = max_size is not None and kept_size + entry.size > max_size
        if too_old or too_much:
            removed.append(entry)
            delete_folder(entry.folder)
        else:
            kept_size += entry.size
    return Removed(len(removed), sum(entry.size for entry in removed))


def clear(cache: KernelCache) -> Removed:
    """Delete every entry.

    Raises:
        RequestError: the folder is not a cache of this program.
    """
    if not cache.folder.exists():
        return Removed(0, 0)
    if not (cache.folder / TAG).exists():
        raise RequestError(
            "not-a-cache",
            f"{cache.folder} holds no {TAG}, so it is not a cache of this program; "
            "accepted: a folder that `cache info` shows entries of",
        )
    entries = list_entries(cache)
    delete_folder(cache.root)
    return Removed(len(entries), sum(entry.size for entry in entries))


def _target_folders(cache: KernelCache) -> list[Path]:
    return [f for f in visible_folders(cache.root) if f.name not in {LOCKS, DAMAGED}]


def _entry_folders(cache: KernelCache) -> Iterator[Path]:
    for folder in _target_folders(cache):
        yield from visible_folders(folder)


def _problems(folder: Path, read: Callable[[Path], object]) -> list[Problem]:
    try:
        read(folder)
    except OSError:
        return []  # deleted since it was listed, or not ours to read
    except ValueError as error:
        return [Problem(folder, str(error))]
    return []


def _entry(folder: Path) -> Entry | None:
    """Describe an entry; None if it is gone meanwhile, or not ours to read."""
    try:
        info = read_info(folder)
    except OSError:
        return None
    except ValueError:
        info = None
    try:
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        meta = folder / META
        used = (meta if meta.exists() else folder).stat().st_mtime
    except OSError:
        return None
    return Entry(folder, info, size, used, tuple(f.name for f in artifact_folders(folder)))


def _sweep(cache: KernelCache) -> None:
    """Delete set-aside folders, and what writers and deleters that were killed left behind."""
    for folder in set_aside_folders(cache):
        delete_folder(folder)
    now = time.time()
    places = [*_target_folders(cache), cache.root / DAMAGED]
    for place in places:
        for prefix in (UNFINISHED, DOOMED):
            for left in place.glob(f"{prefix}*"):
                if now - left.stat().st_mtime > UNFINISHED_SECONDS:
                    delete_folder(left)
