# SPDX-License-Identifier: Apache-2.0
"""Rules of the tensor engine and of PSUM: each broken once; the right kernel breaks none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from conv3d_codegen.targets import TARGETS

RIGHT = """
out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm, name="out")
w = nl.ndarray((128, 128), dtype=nl.bfloat16, buffer=nl.sbuf, name="w")
x = nl.ndarray((128, 1024), dtype=nl.bfloat16, buffer=nl.sbuf, name="x")
wide = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf, name="wide")
eight = nl.ndarray((128, 512), dtype=nl.float8_e4m3fn, buffer=nl.sbuf, name="eight")
y = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf, name="y")
t = nl.ndarray((128, 128), dtype=nl.bfloat16, buffer=nl.psum, name="t")
p = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.psum, name="p")
eye = nl.shared_identity_matrix(128, dtype=nl.bfloat16)
nisa.dma_copy(dst=w, src=a)
nisa.dma_copy(dst=x, src=b)
nisa.memset(dst=wide, value=1.0)
nisa.memset(dst=eight, value=1.0)
nisa.nc_transpose(dst=t, data=w)
nisa.nc_matmul(dst=t, stationary=w, moving=eye, is_transpose=True, accumulate=False)
nisa.nc_matmul(dst=p[0:128, 0:512], stationary=w, moving=x[0:128, 0:512], accumulate=False)
nisa.nc_matmul(dst=p[0:128, 0:512], stationary=w, moving=x[0:128, 512:1024], accumulate=True)
nisa.nc_matmul(
    dst=p[0:128, 8:72], stationary=w[32:64, 0:128], moving=x[32:64, 0:64], accumulate=True,
    tile_position=(32, 0), tile_size=(32, 128),
)
nisa.tensor_copy(dst=y, src=p[0:128, 0:512])
nisa.dma_copy(dst=out, src=y)
return out
"""
FIRST = "dst=p[0:128, 0:512], stationary=w, moving=x[0:128, 0:512], accumulate=False"
SECOND = "dst=p[0:128, 0:512], stationary=w, moving=x[0:128, 512:1024], accumulate=True"
TILE = "tile_position=(32, 0), tile_size=(32, 128)"
TRANSPOSE = "nisa.nc_transpose(dst=t, data=w)"
MODE = "perf_mode=nisa.matmul_perf_mode.double_row"

BREAKAGES = {
    "moving in PSUM": (
        FIRST,
        FIRST.replace("x[0:128, 0:512]", "p[0:128, 0:512]"),
        "operand-buffer",
    ),
    "dst in SBUF": (FIRST, FIRST.replace("dst=p[0:128, 0:512]", "dst=y"), "operand-buffer"),
    "transposed into SBUF by the PE": (
        TRANSPOSE,
        "nisa.nc_transpose(dst=w, data=w, engine=nisa.engine.tensor)",
        "operand-buffer",
    ),
    "operands swapped": (
        FIRST,
        "dst=p[0:128, 0:512], stationary=x[0:128, 0:512], moving=w, accumulate=False",
        "shape",
    ),
    "dst of another shape": (
        FIRST,
        FIRST.replace("dst=p[0:128, 0:512]", "dst=p[0:128, 0:256]"),
        "shape",
    ),
    "contractions differ": (FIRST, FIRST.replace("=w,", "=w[0:64],"), "shape"),
    "transpose without identity": ("moving=eye", "moving=w", "shape"),
    "transpose does not fit": (TRANSPOSE, TRANSPOSE.replace("data=w", "data=w[0:64]"), "shape"),
    "1024 columns": (
        FIRST,
        "dst=p, stationary=w, moving=x, accumulate=False",
        "matmul-size",
    ),
    "over a bank": (
        FIRST,
        FIRST.replace("dst=p[0:128, 0:512]", "dst=p[0:128, 8:520]"),
        "psum-bank",
    ),
    "fp32 × bf16": (FIRST, FIRST.replace("=w,", "=wide,"), "dtype"),
    "fp8 of another target": (FIRST, FIRST.replace("x[0:128, 0:512]", "eight"), "dtype"),
    "bf16 accumulator": (
        "p = nl.ndarray((128, 1024), dtype=nl.float32",
        "p = nl.ndarray((128, 1024), dtype=nl.bfloat16",
        "dtype",
    ),
    "transpose changes the type": (
        "t = nl.ndarray((128, 128), dtype=nl.bfloat16",
        "t = nl.ndarray((128, 128), dtype=nl.float32",
        "dtype",
    ),
    "operands off their tile": (TILE, "tile_position=(64, 0), tile_size=(32, 128)", "matmul-tile"),
    "no tile for partition 32": (
        ", accumulate=True,\n    " + TILE,
        ", accumulate=True",
        "matmul-tile",
    ),
    "tile of 48 rows": (TILE, "tile_position=(48, 0), tile_size=(48, 128)", "matmul-tile"),
    "tile without size": (TILE, "tile_position=(32, 0)", "matmul-tile"),
    "column tile": (TILE, "tile_position=(32, 0), tile_size=(32, 64)", "matmul-tile"),
    "dst beside its column tile": (
        FIRST,
        "dst=p[64:128, 0:512], stationary=w[0:128, 0:64], moving=x[0:128, 0:512], accumulate=False",
        "matmul-tile",
    ),
    "accumulating transpose": (
        "is_transpose=True, accumulate=False",
        "is_transpose=True, accumulate=True",
        "matmul-mode",
    ),
    "no flag": (SECOND, SECOND.replace(", accumulate=True", ""), "matmul-mode"),
    "double row of bf16": (SECOND, SECOND + ", " + MODE, "dtype"),
    "first does not overwrite": (FIRST, FIRST.replace("False", "True"), "accumulate-before-open"),
    "opened by memset": (
        f"nisa.nc_matmul({FIRST})",
        "nisa.memset(dst=p[0:128, 0:512], value=0.0)",
        "accumulate-before-open",
    ),
    "overwritten in between": (
        f"nisa.nc_matmul({SECOND})",
        f"nisa.memset(dst=p[0:128, 9:10], value=0.0)\nnisa.nc_matmul({SECOND})",
        "accumulate-before-open",
    ),
    "opened in part": (
        FIRST,
        FIRST.replace("0:512]", "0:500]"),
        "accumulate-before-open",
    ),
    "two open in one bank": (
        f"nisa.nc_matmul({SECOND})",
        "nisa.nc_matmul(dst=p[0:128, 500:512], stationary=w, moving=x[0:128, 0:12], "
        "accumulate=False)\n"
        "nisa.nc_matmul(dst=p[0:128, 0:500], stationary=w, moving=x[0:128, 0:500], "
        "accumulate=True)",
        "psum-chain",
    ),
}


def inputs(integers: Any) -> tuple[Any, Any]:
    return integers(128, 128), integers(128, 1024, seed=1)


def test_the_right_kernel_breaks_no_rule(run: Any, integers: Any) -> None:
    w, x = inputs(integers)
    result = run(RIGHT, w, x)
    left, right = w.astype(np.int64), x.astype(np.int64)
    expected = left.T @ (right[:, :512] + right[:, 512:])
    expected[:, 8:72] += left[32:64].T @ right[32:64, :64]
    assert result.violations == ()
    assert np.array_equal(result.outputs[0], expected)


@pytest.mark.parametrize("name", BREAKAGES)
def test_matmuls_break(run: Any, integers: Any, name: str) -> None:
    old, new, rule = BREAKAGES[name]
    assert RIGHT.count(old) == 1
    result = run(RIGHT.replace(old, new), *inputs(integers))
    assert rule in {violation.rule for violation in result.violations}


def test_accumulations_of_separate_partitions_share_a_bank(run: Any, integers: Any) -> None:
    body = """
        out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm, name="out")
        w = nl.ndarray((128, 64), dtype=nl.bfloat16, buffer=nl.sbuf, name="w")
        p = nl.ndarray((64, 128), dtype=nl.float32, buffer=nl.psum, name="p")
        y = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.sbuf, name="y")
        nisa.dma_copy(dst=w, src=a)
        nisa.nc_matmul(dst=p[0:64, 0:64], stationary=w, moving=w, accumulate=False)
        nisa.nc_matmul(dst=p[0:64, 0:64], stationary=w, moving=w, accumulate=True)
        nisa.nc_matmul(dst=p[0:64, 64:128], stationary=w, moving=w, accumulate=False)
        nisa.nc_matmul(dst=p[0:64, 64:128], stationary=w, moving=w, accumulate=True)
        nisa.tensor_tensor(dst=y, data1=p[0:64, 0:64], data2=w[0:64], op=nl.add)
        nisa.dma_copy(dst=out[0:64], src=y)
        nisa.dma_copy(dst=out[64:128], src=w[64:128])
        return out
    """
    result = run(body, integers(128, 64))
    assert result.violations == ()


def test_trainium3_widens_matmuls(run: Any, integers: Any) -> None:
    wide = RIGHT.replace(FIRST, "dst=p, stationary=w, moving=x, accumulate=False")
    assert run(wide, *inputs(integers), target="trn3").violations == ()
    eight = RIGHT.replace(FIRST, FIRST.replace("x[0:128, 0:512]", "eight"))
    assert run(eight, *inputs(integers), target="trn3").violations == ()


def test_fp8_formats_do_not_pair(run: Any) -> None:
    body = """
        out = nl.ndarray((32, 64), dtype=nl.float32, buffer=nl.shared_hbm, name="out")
        w = nl.ndarray((128, 32), dtype=nl.float8_e4m3fn, buffer=nl.sbuf, name="w")
        x = nl.ndarray((128, 64), dtype=nl.float8_e4m3, buffer=nl.sbuf, name="x")
        p = nl.ndarray((32, 64), dtype=nl.float32, buffer=nl.psum, name="p")
        y = nl.ndarray((32, 64), dtype=nl.float32, buffer=nl.sbuf, name="y")
        nisa.dma_copy(dst=w, src=a)
        nisa.dma_copy(dst=x, src=b)
        nisa.nc_matmul(dst=p, stationary=w, moving=x, accumulate=False)
        nisa.tensor_copy(dst=y, src=p)
        nisa.dma_copy(dst=out, src=y)
        return out
    """
    w = np.ones((128, 32), ml_dtypes.float8_e4m3fn)
    x = np.ones((128, 64), ml_dtypes.float8_e4m3)
    (violation,) = run(body, w, x, target="trn3").violations
    assert violation.rule == "dtype"


PAIRS = """
out = nl.ndarray((32, 64), dtype=nl.float32, buffer=nl.shared_hbm, name="out")
w = nl.ndarray((128, 2, 32), dtype=nl.float8_e4m3, buffer=nl.sbuf, name="w")
x = nl.ndarray((128, 2, 64), dtype=nl.float8_e5m2, buffer=nl.sbuf, name="x")
p = nl.ndarray((32, 64), dtype=nl.float32, buffer=nl.psum, name="p")
y = nl.ndarray((32, 64), dtype=nl.float32, buffer=nl.sbuf, name="y")
nisa.dma_copy(dst=w, src=a)
nisa.dma_copy(dst=x, src=b)
nisa.nc_matmul(
    dst=p, stationary=w, moving=x, accumulate=False, perf_mode=nisa.matmul_perf_mode.double_row
)
nisa.tensor_copy(dst=y, src=p)
nisa.dma_copy(dst=out, src=y)
return out
"""


def pair_rules(run: Any, body: str) -> list[str]:
    w = np.ones((128, 2, 32), ml_dtypes.float8_e4m3)
    x = np.ones((128, 2, 64), ml_dtypes.float8_e5m2)
    return [violation.rule for violation in run(body, w, x).violations]


def test_double_rows_have_the_documented_axes_and_no_more(run: Any) -> None:
    assert pair_rules(run, PAIRS) == []
    boxes = PAIRS.replace("dst=p,", "dst=p.reshape((32, 4, 16)),")
    boxes = boxes.replace("moving=x,", "moving=x.reshape((128, 2, 4, 16)),")
    assert "shape" in pair_rules(run, boxes)
    assert "shape" in pair_rules(run, PAIRS.replace("moving=x,", "moving=x.reshape((128, 128)),"))


def test_double_rows_need_a_target_that_has_them(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    without = replace(TARGETS["trn2"], double_row=False)
    monkeypatch.setattr("conv3d_codegen.simulator.simulation.find_target", lambda _: without)
    assert pair_rules(run, PAIRS) == ["matmul-mode"]
