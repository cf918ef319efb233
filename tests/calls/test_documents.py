# SPDX-License-Identifier: Apache-2.0
"""The examples of the documents run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"
EXTRAS = ("torch", "jax")


def examples() -> list[Any]:
    found = []
    for document in ("calls.md", "importers.md"):
        sections = (DOCS / document).read_text(encoding="utf-8").split("\n## ")
        for section in sections:
            if blocks := re.findall(r"```python\n(.*?)```", section, re.DOTALL):
                title = section.partition("\n")[0]
                found.append(pytest.param("\n".join(blocks), id=f"{document}: {title}"))
    return found


@pytest.mark.parametrize("example", examples())
def test_examples_run(example: str) -> None:
    for extra in EXTRAS:
        if f"import {extra}\n" in example:
            pytest.importorskip(extra, reason=f"it is the extra `{extra}`")
    names: dict[str, Any] = {}
    exec(compile(example, "<example>", "exec"), names)
    assert {"db", "y", "imported"} & names.keys()
