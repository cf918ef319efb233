# SPDX-License-Identifier: Apache-2.0
"""Inputs without values: everything but the outputs is as with values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from conv3d_codegen.simulator import Blank, SimulationResult

# An accumulation, a sum of two tiles, a reduction, and rows that integers in memory choose.
BODY = """
out = nl.ndarray((2, 128, 64), dtype=nl.float32, buffer=nl.shared_hbm, name="out")
total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.shared_hbm, name="total")
rows = nl.ndarray((1, 2), dtype=nl.int32, buffer=nl.sbuf, name="rows")
nisa.iota(dst=rows, pattern=[[-1, 2]], offset=1)
x = nl.ndarray((128, 64), dtype=nl.bfloat16, buffer=nl.sbuf, name="x")
nisa.dma_copy(dst=x, src=a)
p = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.psum, name="p")
nisa.nc_matmul(dst=p, stationary=x, moving=x, accumulate=False)
nisa.nc_matmul(dst=p, stationary=x, moving=x, accumulate=True)
y = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf, name="y")
nisa.memset(dst=y, value=0.0, engine=nisa.engine.vector)
nisa.tensor_tensor(dst=y[0:64], data1=y[0:64], data2=p, op=nl.add)
sums = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf, name="sums")
nisa.tensor_reduce(dst=sums, op=nl.add, data=y, axis=1)
nisa.dma_copy(dst=total, src=sums)
for i in range(2):
    nisa.dma_copy(
        dst=out.ap(
            pattern=[[64, 128], [1, 64]],
            offset=0,
            scalar_offset=rows[0:1, i : i + 1],
            indirect_dim=0,
        ),
        src=y,
    )
"""


def both(run: Any, body: str, values: Any) -> tuple[SimulationResult, SimulationResult]:
    blank = Blank(values.shape, values.dtype)
    return run(body, values, nki="0.6"), run(body, blank, nki="0.6")


def test_rules_counts_and_timeline_are_the_same(run: Any, integers: Any) -> None:
    valued, blank = both(run, BODY + "return out, total", integers(128, 64))
    assert valued.violations == blank.violations == ()
    assert [output.shape for output in valued.outputs] == [(2, 128, 64), (128, 1)]
    assert blank.outputs == ()
    assert blank.counts == valued.counts
    assert blank.timeline == valued.timeline
    assert blank.sbuf_peak_bytes == valued.sbuf_peak_bytes


@pytest.mark.parametrize(
    ("right", "wrong", "rule"),
    [
        ("accumulate=False", "accumulate=True", "accumulate-before-open"),
        ("nisa.dma_copy(dst=x, src=a)", "", "poison-read"),
        ("offset=1", "offset=5", "ap-pattern"),
        ("[[-1, 2]]", "[[0, 2]]", "write-once"),
    ],
)
def test_broken_rules_are_found(run: Any, right: str, wrong: str, rule: str) -> None:
    body = BODY.replace(right, wrong) + "return out, total"
    valued, blank = both(run, body, np.ones((128, 64), np.float32))
    assert rule in {violation.rule for violation in blank.violations}
    assert valued.violations == blank.violations
