# SPDX-License-Identifier: Apache-2.0
"""Program objects as Python expressions, in the layout that `ruff format` leaves alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conv3d_codegen.dtypes import dtype
from conv3d_codegen.program.instructions import CORE, Symbol
from conv3d_codegen.program.views import PatternView, SliceView, Span

if TYPE_CHECKING:
    from collections.abc import Iterable

    from conv3d_codegen.program.instructions import Argument
    from conv3d_codegen.program.views import RunTimeOffset

LINE_LENGTH = 120  # generated/ruff.toml
INDENT = "    "


def view_text(view: SliceView | PatternView) -> str:
    """Print a view: the bare name where it is the whole buffer."""
    if isinstance(view, PatternView):
        pairs = ", ".join(f"[{step}, {count}]" for step, count in view.pairs)
        offset = f"{CORE} * {view.core_step} + {view.offset}" if view.core_step else view.offset
        moved = _moved_text(view.moved) if view.moved is not None else ""
        return f"{view.buffer.name}.ap(pattern=[{pairs}], offset={offset}{moved})"
    if view.is_whole:
        return view.buffer.name
    return f"{view.buffer.name}[{', '.join(_index_text(item) for item in view.index)}]"


def _moved_text(by: RunTimeOffset) -> str:
    value = by.value if isinstance(by.value, str) else by.value.name
    return f", scalar_offset={value}, indirect_dim={by.axis}"


def _index_text(item: int | Span) -> str:
    if isinstance(item, int):
        return str(item)
    step = f":{item.step}" if item.step > 1 else ""
    return f"{item.start}:{item.stop}{step}"


def argument_text(value: Argument) -> str:
    """Print one argument of an instruction."""
    if isinstance(value, SliceView | PatternView):
        return view_text(value)
    if isinstance(value, Symbol):
        return value.text
    return repr(value)


def keyword_texts(arguments: Iterable[tuple[str, Argument]]) -> list[str]:
    """Print keyword arguments."""
    return [f"{name}={argument_text(value)}" for name, value in arguments]


def dtype_text(name: str) -> str:
    """Print a dtype as NKI spells it."""
    return dtype(name).nki


def call_text(head: str, arguments: Iterable[str], depth: int = 1) -> str:
    """Lay a call statement out `depth` levels deep: one line, or one argument per line."""
    items = list(arguments)
    line = f"{head}({', '.join(items)})"
    if len(INDENT) * depth + len(line) <= LINE_LENGTH:
        return line
    inner = "".join(f"{INDENT * (depth + 1)}{item},\n" for item in items)
    return f"{head}(\n{inner}{INDENT * depth})"
