# SPDX-License-Identifier: Apache-2.0
"""What caches and packs hold, as plain values that are checked whenever they are read back."""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Self

from conv3d_codegen.geometry import ConvGeometry
from conv3d_codegen.planner.options import EmitOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

_SAFE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,254}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file's name and what proves that its content is the one meant."""

    name: str
    sha256: str
    size: int

    @classmethod
    def of(cls, name: str, content: bytes) -> Self:
        """Describe a file."""
        return cls(name, hashlib.sha256(content).hexdigest(), len(content))

    @classmethod
    def from_plain(cls, value: Any) -> Self:
        """Read what `asdict` wrote; ValueError says what is wrong with it."""
        sha256 = _matching(take(value, "sha256", str), _SHA256, "a SHA-256")
        return cls(safe_name(take(value, "name", str)), sha256, take(value, "size", int))

    def check(self, content: bytes) -> None:
        """ValueError unless the content is the one described."""
        if len(content) != self.size:
            raise ValueError(f"{self.name} has {len(content)} bytes instead of {self.size}")
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise ValueError(f"{self.name} does not have the SHA-256 that it should have")


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """What is known of a kernel beside its text.

    recipe: digest of everything that shaped the text.
    generator: name and version of the program that emitted it.
    summary: plain numbers about the plan, for tables and comparisons.
    """

    key: str
    options: EmitOptions
    recipe: str
    generator: str
    file: FileInfo
    summary: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Name of the kernel function."""
        return self.file.name.removesuffix(".py")

    @property
    def geometry(self) -> ConvGeometry:
        """The problem that the kernel solves."""
        return ConvGeometry.parse(self.key)

    def to_plain(self) -> dict[str, Any]:
        """Write as JSON data."""
        return {field.name: getattr(self, field.name) for field in fields(self)} | {
            "options": asdict(self.options),
            "file": asdict(self.file),
            "summary": dict(self.summary),
        }

    @classmethod
    def from_plain(cls, value: Any) -> Self:
        """Read what `to_plain` wrote; ValueError says what is wrong with it."""
        file = FileInfo.from_plain(take(value, "file", dict))
        key = take(value, "key", str)
        expected = f"{ConvGeometry.parse(key).module_name()}.py"
        if file.name != expected:
            raise ValueError(f"the kernel of {key} is in {file.name} instead of {expected}")
        return cls(
            key=key,
            options=_options(take(value, "options", dict)),
            recipe=_matching(take(value, "recipe", str), _SHA256, "a SHA-256"),
            generator=printable(take(value, "generator", str)),
            file=file,
            summary=take(value, "summary", dict),
        )


@dataclass(frozen=True, slots=True)
class StoredKernel:
    """A kernel's text with what is known of it; nothing slow is needed to have one."""

    info: KernelInfo
    source: str

    @classmethod
    def checked(cls, info: KernelInfo, content: bytes) -> Self:
        """Take text that was read back; ValueError unless it is the one described."""
        info.file.check(content)
        return cls(info, content.decode())


@dataclass(frozen=True, slots=True)
class Artifact:
    """What one version of a compiler made of a kernel: files by name, such as code and log."""

    compiler: str
    files: Mapping[str, bytes]

    def __post_init__(self) -> None:
        for name in (self.compiler, *self.files):
            safe_name(name)


def take(value: Any, name: str, kind: type[Any]) -> Any:
    """Return a field of a JSON object; ValueError unless it is there and of that kind."""
    if not isinstance(value, dict):
        raise ValueError(f"{value!r:.60} is not an object")
    found = value.get(name)
    if not isinstance(found, kind) or (kind is int and (isinstance(found, bool) or found < 0)):
        raise ValueError(f"{name} is {found!r:.60}")
    return found


def safe_name(text: str) -> str:
    """Return the name of a file or folder; ValueError if it could mean another place."""
    return _matching(text, _SAFE_NAME, "a safe file name")


def printable(text: str) -> str:
    """Return text that is to be shown; ValueError if it could do more than show itself."""
    if not text.isprintable():
        raise ValueError(f"{text!r:.60} is not printable")
    return text


def _matching(text: str, pattern: re.Pattern[str], meaning: str) -> str:
    if pattern.fullmatch(text) is None:
        raise ValueError(f"{text!r:.60} is not {meaning}")
    return text


def _options(value: dict[str, Any]) -> EmitOptions:
    """Read options; those that did not exist when they were written have their defaults."""
    kinds = {field.name: type(field.default) for field in fields(EmitOptions)}
    unknown = sorted(value.keys() - kinds.keys())
    if unknown:
        raise ValueError(f"there is no option {unknown[0]!r:.60}")
    return EmitOptions(**{name: take(value, name, kinds[name]) for name in value})
