# SPDX-License-Identifier: Apache-2.0
"""Ten ways of breaking a right kernel by hand; `verify` names what is wrong, and where."""

from __future__ import annotations

import pytest

from conv3d_codegen.verify import VerifyReport, verify_source
from hand_written import KERNEL

# What is changed by hand: (old, new) texts, and the rule that must catch it.
BREAKAGES = {
    "first matmul does not overwrite": (
        [("accumulate=False", "accumulate=True")],
        "accumulate-before-open",
    ),
    "operands swapped": (
        [("stationary=tap0, moving=rows[0:8, 1:7]", "stationary=rows[0:8, 1:7], moving=tap0")],
        "shape",
    ),
    "slice off by one": ([("moving=rows[0:8, 1:7]", "moving=rows[0:8, 2:8]")], "slice-range"),
    "PSUM tile over a bank": (
        [
            ("acc = nl.ndarray((4, 6)", "acc = nl.ndarray((4, 1024)"),
            ("dst=acc,", "dst=acc[0:4, 510:516],"),
            ("src=acc)", "src=acc[0:4, 510:516])"),
        ],
        "psum-bank",
    ),
    "129 partitions": (
        [("rows = nl.ndarray((8, 7)", "rows = nl.ndarray((129, 7)")],
        "tensor-shape",
    ),
    "start partition 16": (
        [("rows = nl.ndarray((8, 7)", "rows = nl.ndarray((24, 7)"), ("rows[0:8", "rows[16:24")],
        "start-partition",
    ),
    "output not written": (
        [
            (
                "dst=dx.reshape((4, 6)), src=out",
                "dst=dx.reshape((4, 6))[0:4, 0:5], src=out[0:4, 0:5]",
            )
        ],
        "output-unwritten",
    ),
    "fp32 × bf16 operands": (
        [
            (
                "tap0 = nl.ndarray((8, 4), dtype=nl.bfloat16",
                "tap0 = nl.ndarray((8, 4), dtype=nl.float32",
            )
        ],
        "dtype",
    ),
    "unknown keyword": ([("accumulate=False", "accumulate=False, overwrite=True")], "signature"),
}


def verify_edited(*replacements: tuple[str, str]) -> VerifyReport:
    source = KERNEL
    for old, new in replacements:
        assert old in source
        source = source.replace(old, new)
    return verify_source(source)


def test_the_kernel_itself_is_right() -> None:
    report = verify_edited()
    assert report.passed
    assert [check.exact for check in report.gradients] == [True]


def test_wrong_tap_gives_wrong_numbers_and_breaks_no_rule() -> None:
    report = verify_edited(("stationary=tap1", "stationary=tap0"))
    assert not report.passed
    assert not report.violations
    assert report.gradients[0].wrong_elements > 0


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_a_broken_rule_is_named(breakage: str) -> None:
    replacements, rule = BREAKAGES[breakage]
    report = verify_edited(*replacements)
    assert not report.passed
    assert rule in {violation.rule for violation in report.violations}
    lines = KERNEL.splitlines()
    first = next(violation for violation in report.violations if violation.rule == rule)
    assert 8 < first.line <= len(lines)
