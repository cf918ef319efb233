# SPDX-License-Identifier: Apache-2.0
"""The one Jinja environment: where templates lie and which filters they may use."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from conv3d_codegen.emit.text import call_text, dtype_text, keyword_texts


def template_root() -> Path:
    """Folder of the templates: inside an installed wheel, or beside the package in a checkout."""
    package = Path(str(files("conv3d_codegen")))
    candidates = (package / "_templates", package.parent / "templates")
    for candidate in candidates:
        if (candidate / "kernel.py.jinja").is_file():
            return candidate
    raise FileNotFoundError(f"no kernel templates in {candidates[0]} or {candidates[1]}")


@cache
def environment() -> Environment:
    """Build the environment on first use; a name that the context lacks is an error."""
    env = Environment(
        loader=FileSystemLoader(template_root(), encoding="utf-8"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    env.filters["keywords"] = keyword_texts
    env.filters["dtype"] = dtype_text
    env.filters["call"] = lambda arguments, head: call_text(head, arguments)
    env.tests["allocation"] = lambda item: item.__class__.__name__ == "Buffer" and not item.alias_of
    env.tests["alias"] = lambda item: item.__class__.__name__ == "Buffer" and bool(item.alias_of)
    env.tests["comment"] = lambda item: item.__class__.__name__ == "Comment"
    return env
