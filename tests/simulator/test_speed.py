# SPDX-License-Identifier: Apache-2.0
"""How fast the simulator is, reported by pytest-benchmark; nothing here fails for being slow."""

from __future__ import annotations

from typing import Any

import numpy as np


def test_simulating_two_thousand_small_instructions(run: Any, benchmark: Any) -> None:
    lines = [
        'out = nl.ndarray((4, 8, 16), dtype=nl.float32, buffer=nl.shared_hbm, name="out")',
        'x = nl.ndarray((4, 8, 16), dtype=nl.float32, buffer=nl.sbuf, name="x")',
        "nisa.memset(dst=x, value=0.0)",
    ]
    for i in range(2000):
        row, column = i % 8, i % 12
        view = f"x[0:4, {row}:{row + 1}, {column}:{column + 4}]"
        lines.append(f"nisa.tensor_scalar(dst={view}, data={view}, op0=nl.add, operand0=1.0)")
    lines += ["nisa.dma_copy(dst=out, src=x)", "return out"]
    result = benchmark.pedantic(run, args=("\n".join(lines),), rounds=3)
    assert result.violations == ()
    assert result.counts.executed == 2002
    assert np.sum(result.outputs[0]) == 4 * 4 * 2000
