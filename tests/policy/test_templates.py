# SPDX-License-Identifier: Apache-2.0
"""Templates print what they are given, and nothing is left over on either side."""

from __future__ import annotations

from pathlib import Path

import pytest
from jinja2 import meta

from conv3d_codegen.emitter.environment import environment

ROOT = "kernel.py.jinja"
NAMES = environment().list_templates()
CONTEXT = {"header", "program"}


def parse(name: str) -> tuple[set[str], set[str | None]]:
    """Return the variables that a template wants and the templates it refers to."""
    loader = environment().loader
    assert loader is not None
    tree = environment().parse(loader.get_source(environment(), name)[0])
    return meta.find_undeclared_variables(tree), set(meta.find_referenced_templates(tree))


def test_the_checkout_holds_the_templates_that_are_used() -> None:
    folder = Path(__file__).parents[2] / "templates"
    assert {file.name for file in folder.glob("*.jinja")} == set(NAMES)


def test_every_template_is_reached() -> None:
    reached: set[str | None] = {ROOT}
    while more := set().union(*(parse(str(name))[1] for name in reached)) - reached:
        reached |= more
    assert reached == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_templates_want_nothing_but_program_and_header(name: str) -> None:
    assert parse(name)[0] <= CONTEXT


def test_nothing_of_the_context_is_unused() -> None:
    assert set().union(*(parse(name)[0] for name in NAMES)) == CONTEXT
