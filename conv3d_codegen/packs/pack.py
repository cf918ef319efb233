# SPDX-License-Identifier: Apache-2.0
"""`Pack`: a pack's manifest, and its kernels read on demand and checked."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from conv3d_codegen.cache import Artifact, StoredKernel
from conv3d_codegen.errors import MalformedPack
from conv3d_codegen.packs.archive import malformed, reading
from conv3d_codegen.packs.manifest import MANIFEST, Manifest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

    from conv3d_codegen.geometry import ConvGeometry
    from conv3d_codegen.packs.archive import ArchiveReader
    from conv3d_codegen.packs.manifest import PackEntry

MAX_MANIFEST_BYTES = 1 << 28


@dataclass(frozen=True, slots=True)
class PackMember:
    """A kernel with everything that a pack holds of it."""

    entry: PackEntry
    kernel: StoredKernel
    artifacts: tuple[Artifact, ...]


@dataclass(frozen=True, slots=True)
class Pack:
    """A loaded pack. Its file is opened when a kernel is read, and closed again."""

    path: Path
    manifest: Manifest

    def __len__(self) -> int:
        return len(self.manifest.entries)

    def find(self, geometry: ConvGeometry) -> StoredKernel | None:
        """Return the kernel of a geometry, read and checked, if the pack has one.

        Raises:
            MalformedPack: it is listed but damaged.
        """
        entry = self.manifest.by_key.get(geometry.key())
        if entry is None:
            return None
        with reading(self.path) as archive:
            return self._kernel(archive, entry)

    def member(self, key: str) -> PackMember:
        """Read everything that the pack holds of a kernel, and check it; raises like `find`."""
        with reading(self.path) as archive:
            return self._member(archive, self.manifest.by_key[key])

    def members(self) -> Iterator[PackMember]:
        """Read everything, by key, and check it; raises like `find`."""
        with reading(self.path) as archive:
            for entry in self.manifest.entries:
                yield self._member(archive, entry)

    def check(self) -> None:
        """Read everything; raises like `find` at the first damage."""
        for _ in self.members():
            pass

    def problems(self) -> tuple[str, ...]:
        """Check everything; return what is wrong, a line for each kernel."""
        found = []
        with reading(self.path) as archive:
            for entry in self.manifest.entries:
                try:
                    self._member(archive, entry)
                except MalformedPack as error:
                    found.append(error.message)
        return tuple(found)

    def _member(self, archive: ArchiveReader, entry: PackEntry) -> PackMember:
        return PackMember(entry, self._kernel(archive, entry), self._artifacts(archive, entry))

    def _kernel(self, archive: ArchiveReader, entry: PackEntry) -> StoredKernel:
        content = archive.read(entry.path)
        with self._checking():
            return StoredKernel.checked(entry.info, content)

    def _artifacts(self, archive: ArchiveReader, entry: PackEntry) -> tuple[Artifact, ...]:
        artifacts = []
        for compiled in entry.compiled:
            contents = {}
            for file in compiled.files:
                content = archive.read(entry.compiled_path(compiled, file))
                with self._checking():
                    file.check(content)
                contents[file.name] = content
            artifacts.append(Artifact(compiled.compiler, contents))
        return tuple(artifacts)

    @contextmanager
    def _checking(self) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            raise malformed(self.path, str(error)) from None


def load_pack(path: str | PathLike[str]) -> Pack:
    """Load a pack: its manifest now, its kernels when they are asked for.

    What is loaded is proved to be what the manifest states, not to be harmless: a pack is code, and
    whoever made the manifest chose it. Load packs of people whose code you would run.

    Raises:
        MalformedPack: the file is no pack, truncated, unsafe, or made by a later version.
        OSError: the file cannot be read.
    """
    place = Path(path)
    with reading(place) as archive:
        sizes = archive.sizes
        if sizes.pop(MANIFEST, 0) > MAX_MANIFEST_BYTES:
            raise malformed(place, f"{MANIFEST} has more than {MAX_MANIFEST_BYTES} bytes")
        text = archive.read(MANIFEST)
    try:
        manifest = Manifest.parse(text)
    except RecursionError:
        raise malformed(place, f"{MANIFEST} is nested too deeply") from None
    except ValueError as error:
        raise malformed(place, str(error)) from None
    _compare_contents(place, manifest, sizes)
    return Pack(place, manifest)


def _compare_contents(path: Path, manifest: Manifest, sizes: dict[str, int]) -> None:
    """Check that the archive has the members that the manifest lists, and no other."""
    members = manifest.members
    for name in sorted(members.keys() - sizes.keys()):
        raise malformed(path, f"{name} is missing")
    for name in sorted(sizes.keys() - members.keys()):
        raise malformed(path, f"member {name!r:.200} is not in {MANIFEST}")
    for name, file in members.items():
        if sizes[name] != file.size:
            raise malformed(path, f"{name} has {sizes[name]} bytes instead of {file.size}")
