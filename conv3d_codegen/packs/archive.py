# SPDX-License-Identifier: Apache-2.0
"""Zip archives: written so that equal content is equal bytes, read without believing them."""

from __future__ import annotations

import stat
import zipfile
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

from conv3d_codegen.errors import MalformedPack

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# A kernel's text is a few megabytes and a compiled one tens of them; a thousand layers are a large
# model. What is far above is an accident or an attack.
MAX_MEMBERS = 100_000
MAX_MEMBER_BYTES = 1 << 30
MAX_TOTAL_BYTES = 1 << 36

# The earliest time that a zip archive can state, because no clock may show in a product.
_EPOCH = (1980, 1, 1, 0, 0, 0)
_UNIX = 3
# Kernels are so repetitive that the levels above 3 take three times as long to save a quarter.
_LEVEL = 3

ACCEPTED = "a whole pack, as `pack build` writes it"


class ArchiveWriter:
    """Adds members to a zip archive, with nothing in it but their names and contents."""

    def __init__(self, stream: BinaryIO, level: int = _LEVEL) -> None:
        """Start an archive; level 0 stores members as they are."""
        method = zipfile.ZIP_DEFLATED if level else zipfile.ZIP_STORED
        self._zip = zipfile.ZipFile(stream, "w", method, compresslevel=level)

    def __enter__(self) -> ArchiveWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def add(self, name: str, content: bytes) -> None:
        """Add a member."""
        info = zipfile.ZipInfo(name, _EPOCH)
        info.create_system = _UNIX
        info.external_attr = (stat.S_IFREG | 0o644) << 16
        info.compress_type = self._zip.compression
        self._zip.writestr(info, content)


class ArchiveReader:
    """Reads members of a zip archive whose table of contents has been checked."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        """Check the table of contents."""
        self._path = path
        self._zip = archive
        self._members = _checked_members(path, archive.infolist())

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of every member, as the table of contents states them."""
        return {name: info.file_size for name, info in self._members.items()}

    def read(self, name: str) -> bytes:
        """Return a member; no more is unpacked than the table of contents states."""
        if name not in self._members:
            raise malformed(self._path, f"{name} is missing")
        info = self._members[name]
        with _naming(self._path), self._zip.open(info) as stream:
            return stream.read(info.file_size)


@contextmanager
def reading(path: Path) -> Iterator[ArchiveReader]:
    """Open an archive; whatever is wrong with it is a `MalformedPack`."""
    with _naming(path):
        archive = zipfile.ZipFile(path)
    with archive:
        yield ArchiveReader(path, archive)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Turn what zipfile raises for damaged archives into one error that names the file."""
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise malformed(path, f"truncated or damaged: {error}") from None


def malformed(path: Path, problem: str) -> MalformedPack:
    """Return the error for a pack that cannot be used."""
    return MalformedPack(f"pack {path}", problem, ACCEPTED)


def _checked_members(path: Path, infos: list[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
    if len(infos) > MAX_MEMBERS:
        raise malformed(path, f"{len(infos)} members, more than {MAX_MEMBERS}")
    members: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        problem = _problem(info)
        if info.filename in members:
            problem = "stands twice"
        if problem:
            raise malformed(path, f"member {info.orig_filename!r:.200} {problem}")
        members[info.filename] = info
    total = sum(info.file_size for info in infos)
    if total > MAX_TOTAL_BYTES:
        raise malformed(path, f"{total} bytes when unpacked, more than {MAX_TOTAL_BYTES}")
    return members


def _problem(info: zipfile.ZipInfo) -> str:
    """Say what makes a member unfit; empty if it is fit."""
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in {0, stat.S_IFREG}:
        return "is no regular file"
    if info.file_size > MAX_MEMBER_BYTES:
        return f"has {info.file_size} bytes, more than {MAX_MEMBER_BYTES}"
    if info.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        return f"is compressed by method {info.compress_type}"
    if info.flag_bits & 1:
        return "is encrypted"
    return ""
