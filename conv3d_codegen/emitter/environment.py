# SPDX-License-Identifier: Apache-2.0
"""The one Jinja environment: how templates are read and which filters they may use."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from conv3d_codegen.emitter.text import call_text, dtype_text, keyword_texts
from conv3d_codegen.sources import template_root


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
    env.filters["call"] = lambda arguments, head, depth=1: call_text(head, arguments, depth)
    env.tests["allocation"] = lambda item: item.__class__.__name__ == "Buffer" and not item.alias_of
    env.tests["alias"] = lambda item: item.__class__.__name__ == "Buffer" and bool(item.alias_of)
    env.tests["comment"] = lambda item: item.__class__.__name__ == "Comment"
    env.tests["assignment"] = lambda item: item.__class__.__name__ == "Assignment"
    return env
