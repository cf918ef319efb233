# SPDX-License-Identifier: Apache-2.0
"""Rules of hardware loops and of two cores working together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

LOOP = """
out = nl.ndarray((4, 32, 64), dtype=nl.float32, buffer=nl.shared_hbm, name="out")
w = nl.ndarray((32, 32), dtype=nl.bfloat16, buffer=nl.sbuf, name="w")
total = nl.ndarray((32, 64), dtype=nl.float32, buffer=nl.sbuf, name="total")
outer = nl.ndarray((32, 64), dtype=nl.float32, buffer=nl.psum, name="outer")
kept = [total]
nisa.dma_copy(dst=w, src=b)
nisa.memset(dst=total, value=0.0)

def body(i):
    x = nl.ndarray((32, 64), dtype=nl.bfloat16, buffer=nl.sbuf, name="x")
    p = nl.ndarray((32, 64), dtype=nl.float32, buffer=nl.psum, name="p")
    y = nl.ndarray((32, 64), dtype=nl.float32, buffer=nl.sbuf, name="y")
    kept.append(x)
    source = a.ap(pattern=[[64, 32], [1, 64]], offset=0, scalar_offset=i, indirect_dim=0)
    target = out.ap(pattern=[[64, 32], [1, 64]], offset=0, scalar_offset=i, indirect_dim=0)
    nisa.dma_copy(dst=x, src=source)
    nisa.nc_matmul(dst=p, stationary=w, moving=x, accumulate=False)
    nisa.tensor_tensor(dst=total, data1=p, data2=total, op=nl.add)
    nisa.tensor_copy(dst=y, src=total)
    nisa.dma_copy(dst=target, src=y)

