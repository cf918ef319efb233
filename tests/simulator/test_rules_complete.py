# SPDX-License-Identifier: Apache-2.0
"""No rule without a kernel that breaks it."""

from __future__ import annotations

from pathlib import Path

import pytest

from conv3d_codegen.simulator import RULES

TESTS = "".join(path.read_text() for path in sorted(Path(__file__).parent.glob("test_rules_*.py")))


@pytest.mark.parametrize("rule", RULES)
def test_rule_is_broken_by_some_test(rule: str) -> None:
    assert f'"{rule}"' in TESTS
