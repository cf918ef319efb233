# SPDX-License-Identifier: Apache-2.0
"""Rules about tensors, views and operands: each broken once; the right kernel breaks none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

RIGHT = """
out = nl.ndarray((128, 4, 8), dtype=nl.float32, buffer=nl.shared_hbm, name="out")
x = nl.ndarray((128, 4, 8), dtype=nl.float32, buffer=nl.sbuf, name="x")
y = nl.ndarray((128, 4, 8), dtype=nl.float32, buffer=nl.sbuf, name="y")
column = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf, name="column")
p = nl.ndarray((128, 4, 8), dtype=nl.float32, buffer=nl.psum, name="p")
q = nl.ndarray((128, 4, 8), dtype=nl.float32, buffer=nl.psum, name="q")
numbers = nl.ndarray((128, 8), dtype=nl.int32, buffer=nl.sbuf, name="numbers")
big = nl.ndarray((128, 300, 120), dtype=nl.float32, buffer=nl.sbuf, name="big")
nisa.dma_copy(dst=x, src=a)
nisa.tensor_copy(dst=p, src=x, engine=nisa.engine.scalar)
nisa.memset(dst=q, value=1.0)
nisa.memset(dst=numbers, value=2)
nisa.memset(dst=y[64:128], value=0.0, engine=nisa.engine.gpsimd)
nisa.tensor_copy(dst=y[0:32], src=x[96:128])
nisa.tensor_copy(dst=y[32:64], src=x[64:96])
nisa.tensor_reduce(dst=column, op=nl.add, data=x, axis=(1, 2))
nisa.tensor_scalar(dst=y, data=x, op0=nl.add, operand0=column)
nisa.tensor_tensor(dst=y, data1=p, data2=x, op=nl.add)
nisa.dma_copy(dst=out, src=y)
return out
"""
PREAMBLE_LINES = [""] * 7  # imports and the function's head
ADD = "nisa.tensor_tensor(dst=y, data1=p, data2=x, op=nl.add)"

BREAKAGES = {
    "129 partitions": ("x = nl.ndarray((128,", "x = nl.ndarray((129,", "tensor-shape"),
    "one axis on chip": (
        "column = nl.ndarray((128, 1)",
        "column = nl.ndarray((128,)",
        "tensor-shape",
    ),
    "zero extent": ("column = nl.ndarray((128, 1)", "column = nl.ndarray((128, 0)", "tensor-shape"),
    "name used twice": ('name="column"', 'name="x"', "tensor-name"),
    "instruction name used twice": (
        "nisa.memset(dst=q, value=1.0)",
        'nisa.memset(dst=q, value=1.0, name="z")\nnisa.memset(dst=q, value=1.0, name="z")',
        "tensor-name",
    ),
    "slice too long": ("src=x[96:128]", "src=x[97:129]", "slice-range"),
    "slice backwards": ("src=x[96:128]", "src=x[96:64]", "slice-range"),
    "negative step": ("src=x[96:128]", "src=x[96:128, 0:4, 7:0:-1]", "slice-range"),
    "index out of range": ("src=x[96:128]", "src=x[96:128, 4:8]", "slice-range"),
    "too many indices": ("src=x[96:128]", "src=x[96:128, 0, 0, 0]", "slice-range"),
    "partitions skipped": (
        "dst=y[0:32], src=x[96:128]",
        "dst=y[0:32], src=x[64:128:2]",
        "partition-step",
    ),
    "reshape count": ("dst=p, src=x", "dst=p, src=x.reshape((128, 33))", "reshape"),
    "reshape partitions": ("dst=p, src=x", "dst=p, src=x.reshape((64, 64))", "reshape"),
    "reshape of a part": ("dst=p, src=x", "dst=p, src=x[0:128, 0:2].reshape((128, 16))", "reshape"),
    "ap on a view": (
        "dst=p, src=x",
        "dst=p, src=x[0:128, 0:4, 1:8].ap(pattern=[[32, 128], [8, 4], [1, 8]], offset=0)",
        "ap-base",
    ),
    "ap without partition pair": (
        "dst=p, src=x",
        "dst=p, src=x.ap(pattern=[[8, 128], [8, 4], [1, 8]], offset=0)",
        "ap-pattern",
    ),
    "ap out of range": (
        "dst=p, src=x",
        "dst=p, src=x.ap(pattern=[[32, 128], [8, 4], [1, 8]], offset=1)",
        "ap-pattern",
    ),
    "ap one partition too many": (
        "dst=p, src=x",
        "dst=p, src=x.ap(pattern=[[32, 128], [8, 4], [1, 8]], offset=32)",
        "ap-pattern",
    ),
    "write through stride 0": (
        "dst=q, value=1.0",
        "dst=q.ap(pattern=[[32, 128], [0, 4], [1, 8]], offset=0), value=1.0",
        "broadcast-write",
    ),
    "a number for a tensor": ("dst=q, value=1.0", "dst=3, value=1.0", "operand-type"),
    "a string for an engine": ("engine=nisa.engine.scalar", 'engine="scalar"', "operand-type"),
    "HBM operand": ("dst=p, src=x", "dst=p, src=a", "operand-buffer"),
    "gpsimd on PSUM": ("engine=nisa.engine.scalar", "engine=nisa.engine.gpsimd", "operand-buffer"),
    "start 16": ("dst=y[0:32], src=x[96:128]", "dst=y[16:48], src=x[96:128]", "start-partition"),
    "start 32 for 64": ("dst=y[64:128]", "dst=y[32:96]", "start-partition"),
    "start 64 for 65": ("dst=y[64:128]", "dst=y[63:128]", "start-partition"),
    "four free dimensions": (
        "nisa.tensor_tensor(dst=y, data1=p, data2=x, op=nl.add)",
        "z = big.ap(pattern=[[36000, 128], [4000, 2], [400, 2], [40, 2], [4, 2]], offset=0)\n"
        "nisa.memset(dst=z, value=0.0)\n"
        "nisa.tensor_tensor(dst=z, data1=z, data2=z, op=nl.add)\n" + ADD,
        "access-rank",
    ),
    "stride over 16 bits": (
        ADD,
        "z = big.ap(pattern=[[36000, 128], [33000, 2]], offset=0)\n"
        "nisa.memset(dst=z, value=0.0)\n" + ADD,
        "access-stride",
    ),
    "over 64 Ki elements": (
        ADD,
        'huge = nl.ndarray((128, 70000), dtype=nl.float8_e4m3, buffer=nl.sbuf, name="huge")\n'
        "nisa.memset(dst=huge, value=0.0)\n" + ADD,
        "access-size",
    ),
    "shapes differ": ("dst=y[0:32], src=x[96:128]", "dst=y[0:31], src=x[96:128]", "shape"),
    "DMA shapes differ": ("dst=out, src=y", "dst=out, src=y.reshape((128, 32))", "shape"),
    "operand column too short": ("operand0=column", "operand0=column[0:64]", "shape"),
    "reduced axis in the middle": ("axis=(1, 2)", "axis=1", "shape"),
    "column not fp32": (
        "column = nl.ndarray((128, 1), dtype=nl.float32",
        "column = nl.ndarray((128, 1), dtype=nl.bfloat16",
        "dtype",
    ),
    "bits of floats": ("data2=x, op=nl.add", "data2=x, op=nl.bitwise_and", "dtype"),
    "memset on scalar": ("engine=nisa.engine.gpsimd", "engine=nisa.engine.scalar", "engine"),
    "maximum on scalar": (
        "op0=nl.add, operand0=column",
        "op0=nl.maximum, operand0=column, engine=nisa.engine.scalar",
        "engine",
    ),
    "DMA engine without hwdge": (
        "nisa.dma_copy(dst=out, src=y)",
        "nisa.dma_copy(dst=out, src=y, engine=nisa.engine.sync)",
        "engine",
    ),
    "two PSUM inputs": ("data1=p, data2=x", "data1=p, data2=q", "two-psum-inputs"),
    "integer into floats": ("dst=q, value=1.0", "dst=q, value=1", "memset-value"),
    "float into integers": ("dst=numbers, value=2", "dst=numbers, value=2.0", "memset-value"),
    "DMA from PSUM": ("dst=out, src=y", "dst=out, src=p", "dma-memory"),
    "DMA into PSUM": ("dst=x, src=a", "dst=x, src=a)\nnisa.dma_copy(dst=p, src=a", "dma-memory"),
}


def test_the_right_kernel_breaks_no_rule(run: Any, integers: Any) -> None:
    x = integers(128, 4, 8, dtype=np.float32)
    result = run(RIGHT, x)
    assert result.violations == ()
    assert np.array_equal(result.outputs[0], 2 * x)


@pytest.mark.parametrize("name", BREAKAGES)
def test_operands_break(run: Any, integers: Any, name: str) -> None:
    old, new, rule = BREAKAGES[name]
    assert RIGHT.count(old) == 1
    result = run(RIGHT.replace(old, new), integers(128, 4, 8, dtype=np.float32))
    assert rule in {violation.rule for violation in result.violations}


def test_violations_carry_the_line_and_do_not_stop_at_the_first(run: Any, integers: Any) -> None:
    broken = RIGHT.replace("dst=q, value=1.0", "dst=q, value=1").replace(
        "src=x[96:128]", "src=x[97:129]"
    )
    result = run(broken, integers(128, 4, 8, dtype=np.float32))
    lines = PREAMBLE_LINES + broken.splitlines()
    assert [(lines[v.line - 1], v.rule) for v in result.violations] == [
        ("nisa.memset(dst=q, value=1)", "memset-value"),
        ("nisa.tensor_copy(dst=y[0:32], src=x[97:129])", "slice-range"),
    ]
    assert result.outputs[0].shape == (128, 4, 8)
