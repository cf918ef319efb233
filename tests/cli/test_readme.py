# SPDX-License-Identifier: Apache-2.0
"""What the README shows is what happens."""

from __future__ import annotations

import re

import readme


def test_the_tour_shows_real_outputs() -> None:
    text = readme.README.read_text(encoding="utf-8")
    assert readme.with_real_outputs(text) == text


def test_the_python_example_runs() -> None:
    (code,) = re.findall(
        r"```python\n(.*?)```", readme.README.read_text(encoding="utf-8"), re.DOTALL
    )
    exec(code, {})
