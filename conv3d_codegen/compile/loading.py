# SPDX-License-Identifier: Apache-2.0
"""Loads a kernel's text as the module it is, for the real nki."""

from __future__ import annotations

import tempfile
from functools import cache
from importlib import util
from pathlib import Path
from typing import Any


def load_kernel(source: str, name: str) -> Any:
    """Return the kernel that a file's text defines; nki is imported on the way.

    nki reads a kernel's source from its file, so the text is put into one that lives as long as
    this process. Nothing is put on `sys.path`.
    """
    path = Path(_folder().name) / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    return load_file(path)


def load_file(path: Path) -> Any:
    """Return the kernel that a file defines under the file's own name."""
    spec = util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, path.stem)


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="conv3d_codegen_")
