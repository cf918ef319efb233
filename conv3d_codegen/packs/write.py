# SPDX-License-Identifier: Apache-2.0
"""Writing a pack: members as they come, the manifest last, in the place of its file in one step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conv3d_codegen.cache import FileInfo
from conv3d_codegen.errors import MalformedPack
from conv3d_codegen.files import not_ours, replacing
from conv3d_codegen.packs.archive import ArchiveWriter
from conv3d_codegen.packs.manifest import MANIFEST, CompiledFiles, Manifest, PackEntry
from conv3d_codegen.packs.pack import Pack, PackMember, load_pack

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from conv3d_codegen.cache import Artifact, KernelInfo, StoredKernel


def pack_entry(info: KernelInfo, layers: Iterable[str], artifacts: Iterable[Artifact]) -> PackEntry:
    """Describe a kernel and what was compiled from it, for a manifest."""
    compiled = (
        CompiledFiles(
            artifact.compiler,
            tuple(FileInfo.of(name, artifact.files[name]) for name in sorted(artifact.files)),
        )
        for artifact in artifacts
    )
    by_compiler = sorted(compiled, key=lambda files: files.compiler)
    return PackEntry(info, tuple(layers), tuple(by_compiler))


def pack_member(
    kernel: StoredKernel, layers: Iterable[str], artifacts: Iterable[Artifact]
) -> PackMember:
    """Put a kernel and what was compiled from it together, for a pack."""
    in_order = sorted(artifacts, key=lambda artifact: artifact.compiler)
    return PackMember(pack_entry(kernel.info, layers, in_order), kernel, tuple(in_order))


def write_pack(path: Path, members: Iterable[PackMember]) -> Pack:
    """Write a pack of members that come in the order of their keys; one is held at a time.

    `path` is replaced in one step, when everything has been written.
    """
    entries = []
    with replacing(path) as stream, ArchiveWriter(stream) as archive:
        for member in members:
            entry = member.entry
            archive.add(entry.path, member.kernel.source.encode())
            for compiled, artifact in zip(entry.compiled, member.artifacts, strict=True):
                for file in compiled.files:
                    content = artifact.files[file.name]
                    archive.add(entry.compiled_path(compiled, file), content)
            entries.append(entry)
        manifest = Manifest.of(entries)
        archive.add(MANIFEST, manifest.to_bytes())
    return Pack(path, manifest)


def check_replaceable(path: Path, *, force: bool) -> None:
    """Refuse to replace a file that is not a pack.

    Raises:
        RequestError: there is such a file, and `force` is false.
    """
    if force or not path.exists():
        return
    try:
        load_pack(path)
    except MalformedPack:
        raise not_ours(path, "is not a pack that can be read") from None
