# SPDX-License-Identifier: Apache-2.0
"""Folders on disk that are there whole or not at all, and are checked when they are read."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from conv3d_codegen.cache.records import (
    Artifact,
    FileInfo,
    KernelInfo,
    StoredKernel,
    take,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

META = "meta.json"
COMPILED = "compiled"
UNFINISHED = ".new-"  # a folder that is being written
DOOMED = ".old-"  # a folder that is being deleted


def write_kernel(folder: Path, kernel: StoredKernel) -> None:
    """Make an entry; one that appeared meanwhile stays, because it says the same."""
    files = {kernel.info.file.name: kernel.source.encode()}
    _write_folder(folder, files, {"kernel": kernel.info.to_plain()})


def read_info(folder: Path) -> KernelInfo:
    """Read what an entry says of its kernel, without looking at the text.

    Raises:
        OSError: there is no such entry, or it cannot be read.
        ValueError: it is damaged; the message says how.
    """
    return KernelInfo.from_plain(take(_read_meta(folder), "kernel", dict))


def read_kernel(folder: Path) -> StoredKernel:
    """Read an entry and check it; raises like `read_info`."""
    info = read_info(folder)
    return StoredKernel.checked(info, _read_file(folder, info.file))


def write_artifact(folder: Path, artifact: Artifact) -> None:
    """Put compiled files into an entry, in the place of earlier ones of the same compiler."""
    place = folder / COMPILED / artifact.compiler
    files = [FileInfo.of(name, artifact.files[name]) for name in sorted(artifact.files)]
    meta = {
        "compiler": artifact.compiler,
        "files": [asdict(file) for file in files],
    }
    delete_folder(place)
    _write_folder(place, artifact.files, meta)


def artifact_folders(folder: Path) -> list[Path]:
    """Return the folders of compiled files in an entry."""
    return visible_folders(folder / COMPILED)


def read_artifact(place: Path) -> Artifact:
    """Read one folder of compiled files and check it; raises like `read_info`."""
    meta = _read_meta(place)
    files = [FileInfo.from_plain(item) for item in take(meta, "files", list)]
    contents = {file.name: _read_file(place, file) for file in files}
    return Artifact(take(meta, "compiler", str), contents)


def delete_folder(folder: Path) -> None:
    """Make a folder disappear in one step, then delete it; one that is not there is fine."""
    doomed = folder.with_name(DOOMED + secrets.token_hex(6))
    try:
        os.replace(folder, doomed)
    except FileNotFoundError:
        return
    shutil.rmtree(doomed, ignore_errors=True)


def visible_folders(place: Path) -> list[Path]:
    """Return the finished folders in a place, by name."""
    if not place.is_dir():
        return []
    return sorted(
        child for child in place.iterdir() if child.is_dir() and not child.name.startswith(".")
    )


def _write_folder(folder: Path, files: Mapping[str, bytes], meta: Mapping[str, Any]) -> None:
    """Write files beside the place they belong, meta.json last, and move them there together."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(UNFINISHED + secrets.token_hex(6))
    temporary.mkdir()
    try:
        for name, content in files.items():
            (temporary / name).write_bytes(content)
        text = json.dumps(meta, indent=2, sort_keys=True) + "\n"
        (temporary / META).write_text(text, encoding="utf-8")
        os.replace(temporary, folder)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        # A folder cannot take the place of one that is not empty: then somebody else was faster.
        if not (isinstance(error, OSError) and (folder / META).exists()):
            raise


def _read_meta(folder: Path) -> Any:
    """Read meta.json; a folder without one is damaged."""
    try:
        return json.loads((folder / META).read_text(encoding="utf-8"))
    except FileNotFoundError:
        if folder.exists():
            raise ValueError(f"{META} is missing") from None
        raise


def _read_file(folder: Path, file: FileInfo) -> bytes:
    try:
        content = (folder / file.name).read_bytes()
    except FileNotFoundError:
        raise ValueError(f"{file.name} is missing") from None
    file.check(content)
    return content
