# SPDX-License-Identifier: Apache-2.0
"""The files that shape a kernel's text: the stages that make it and the templates they print."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import metadata
from pathlib import Path

PACKAGE = Path(__file__).parent

# Everything that emission imports from this package.
STAGES = (
    "api.py",
    "collector.py",
    "dtypes.py",
    "emitter",
    "errors.py",
    "geometry",
    "keys.py",
    "lower",
    "maps.py",
    "planner",
    "program",
    "sources.py",
    "symbolic.py",
    "targets",
)

# Libraries whose own printing ends up in the text.
LIBRARIES = ("jinja2", "sympy")


def template_root() -> Path:
    """Folder of the templates: inside an installed wheel, or beside the package in a checkout."""
    candidates = (PACKAGE / "_templates", PACKAGE.parent / "templates")
    for candidate in candidates:
        if (candidate / "kernel.py.jinja").is_file():
            return candidate
    raise FileNotFoundError(f"no kernel templates in {candidates[0]} or {candidates[1]}")


@cache
def generator_digest() -> str:
    """SHA-256 over the stages' sources, the templates and the libraries' versions."""
    stages = digest_files(PACKAGE, STAGES, "*.py")
    templates = digest_files(template_root(), (".",), "*.jinja")
    libraries = (f"{name} {metadata.version(name)}" for name in LIBRARIES)
    return hashlib.sha256("\n".join((stages, templates, *libraries)).encode()).hexdigest()


def digest_files(root: Path, names: tuple[str, ...], pattern: str) -> str:
    """SHA-256 over the names and contents of files, and of the matching files in folders."""
    digest = hashlib.sha256()
    for name in names:
        place = root / name
        for file in sorted(place.rglob(pattern), key=Path.as_posix) if place.is_dir() else [place]:
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            digest.update(f"{file.relative_to(root).as_posix()} {content}\n".encode())
    return digest.hexdigest()
