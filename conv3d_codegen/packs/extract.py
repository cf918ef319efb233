# SPDX-License-Identifier: Apache-2.0
"""Writing the kernels of a pack as files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conv3d_codegen.files import not_ours, replacing, write_product

if TYPE_CHECKING:
    from pathlib import Path

    from conv3d_codegen.packs.pack import Pack


def extract(pack: Pack, folder: Path, *, force: bool) -> tuple[Path, ...]:
    """Write every kernel, and below `compiled` what was compiled from it; return the files.

    All of the pack is checked before anything is written. File names come from the keys, which
    are checked too, so nothing is written outside the folder.

    Raises:
        MalformedPack: something in the pack is damaged; nothing was written.
        RequestError: a file is in the way that this tool did not write, and `force` is false.
    """
    pack.check()
    written = []
    for member in pack.members():
        path = folder / member.entry.info.file.name
        write_product(path, member.kernel.source, force=force)
        written.append(path)
        for artifact in member.artifacts:
            place = folder / "compiled" / member.entry.info.name / artifact.compiler
            for name in sorted(artifact.files):
                _write_compiled(place / name, artifact.files[name], force=force)
                written.append(place / name)
    return tuple(written)


def _write_compiled(path: Path, content: bytes, *, force: bool) -> None:
    if not force and path.exists() and path.read_bytes() != content:
        raise not_ours(path, "is another than the pack's")
    with replacing(path) as stream:
        stream.write(content)
