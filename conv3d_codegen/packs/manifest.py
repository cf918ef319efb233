# SPDX-License-Identifier: Apache-2.0
"""The manifest of a pack, as values and as JSON."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from conv3d_codegen.cache import FileInfo, KernelInfo
from conv3d_codegen.cache.records import printable, safe_name, take

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

MANIFEST = "manifest.json"
FORMAT = "conv3d_codegen pack"
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class CompiledFiles:
    """What one version of a compiler made of a kernel."""

    compiler: str
    files: tuple[FileInfo, ...]

    @classmethod
    def from_plain(cls, value: Any) -> Self:
        """Read what `asdict` wrote; ValueError says what is wrong with it."""
        compiler = safe_name(take(value, "compiler", str))
        return cls(compiler, tuple(map(FileInfo.from_plain, take(value, "files", list))))


@dataclass(frozen=True, slots=True)
class PackEntry:
    """A kernel of a pack: what it is, the layers it is for, what was compiled from it."""

    info: KernelInfo
    layers: tuple[str, ...] = ()
    compiled: tuple[CompiledFiles, ...] = ()

    @property
    def path(self) -> str:
        """Where the text is."""
        return f"kernels/{self.info.file.name}"

    def compiled_path(self, compiled: CompiledFiles, file: FileInfo) -> str:
        """Where a compiled file is."""
        return f"compiled/{self.info.name}/{compiled.compiler}/{file.name}"

    def members(self) -> Iterator[tuple[str, FileInfo]]:
        """Every member of the archive that belongs to the kernel."""
        yield self.path, self.info.file
        for compiled in self.compiled:
            for file in compiled.files:
                yield self.compiled_path(compiled, file), file

    def to_plain(self) -> dict[str, Any]:
        """Write as JSON data."""
        return self.info.to_plain() | {
            "layers": list(self.layers),
            "compiled": [asdict(compiled) for compiled in self.compiled],
        }

    @classmethod
    def from_plain(cls, value: Any) -> Self:
        """Read what `to_plain` wrote; ValueError says what is wrong with it."""
        info = KernelInfo.from_plain(value)
        layers = take(value, "layers", list)
        if not all(isinstance(layer, str) for layer in layers):
            raise ValueError(f"the layers of {info.key} are not all text")
        compiled = map(CompiledFiles.from_plain, take(value, "compiled", list))
        return cls(info, tuple(map(printable, layers)), tuple(compiled))


@dataclass(frozen=True)
class Manifest:
    """The kernels of a pack, by key."""

    entries: tuple[PackEntry, ...]

    @classmethod
    def of(cls, entries: Iterable[PackEntry]) -> Self:
        """Put entries in their order."""
        return cls(tuple(sorted(entries, key=lambda entry: entry.info.key)))

    @cached_property
    def by_key(self) -> Mapping[str, PackEntry]:
        """Find an entry by the key of its geometry."""
        return {entry.info.key: entry for entry in self.entries}

    @cached_property
    def members(self) -> Mapping[str, FileInfo]:
        """Every member that the archive should have beside the manifest."""
        return dict(member for entry in self.entries for member in entry.members())

    @property
    def digest(self) -> str:
        """SHA-256 of the manifest: the identity of the pack's content, however it is compressed."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def to_bytes(self) -> bytes:
        """Write as the one JSON text that these entries have."""
        kernels = [entry.to_plain() for entry in self.entries]
        document = {"format": FORMAT, "schema": SCHEMA, "kernels": kernels}
        return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode()

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Read what `to_bytes` wrote; ValueError says what is wrong with it."""
        document = json.loads(text, object_pairs_hook=_distinct)
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise ValueError(f"{MANIFEST} does not say that this is a {FORMAT}")
        schema = take(document, "schema", int)
        if schema > SCHEMA:
            raise ValueError(f"it has schema {schema}, and this version reads up to {SCHEMA}")
        manifest = cls.of(map(PackEntry.from_plain, take(document, "kernels", list)))
        if len(manifest.by_key) != len(manifest.entries):
            raise ValueError(f"{MANIFEST} lists a key twice")
        if len(manifest.members) != sum(1 for entry in manifest.entries for _ in entry.members()):
            raise ValueError(f"{MANIFEST} lists a compiled file twice")
        return manifest


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Read a JSON object in which no name stands twice."""
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError(f"{MANIFEST} has an object that names a field twice")
    return table