nl.fori_loop(0, 4, body)
return out
"""
LOOP_BREAKAGES = {
    "tensor used after its loop": (
        "return out",
        "nisa.tensor_copy(dst=total, src=kept[1])\nreturn out",
        "loop-scope",
    ),
    "tensor of an earlier iteration": ("moving=x", "moving=kept[1]", "loop-scope"),
    "register in arithmetic": (
        "scalar_offset=i, indirect_dim=0)\n    target",
        "scalar_offset=i + 1, indirect_dim=0)\n    target",
        "loop-register",
    ),
    "register as a bound": (
        "kept.append(x)",
        "kept.append(x)\n    for j in range(i):\n        kept.append(x)",
        "loop-register",
    ),
    "register as a condition": (
        "kept.append(x)",
        "if i == 0:\n        kept.append(x)",
        "loop-register",
    ),
    "register as an index": ("src=source", "src=a[i]", "loop-register"),
    "run-time bound": ("fori_loop(0, 4, body)", "fori_loop(0, out, body)", "loop-form"),
    "step 0": ("fori_loop(0, 4, body)", "fori_loop(0, 4, body, step=0)", "loop-form"),
    "inside no_reorder": (
        "nl.fori_loop(0",
        "with nl.no_reorder():\n    nl.fori_loop(0",
        "loop-form",
    ),
    "accumulation carried over": ("accumulate=False", "accumulate=True", "accumulate-before-open"),
    "accumulation carried in": (
        "nisa.nc_matmul(dst=p, stationary=w, moving=x, accumulate=False)",
        "nisa.nc_matmul(dst=outer, stationary=w, moving=x, accumulate=True)\n"
        "    nisa.nc_matmul(dst=p, stationary=w, moving=x, accumulate=False)",
        "accumulate-before-open",
    ),
    "out of range in the last iteration": (
        "fori_loop(0, 4, body)",
        "fori_loop(0, 5, body)",
        "ap-pattern",
    ),
    "iteration missing": ("fori_loop(0, 4, body)", "fori_loop(0, 3, body)", "output-unwritten"),
    "iterations overlap": (
        "[[64, 32], [1, 64]], offset=0, scalar_offset=i, indirect_dim=0)\n    nisa",
        "[[64, 32], [1, 64]], offset=0, scalar_offset=i, indirect_dim=1)\n    nisa",
        "write-once",
    ),
}


def loop_inputs(integers: Any) -> tuple[Any, Any]:
    return integers(4, 32, 64), integers(32, 32, seed=1)


def test_a_right_loop_runs_all_iterations(run: Any, integers: Any) -> None:
    x, w = loop_inputs(integers)
    result = run(LOOP, x, w, nki="0.6..0.7")
    products = np.einsum("km,ikn->imn", w.astype(np.int64), x.astype(np.int64))
    assert result.violations == ()
    assert np.array_equal(result.outputs[0], np.cumsum(products, axis=0))
    assert result.counts.text == 2 + 5
    assert result.counts.executed == 2 + 4 * 5


@pytest.mark.parametrize("name", LOOP_BREAKAGES)
def test_loops_break(run: Any, integers: Any, name: str) -> None:
    old, new, rule = LOOP_BREAKAGES[name]
    assert LOOP.count(old) == 1
    result = run(LOOP.replace(old, new), *loop_inputs(integers), nki="0.6..0.7")
    assert rule in {violation.rule for violation in result.violations}


def test_loops_need_nki_0_6(run: Any, integers: Any) -> None:
    rules = {v.rule for v in run(LOOP, *loop_inputs(integers), nki="0.5..0.7").violations}
    assert rules == {"subset", "unknown-name"}


CORES = """
out = nl.ndarray((64, 16), dtype=nl.float32, buffer=nl.shared_hbm, name="out")
halves = nl.ndarray((64, 16), dtype=nl.float32, buffer=nl.shared_hbm, name="halves")
me = nl.program_id(0)
peer = nl.num_programs(0) - 1 - me
x = nl.ndarray((32, 16), dtype=nl.float32, buffer=nl.sbuf, name="x")
y = nl.ndarray((32, 16), dtype=nl.float32, buffer=nl.sbuf, name="y")
z = nl.ndarray((32, 16), dtype=nl.float32, buffer=nl.sbuf, name="z")
nisa.dma_copy(dst=x, src=a[me * 32 : me * 32 + 32])
nisa.dma_copy(dst=halves[me * 32 : me * 32 + 32], src=x)
nisa.core_barrier(data=halves, cores=(0, 1))
nisa.dma_copy(dst=y, src=halves[peer * 32 : peer * 32 + 32])
nisa.sendrecv(src=x, dst=z, send_to_rank=peer, recv_from_rank=peer, pipe_id=0)
nisa.tensor_tensor(dst=y, data1=y, data2=z, op=nl.add)
nisa.dma_copy(dst=out[me * 32 : me * 32 + 32], src=y)
return out
"""
BARRIER = "nisa.core_barrier(data=halves, cores=(0, 1))\n"
CORE_BREAKAGES = {
    "no barrier": (BARRIER, "", "poison-read"),
    "barrier on one core": (BARRIER, f"if me == 0:\n    {BARRIER}", "core-exchange"),
    "barrier of one": ("cores=(0, 1)", "cores=(0,)", "core-exchange"),
    "sent to itself": ("send_to_rank=peer", "send_to_rank=me", "core-exchange"),
    "cores declare different tensors": (
        "halves = nl.ndarray((64, 16)",
        "rows = 64 + nl.program_id(0)\nhalves = nl.ndarray((rows, 16)",
        "core-exchange",
    ),
    "both write the same rows": (
        "dst=out[me * 32 : me * 32 + 32]",
        "dst=out[0:32]",
        "write-once",
    ),
    "blocks DMA": ("cores=(0, 1)", "cores=(0, 1), engine=nisa.engine.dma", "engine"),
    "another type received": (
        "z = nl.ndarray((32, 16), dtype=nl.float32",
        "z = nl.ndarray((32, 16), dtype=nl.bfloat16",
        "dtype",
    ),
    "another shape received": ("src=x, dst=z", "src=x, dst=z[0:32, 0:8]", "shape"),
    "error on one core": (BARRIER, f"q = 1 // (1 - me)\n{BARRIER}", "python-error"),
}


def test_two_cores_exchange_halves(run: Any, integers: Any) -> None:
    x = integers(64, 16, dtype=np.float32)
    result = run(CORES, x, lnc=2)
    assert result.violations == ()
    assert np.array_equal(result.outputs[0], 2 * np.concatenate([x[32:], x[:32]]))
    assert result.counts.executed == 2 * 7


@pytest.mark.parametrize("name", CORE_BREAKAGES)
def test_two_cores_break(run: Any, integers: Any, name: str) -> None:
    old, new, rule = CORE_BREAKAGES[name]
    assert CORES.count(old) == 1
    result = run(CORES.replace(old, new), integers(64, 16, dtype=np.float32), lnc=2)
    assert rule in {violation.rule for violation in result.violations}


def test_exchanges_need_two_cores(run: Any, integers: Any) -> None:
    result = run(CORES, integers(64, 16, dtype=np.float32))
    assert "core-exchange" in {violation.rule for violation in result.violations}
