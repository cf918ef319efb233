# SPDX-License-Identifier: Apache-2.0
"""Rules about a kernel's text: each broken once by hand; the right text breaks none."""

from __future__ import annotations

import numpy as np
import pytest

from conv3d_codegen.errors import RequestError
from conv3d_codegen.simulator import check_text, simulate

RIGHT = """\
import nki
import nki.isa as nisa
import nki.language as nl

ROWS = 4


@nki.jit
def kernel(a):
    out = nl.ndarray((4, 8), dtype=nl.float32, buffer=nl.shared_hbm, name="out")
    x = nl.ndarray((ROWS, 8), dtype=nl.float32, buffer=nl.sbuf, name="x")
    for i in range(2):
        nisa.dma_copy(dst=x[0:4, i * 4 : i * 4 + 4], src=a[0:4, i * 4 : i * 4 + 4])
    with nl.no_reorder():
        nisa.dma_copy(dst=out, src=x)
    return out
"""
COPY = "nisa.dma_copy(dst=out, src=x)"
RETURN = "    return out\n"

BREAKAGES = {
    "open parenthesis": ("(dst=out", "((dst=out", "syntax"),
    "other import": ("import nki\n", "import nki\nimport os\n", "imports"),
    "missing import": ("import nki.isa as nisa\n", "", "imports"),
    "from import": ("import nki\n", "import nki\nfrom nki import isa\n", "subset"),
    "no decorator": ("@nki.jit\n", "", "kernel-function"),
    "other decorator": ("@nki.jit", "@nki.baremetal", "kernel-function"),
    "keyword parameters": ("kernel(a)", "kernel(a, *, b=0)", "kernel-function"),
    "two kernels": (RETURN, RETURN + "\n\n@nki.jit\ndef k(a):\n    return a\n", "kernel-function"),
    "comprehension": (RETURN, "    y = [i for i in range(2)]\n" + RETURN, "subset"),
    "while": (RETURN, "    while False:\n        pass\n" + RETURN, "subset"),
    "try": (RETURN, "    try:\n        pass\n    finally:\n        pass\n" + RETURN, "subset"),
    "is": (RETURN, "    y = x is None\n" + RETURN, "subset"),
    "in": (RETURN, "    y = 1 in (1, 2)\n" + RETURN, "subset"),
    "matrix product": (RETURN, "    y = x @ x\n" + RETURN, "subset"),
    "starred": (RETURN, "    y = max(*(1, 2))\n" + RETURN, "subset"),
    "keywords unpacked": (COPY, "nisa.dma_copy(**{})", "subset"),
    "format": ('name="x"', 'name=f"{1:03d}"', "subset"),
    "other with": ("with nl.no_reorder()", "with open('f')", "subset"),
    "loop else": ("    with nl", "    else:\n        pass\n    with nl", "subset"),
    "dunder": (RETURN, "    y = x.__class__\n" + RETURN, "subset"),
    "top level call": ("ROWS = 4", "ROWS = 4\nprint(ROWS)", "subset"),
    "unknown instruction": (COPY, "nisa.dma_move(dst=out, src=x)", "unknown-name"),
    "unknown dtype": ("nl.float32", "nl.float64", "unknown-name"),
    "too new function": (RETURN, "    nl.fori_loop(0, 1, x)\n" + RETURN, "unknown-name"),
    "too new argument": (COPY, "nisa.dma_copy(dst=out, src=x, priority=1)", "signature"),
    "unknown argument": (COPY, "nisa.dma_copy(dst=out, src=x, fast=True)", "signature"),
    "missing argument": (COPY, "nisa.dma_copy(dst=out)", "signature"),
    "positional": (COPY, "nisa.dma_copy(out, x)", "keywords"),
}


def test_the_right_text_breaks_no_rule() -> None:
    assert check_text(RIGHT, "0.3..0.7") == ()


@pytest.mark.parametrize("name", BREAKAGES)
def test_text_breaks(name: str) -> None:
    old, new, rule = BREAKAGES[name]
    broken = RIGHT.replace(old, new)
    assert broken != RIGHT
    changed = [
        number
        for number, line in enumerate(broken.splitlines(), 1)
        if line not in RIGHT.splitlines()
    ]
    found = [violation for violation in check_text(broken, "0.3..0.7") if violation.rule == rule]
    assert found
    assert not changed or {violation.line for violation in found} & {1, *changed}


@pytest.mark.parametrize("name", BREAKAGES)
def test_simulation_reports_the_same_and_raises_nothing(name: str) -> None:
    old, new, rule = BREAKAGES[name]
    result = simulate(RIGHT.replace(old, new), [np.ones((4, 8), np.float32)], nki="0.3..0.7")
    assert rule in {violation.rule for violation in result.violations}


@pytest.mark.parametrize(
    "text", ["import os\n" + RIGHT, RIGHT.replace("for i in range(2):", "while True:")]
)
def test_text_that_reaches_outside_or_may_not_end_is_not_executed(text: str) -> None:
    result = simulate(text, [np.ones((4, 8), np.float32)])
    assert result.outputs == ()
    assert result.counts.executed == 0
    assert result.violations


def test_python_errors_become_violations_with_their_line() -> None:
    text = RIGHT.replace(RETURN, "    y = 1 // 0\n" + RETURN)
    result = simulate(text, [np.ones((4, 8), np.float32)])
    (violation,) = result.violations
    assert (violation.rule, violation.line) == (
        "python-error",
        text.splitlines().index("    y = 1 // 0") + 1,
    )
    assert "ZeroDivisionError" in violation.message


def test_calls_beyond_the_simulator_say_so() -> None:
    text = RIGHT.replace(COPY, "nisa.max8(dst=x, src=x)")
    rules = {v.rule for v in simulate(text, [np.ones((4, 8), np.float32)]).violations}
    assert rules == {"unsupported", "output-unwritten"}


def test_wrong_number_of_inputs_is_a_violation() -> None:
    (violation,) = simulate(RIGHT, []).violations
    assert violation.rule == "kernel-function"


@pytest.mark.parametrize("nki", ["0.2", "0.9", "0.7..0.3", "", "0.3.."])
def test_unknown_versions_are_wrong_requests(nki: str) -> None:
    with pytest.raises(RequestError, match=r"unknown-nki: .*accepted: one of 0\.3"):
        check_text(RIGHT, nki)


def test_unknown_targets_and_core_counts_are_wrong_requests() -> None:
    with pytest.raises(RequestError, match="trn9"):
        simulate(RIGHT, [], target="trn9")
    with pytest.raises(RequestError, match="lnc 3"):
        simulate(RIGHT, [], lnc=3)
