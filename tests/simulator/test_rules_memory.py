# SPDX-License-Identifier: Apache-2.0
"""Rules about capacity, unwritten elements and results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

RIGHT = """
out = nl.ndarray((4, 8), dtype=nl.float32, buffer=nl.shared_hbm, name="out")
other = nl.ndarray((4, 8), dtype=nl.float32, buffer=nl.shared_hbm, name="other")
scratch = nl.ndarray((4, 8), dtype=nl.float32, buffer=nl.private_hbm, name="scratch")
x = nl.ndarray((4, 8), dtype=nl.float32, buffer=nl.sbuf, name="x")
nisa.dma_copy(dst=scratch, src=a)
nisa.dma_copy(dst=x[0:4, 0:4], src=scratch[0:4, 0:4])
nisa.dma_copy(dst=x[0:4, 4:8], src=scratch[0:4, 4:8])
nisa.dma_copy(dst=other, src=x)
nisa.dma_copy(dst=out[0:2], src=x[0:2])
nisa.dma_copy(dst=out[2:4], src=x[2:4])
return out, other
"""
BREAKAGES = {
    "part of an operand unwritten": ("dst=x[0:4, 4:8]", "dst=x[0:4, 3:7]", "poison-read"),
    "one partition unwritten": (
        "dst=x[0:4, 4:8], src=scratch[0:4, 4:8]",
        "dst=x[0:3, 4:8], src=scratch[0:3, 4:8]",
        "poison-read",
    ),
    "scratch unwritten": ("nisa.dma_copy(dst=scratch, src=a)\n", "", "poison-read"),
    "written twice": ("dst=out[2:4], src=x[2:4]", "dst=out[1:4], src=x[1:4]", "write-once"),
    "unwritten": ("dst=out[2:4], src=x[2:4]", "dst=out[3:4], src=x[3:4]", "output-unwritten"),
    "never written": ("nisa.dma_copy(dst=other, src=x)\n", "", "output-unwritten"),
    "returned scratch": ("return out, other", "return out, scratch", "output-buffer"),
    "returned input": ("return out, other", "return out, a", "output-buffer"),
    "returned number": ("return out, other", "return out, 3", "output-buffer"),
    "input written": ("dst=scratch, src=a", "dst=a, src=a", "input-written"),
}


def test_the_right_kernel_breaks_no_rule(run: Any, integers: Any) -> None:
    x = integers(4, 8, dtype=np.float32)
    result = run(RIGHT, x)
    assert result.violations == ()
    assert all(np.array_equal(output, x) for output in result.outputs)


@pytest.mark.parametrize("name", BREAKAGES)
def test_memory_breaks(run: Any, integers: Any, name: str) -> None:
    old, new, rule = BREAKAGES[name]
    assert RIGHT.count(old) == 1
    result = run(RIGHT.replace(old, new), integers(4, 8, dtype=np.float32))
    assert rule in {violation.rule for violation in result.violations}


def test_unwritten_output_is_not_a_number(run: Any, integers: Any) -> None:
    text = RIGHT.replace("dst=out[2:4], src=x[2:4]", "dst=out[3:4], src=x[3:4]")
    result = run(text, integers(4, 8, dtype=np.float32))
    assert np.isnan(result.outputs[0][2]).all()
    assert not np.isnan(result.outputs[0][[0, 1, 3]]).any()


def test_accumulating_transfers_update_an_output(run: Any, integers: Any) -> None:
    text = RIGHT.replace(
        "return out", "nisa.dma_compute(dst=out, srcs=[out, x], reduce_op=nl.add)\nreturn out"
    )
    x = integers(4, 8, dtype=np.float32)
    result = run(text, x)
    assert result.violations == ()
    assert np.array_equal(result.outputs[0], 2 * x)


def test_outputs_are_limited_to_4_gib(run: Any) -> None:
    body = """
        out = nl.ndarray((4, 1073741825), dtype=nl.float8_e4m3, buffer=nl.shared_hbm, name="out")
        return out
    """
    assert {violation.rule for violation in run(body).violations} == {"output-size"}
    small = body.replace("1073741825", "8")
    assert {violation.rule for violation in run(small).violations} == {"output-unwritten"}


TILES = """
out = nl.ndarray((2, 4), dtype=nl.float32, buffer=nl.shared_hbm, name="out")
first = nl.ndarray((4, {columns}), dtype=nl.float32, buffer=nl.{memory}, name="first")
second = nl.ndarray((4, {columns}), dtype=nl.float32, buffer=nl.{memory}, name="second")
x = nl.ndarray((1, 4), dtype=nl.float32, buffer=nl.sbuf, name="x")
y = nl.ndarray((1, 4), dtype=nl.float32, buffer=nl.sbuf, name="y")
nisa.memset(dst=first, value=1.0)
{early}
nisa.memset(dst=second, value=2.0)
{late}
nisa.tensor_copy(dst=y, src=second[0:1, 0:4])
nisa.dma_copy(dst=out[0:1], src=x)
nisa.dma_copy(dst=out[1:2], src=y)
return out
"""
USE = "nisa.tensor_copy(dst=x, src=first[0:1, 0:4])"


def tiles(memory: str, columns: int, *, overlap: bool) -> str:
    early, late = ("", USE) if overlap else (USE, "")
    return TILES.format(memory=memory, columns=columns, early=early, late=late)


@pytest.mark.parametrize(
    ("memory", "columns", "peak"), [("sbuf", 40_000, 160_128), ("psum", 2560, 5)]
)
def test_capacity_counts_what_lives_at_once(run: Any, memory: str, columns: int, peak: int) -> None:
    apart = run(tiles(memory, columns, overlap=False))
    assert apart.violations == ()
    assert peak in {apart.sbuf_peak_bytes, apart.psum_peak_banks}
    together = run(tiles(memory, columns, overlap=True))
    (violation,) = together.violations
    assert violation.rule == {"sbuf": "sbuf-capacity", "psum": "psum-capacity"}[memory]


def test_psum_tensors_are_limited_to_16_kib(run: Any) -> None:
    rules = {v.rule for v in run(tiles("psum", 4097, overlap=False)).violations}
    assert rules == {"psum-capacity"}
