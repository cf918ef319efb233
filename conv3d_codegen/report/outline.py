# SPDX-License-Identifier: Apache-2.0
"""What the text of a kernel contains: its function, its sections, the instructions of each."""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass

from conv3d_codegen.errors import RequestError

# A banner opens a section: `    # === dx: contract ===…`
_BANNER = re.compile(r"^\s*# ===+ (?P<title>.+?) ===+\s*$")


@dataclass(frozen=True, slots=True)
class Section:
    """The lines between two banners, and how often each instruction is written there."""

    title: str
    first_line: int
    last_line: int
    instructions: dict[str, int]

    @property
    def total(self) -> int:
        """All instructions of the section."""
        return sum(self.instructions.values())


@dataclass(frozen=True, slots=True)
class Outline:
    """A kernel file as a table of contents."""

    name: str
    docstring: str
    lines: int
    sections: tuple[Section, ...]

    @property
    def instructions(self) -> dict[str, int]:
        """How often each instruction is written, most frequent first."""
        total: Counter[str] = Counter()
        for section in self.sections:
            total.update(section.instructions)
        return dict(total.most_common())


def outline(source: str, filename: str) -> Outline:
    """Read a kernel file's structure.

    Raises:
        RequestError: the file is not Python, or holds no function or several.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise RequestError(
            "not-python", f"{filename}, line {error.lineno}: {error.msg}; a kernel is a Python file"
        ) from None
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    if len(functions) != 1:
        raise RequestError(
            "not-a-kernel",
            f"{filename} holds {len(functions)} functions; a kernel file holds exactly one",
        )
    (function,) = functions
    return Outline(
        name=function.name,
        docstring=ast.get_docstring(tree) or ast.get_docstring(function) or "",
        lines=len(source.splitlines()),
        sections=_sections(source, function),
    )


def _sections(source: str, function: ast.FunctionDef) -> tuple[Section, ...]:
    lines = source.splitlines()
    end = function.end_lineno or len(lines)
    starts = [(function.lineno, "(before the first section)")]
    for number in range(function.lineno, end + 1):
        banner = _BANNER.match(lines[number - 1])
        if banner:
            starts.append((number, banner["title"]))
    stops = [line - 1 for line, _ in starts[1:]] + [end]
    calls = _instruction_lines(function)
    sections = (
        Section(title, first, last, _count(calls, first, last))
        for (first, title), last in zip(starts, stops, strict=True)
    )
    return tuple(
        section for section in sections if section.total or section.first_line != starts[0][0]
    )


def _instruction_lines(function: ast.FunctionDef) -> list[tuple[int, str]]:
    """Return the line and name of every call of an `nki.isa` instruction."""
    return [
        (node.lineno, node.func.attr)
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "nisa"
    ]


def _count(calls: list[tuple[int, str]], first: int, last: int) -> dict[str, int]:
    names = Counter(name for line, name in calls if first <= line <= last)
    return dict(names.most_common())
