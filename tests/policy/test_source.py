# SPDX-License-Identifier: Apache-2.0
"""House rules that every source file keeps."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = sorted((ROOT / "conv3d_codegen").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
TEMPLATES = sorted((ROOT / "templates").rglob("*.jinja"))
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*.toml"), ROOT / ".ci/run"]
LICENCE = "SPDX-License-Identifier: Apache-2.0"

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_PARAMETERS = 6
MAX_TEMPLATE_LINES = 150
# `conv3d_bwd` takes the place of the NKI library's function, argument by argument.
GIVEN_SIGNATURE = ("conv3d_codegen/calls/backward.py", "__call__")
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")
UNREASONED = re.compile(r"#.*(noqa|type: ignore)(?!.*(\(.+\)|# .+))")


def each(files: list[Path]) -> pytest.MarkDecorator:
    names = [file.relative_to(ROOT).as_posix() for file in files]
    return pytest.mark.parametrize("file", files, ids=names)


@each(PACKAGE + TESTS + TEMPLATES)
def test_licence_stands_in_the_first_lines(file: Path) -> None:
    assert LICENCE in "\n".join(file.read_text().splitlines()[:5])


@each(PACKAGE)
def test_file_and_functions_are_small(file: Path) -> None:
    source = file.read_text()
    assert len(source.splitlines()) <= MAX_FILE_LINES
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < MAX_FUNCTION_LINES, node.name
            signature = (file.relative_to(ROOT).as_posix(), node.name)
            assert _parameters(node) <= MAX_PARAMETERS or signature == GIVEN_SIGNATURE, node.name


@each(PACKAGE)
def test_the_library_prints_nothing(file: Path) -> None:
    calls = [
        node.func for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)
    ]
    assert not [name.lineno for name in calls if isinstance(name, ast.Name) and name.id == "print"]


@each(PACKAGE + TEMPLATES)
def test_nothing_is_unfinished_or_silenced_without_a_reason(file: Path) -> None:
    lines = file.read_text().splitlines()
    assert not [line for line in lines if UNFINISHED.search(line) or UNREASONED.search(line)]


@each(TEMPLATES)
def test_templates_are_short_and_decide_nothing(file: Path) -> None:
    text = file.read_text()
    assert len(text.splitlines()) <= MAX_TEMPLATE_LINES
    tags = re.findall(r"\{%-?\s*(?:if|elif)\s+(.*?)-?%\}", text)
    assert not [tag for tag in tags if re.search(r"\b(and|or)\b", tag)]


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    arguments = node.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return len([argument for argument in named if argument.arg not in {"self", "cls"}])


@each(PACKAGE + TESTS + TEMPLATES + DOCUMENTS)
def test_no_file_names_a_place_of_one_machine(file: Path) -> None:
    assert not re.findall(r"(?<![\w.])/(?:home|root|tmp|work|Users)/\w", file.read_text())
