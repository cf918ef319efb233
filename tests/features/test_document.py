# SPDX-License-Identifier: Apache-2.0
"""docs/features.md names tests and errors that exist."""

from __future__ import annotations

import re
from pathlib import Path

from conv3d_codegen import errors

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "features.md").read_text("utf-8")
TABLES = [line for line in TEXT.splitlines() if line.startswith("| ")]


def test_every_test_named_exists() -> None:
    named = set(re.findall(r"`([a-z_]+/(?:test_\w+\.py)?)`", TEXT))
    assert named
    assert not [name for name in named if not (ROOT / "tests" / name).exists()]


def test_every_row_names_a_test_or_says_why_not() -> None:
    rows = [line.rsplit("|", 2)[1].strip() for line in TABLES if "`" in line]
    assert not [row for row in rows if not row]


def test_every_error_named_exists() -> None:
    codes = {
        kind.rule
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.RuleError)
    }
    rules = TEXT.split("### Its parameter rules")[1].split("\n## ")[0]
    second = "".join(line.split("|")[2] for line in rules.splitlines() if line.startswith("| "))
    named = set(re.findall(r"`([a-z]+(?:-[a-z]+)*)`", second))
    assert len(named) > 10
    assert named <= codes
