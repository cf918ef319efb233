# SPDX-License-Identifier: Apache-2.0
"""What instructions compute, against numpy: exact on small integers, rounded like the hardware."""

from __future__ import annotations

import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest

LOAD_STORE = """
    out = nl.ndarray({out}, dtype=nl.{dtype}, buffer=nl.shared_hbm, name="out")
    x = nl.ndarray({shape}, dtype=nl.{held}, buffer=nl.sbuf, name="x")
    nisa.dma_copy(dst=x, src=a)
    {body}
    nisa.dma_copy(dst=out, src=y)
    return out
"""


def body_of(body: str, shape: tuple[int, ...], out: tuple[int, ...], **types: str) -> str:
    indented = "\n".join("    " + line.strip() for line in body.strip().splitlines()).strip()
    names = {"dtype": "float32", "held": "float32", **types}
    return LOAD_STORE.format(body=indented, shape=shape, out=out, **names)


def on_chip(name: str, shape: tuple[int, ...], dtype: str = "float32", buffer: str = "sbuf") -> str:
    return f'{name} = nl.ndarray({shape}, dtype=nl.{dtype}, buffer=nl.{buffer}, name="{name}")'


MATMUL = """
    out = nl.ndarray((64, 6, 8), dtype=nl.float32, buffer=nl.shared_hbm, name="out")
    w = nl.ndarray((128, 64), dtype=a.dtype, buffer=nl.sbuf, name="w")
    x = nl.ndarray((128, 8, 10), dtype=a.dtype, buffer=nl.sbuf, name="x")
    ps = nl.ndarray((64, 6, 8), dtype=nl.float32, buffer=nl.psum, name="ps")
    y = nl.ndarray((64, 6, 8), dtype=nl.float32, buffer=nl.sbuf, name="y")
    nisa.dma_copy(dst=w, src=a)
    nisa.dma_copy(dst=x, src=b)
    nisa.nc_matmul(dst=ps, stationary=w, moving=x[0:128, 1:7, 0:8], accumulate=False)
    part = x[0:128, 0:4, 3:10]
    nisa.nc_matmul(dst=ps[0:64, 2:6, 0:7], stationary=w, moving=part, accumulate=True)
    nisa.tensor_copy(dst=y, src=ps)
    nisa.dma_copy(dst=out, src=y)
    return out
"""


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float32])
def test_matmul_accumulates_into_subrectangles(run: Any, integers: Any, dtype: Any) -> None:
    w, x = integers(128, 64, dtype=dtype), integers(128, 8, 10, seed=1, dtype=dtype)
    result = run(MATMUL, w, x)
    left, right = w.astype(np.int64), x.astype(np.int64)
    expected = np.einsum("km,khw->mhw", left, right[:, 1:7, 0:8])
    expected[:, 2:6, 0:7] += np.einsum("km,khw->mhw", left, right[:, 0:4, 3:10])
    assert result.violations == ()
    assert np.array_equal(result.outputs[0], expected)
    assert result.counts.macs == 128 * 64 * (6 * 8 + 4 * 7)


def test_double_row_contracts_pairs_of_rows(run: Any, integers: Any) -> None:
    body = """
        out = nl.ndarray((32, 64), dtype=nl.float32, buffer=nl.shared_hbm, name="out")
        w = nl.ndarray((128, 2, 32), dtype=nl.float8_e4m3, buffer=nl.sbuf, name="w")
        x = nl.ndarray((128, 2, 64), dtype=nl.float8_e4m3, buffer=nl.sbuf, name="x")
        ps = nl.ndarray((32, 64), dtype=nl.float32, buffer=nl.psum, name="ps")
        y = nl.ndarray((32, 64), dtype=nl.float32, buffer=nl.sbuf, name="y")
        nisa.dma_copy(dst=w, src=a)
        nisa.dma_copy(dst=x, src=b)
        nisa.nc_matmul(
            dst=ps, stationary=w, moving=x, accumulate=False,
            perf_mode=nisa.matmul_perf_mode.double_row,
        )
        nisa.tensor_copy(dst=y, src=ps)
        nisa.dma_copy(dst=out, src=y)
        return out
    """
    w = integers(128, 2, 32, dtype=ml_dtypes.float8_e4m3)
    x = integers(128, 2, 64, seed=1, dtype=ml_dtypes.float8_e4m3)
    result = run(body, w, x)
    expected = np.einsum("kpm,kpn->mn", w.astype(np.int64), x.astype(np.int64))
    assert result.violations == ()
    assert np.array_equal(result.outputs[0], expected)


def test_row_tiles_contract_their_partitions(run: Any, integers: Any) -> None:
    body = """
        out = nl.ndarray((16, 64), dtype=nl.float32, buffer=nl.shared_hbm, name="out")
        w = nl.ndarray((128, 16), dtype=nl.bfloat16, buffer=nl.sbuf, name="w")
        x = nl.ndarray((128, 64), dtype=nl.bfloat16, buffer=nl.sbuf, name="x")
        ps = nl.ndarray((16, 64), dtype=nl.float32, buffer=nl.psum, name="ps")
        y = nl.ndarray((16, 64), dtype=nl.float32, buffer=nl.sbuf, name="y")
        nisa.dma_copy(dst=w, src=a)
        nisa.dma_copy(dst=x, src=b)
        nisa.nc_matmul(
            dst=ps, stationary=w[32:64, 0:16], moving=x[32:64, 0:64], accumulate=False,
            tile_position=(32, 0), tile_size=(32, 128),
        )
        nisa.tensor_copy(dst=y, src=ps)
        nisa.dma_copy(dst=out, src=y)
        return out
    """
    w, x = integers(128, 16), integers(128, 64, seed=1)
    result = run(body, w, x)
    expected = w.astype(np.int64)[32:64].T @ x.astype(np.int64)[32:64]
    assert result.violations == ()
    assert np.array_equal(result.outputs[0], expected)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_tensor_transposes_are_bit_exact(run: Any, dtype: str) -> None:
    transposes = f"""
        {on_chip("ps", (48, 128), dtype, "psum")}
        nisa.nc_transpose(dst=ps, data=x)
        {on_chip("y", (48, 128), dtype)}
        nisa.tensor_copy(dst=y, src=ps)
    """
    values = np.random.default_rng(0).normal(size=(128, 48)).astype(np.float32)
    values = values.astype(ml_dtypes.bfloat16) if dtype == "bfloat16" else values
    result = run(body_of(transposes, (128, 48), (48, 128), dtype=dtype, held=dtype), values)
    assert result.violations == ()
    assert np.array_equal(result.outputs[0], values.T)


def test_fp8_transposes_land_in_every_second_byte(run: Any, integers: Any) -> None:
    transposes = f"""
        {on_chip("ps", (48, 256), "float8_e5m2", "psum")}
        nisa.nc_transpose(dst=ps[0:48, 0:256:2], data=x)
        {on_chip("y", (48, 128), "float8_e5m2")}
        nisa.tensor_copy(dst=y, src=ps[0:48, 0:256:2])
    """
    values = integers(128, 48, dtype=ml_dtypes.float8_e5m2)
    types = {"dtype": "float8_e5m2", "held": "float8_e5m2"}
    result = run(body_of(transposes, (128, 48), (48, 128), **types), values)
    assert result.violations == ()
    assert np.array_equal(result.outputs[0], values.T)


def test_matmul_in_transpose_mode_equals_a_transpose(run: Any, integers: Any) -> None:
    transposes = f"""
        eye = nl.shared_identity_matrix(128, dtype=nl.bfloat16)
        {on_chip("ps", (48, 128), "bfloat16", "psum")}
        nisa.nc_matmul(dst=ps, stationary=x, moving=eye, is_transpose=True, accumulate=False)
        {on_chip("y", (48, 128), "bfloat16")}
        nisa.tensor_copy(dst=y, src=ps)
    """
    values = integers(128, 48)
    types = {"dtype": "bfloat16", "held": "bfloat16"}
    result = run(body_of(transposes, (128, 48), (48, 128), **types), values)
    assert result.violations == ()
    assert np.array_equal(result.outputs[0], values.T)


def test_vector_transposes_blocks_of_32(run: Any, integers: Any) -> None:
    transposes = f"""
        {on_chip("y", (16, 32))}
        nisa.nc_transpose(dst=y, data=x, engine=nisa.engine.vector)
    """
    values = integers(32, 16, dtype=np.float32)
    result = run(body_of(transposes, (32, 16), (16, 32)), values)
    assert result.violations == ()
    assert np.array_equal(result.outputs[0], values.T)


@pytest.mark.parametrize(
    ("name", "scalar"),
    [
        ("bfloat16", ml_dtypes.bfloat16),
        ("float16", np.float16),
        ("float8_e4m3", ml_dtypes.float8_e4m3),
        ("float8_e5m2", ml_dtypes.float8_e5m2),
    ],
)
def test_copies_round_to_the_declared_type(run: Any, name: str, scalar: Any) -> None:
    values = np.random.default_rng(0).normal(size=(4, 32)).astype(np.float32)
    copies = on_chip("y", (4, 32), name) + "\nnisa.tensor_copy(dst=y, src=x)"
    result = run(body_of(copies, (4, 32), (4, 32), dtype=name), values)
    assert result.violations == ()
    assert result.outputs[0].dtype == scalar
    assert np.array_equal(result.outputs[0], values.astype(scalar))


def test_tfloat32_keeps_ten_mantissa_bits(run: Any) -> None:
    values = np.array([[1 + 2**-10, 1 + 2**-11, 1 + 3 * 2**-11, -1 - 2**-12]], np.float32)
    copies = (
        on_chip("t", (1, 4), "tfloat32")
        + """
        nisa.tensor_copy(dst=t, src=x)
    """
        + on_chip("y", (1, 4))
        + "\nnisa.tensor_copy(dst=y, src=t)"
    )
    result = run(body_of(copies, (1, 4), (1, 4)), values)
    assert result.violations == ()
    # The nearest neighbour, and the even one of two equally near.
    assert result.outputs[0].tolist() == [[1 + 2**-10, 1.0, 1 + 2 * 2**-10, -1.0]]


def test_casts_to_integers_round_to_even_and_saturate(run: Any) -> None:
    values = np.array([[0.5, 1.5, -2.5, 300.0, -300.0]], np.float32)
    copies = on_chip("y", (1, 5), "int8") + "\nnisa.tensor_copy(dst=y, src=x)"
    result = run(body_of(copies, (1, 5), (1, 5), dtype="int8"), values)
    assert result.violations == ()
    assert result.outputs[0].tolist() == [[0, 2, -2, 127, -128]]


ARITHMETIC = {
    "nisa.tensor_tensor(dst=y, data1=x, data2=x, op=nl.multiply)": lambda x: x * x,
    "nisa.tensor_tensor(dst=y, data1=x, data2=x, op=nl.greater_equal)": np.ones_like,
    "nisa.tensor_scalar(dst=y, data=x, op0=nl.multiply, operand0=3.0)": lambda x: 3 * x,
    "nisa.tensor_scalar(dst=y, data=x, op0=nl.subtract, operand0=3.0, reverse0=True)": (
        lambda x: 3 - x
    ),
    "nisa.tensor_scalar(dst=y, data=x, op0=nl.add, operand0=1.0, op1=nl.maximum, operand1=0.0)": (
        lambda x: np.maximum(x + 1, 0)
    ),
    "nisa.tensor_scalar(dst=y, data=x, op0=nl.add, operand0=x[0:4, 0:1])": (lambda x: x + x[:, :1]),
    "nisa.scalar_tensor_tensor(dst=y, data=x, op0=nl.multiply, operand0=2.0, op1=nl.add, "
    "operand1=x)": lambda x: 3 * x,
    "nisa.activation(dst=y, op=nl.copy, data=x, scale=2.0, bias=1.0)": lambda x: 2 * x + 1,
    "nisa.activation(dst=y, op=nl.square, data=x, bias=x[0:4, 1:2])": (
        lambda x: (x + x[:, 1:2]) ** 2
    ),
    "nisa.affine_select(dst=y, pattern=[[1, 8]], channel_multiplier=-1, on_true_tile=x, "
    "on_false_value=9.0, cmp_op=nl.greater_equal, offset=0)": (
        lambda x: np.where(np.arange(8) - np.arange(4)[:, None] >= 0, x, 9)
    ),
    "nisa.iota(dst=y, pattern=[[10, 2], [1, 4]], offset=5, channel_multiplier=100)": lambda _: (
        5 + 100 * np.arange(4)[:, None] + (10 * np.arange(2)[:, None] + np.arange(4)).reshape(-1)
    ),
    "nisa.memset(dst=y, value=7.0)": lambda x: np.full_like(x, 7),
}


@pytest.mark.parametrize("call", ARITHMETIC)
def test_arithmetic(run: Any, integers: Any, call: str) -> None:
    values = integers(4, 8, dtype=np.float32)
    result = run(body_of(on_chip("y", (4, 8)) + "\n" + call, (4, 8), (4, 8)), values)
    assert result.violations == ()
    assert np.array_equal(result.outputs[0], ARITHMETIC[call](values).astype(np.float32))


def test_reductions_run_over_trailing_axes(run: Any, integers: Any) -> None:
    reduces = on_chip("y", (4, 1)) + "\nnisa.tensor_reduce(dst=y, op=nl.add, data=x, axis=(1, 2))"
    values = integers(4, 3, 5, dtype=np.float32)
    result = run(body_of(reduces, (4, 3, 5), (4, 1)), values)
    assert result.violations == ()
    assert np.array_equal(result.outputs[0][:, 0], values.sum(axis=(1, 2)))


def test_activation_sums_into_its_accumulators(run: Any, integers: Any) -> None:
    sums = (
        on_chip("z", (4, 8))
        + "\n"
        + on_chip("y", (4, 1))
        + """
        reset = nisa.reduce_cmd.reset_reduce
        nisa.activation(
            dst=z, op=nl.copy, data=x, reduce_op=nl.add, reduce_res=y, reduce_cmd=reset
        )
    """
    )
    values = integers(4, 8, dtype=np.float32)
    result = run(body_of(sums, (4, 8), (4, 1)), values)
    assert result.violations == ()
    assert np.array_equal(result.outputs[0][:, 0], values.sum(axis=1))


def test_dma_transposes_adds_and_repeats_rows(run: Any, integers: Any) -> None:
    body = """
        out = nl.ndarray((16, 64), dtype=nl.bfloat16, buffer=nl.shared_hbm, name="out")
        t = nl.ndarray((16, 64), dtype=nl.bfloat16, buffer=nl.sbuf, name="t")
        r = nl.ndarray((16, 64), dtype=nl.bfloat16, buffer=nl.sbuf, name="r")
        nisa.dma_transpose(dst=t, src=a)
        nisa.dma_copy(dst=r, src=b.ap(pattern=[[0, 16], [1, 64]], offset=64))
        nisa.dma_compute(dst=t, srcs=[t, r], reduce_op=nl.add, scales=[1.0, 1.0])
        nisa.dma_copy(dst=out, src=t)
        return out
    """
    x, rows = integers(64, 16), integers(3, 64, seed=1)
    result = run(body, x, rows)
    assert result.violations == ()
    assert np.array_equal(
        result.outputs[0], (x.T.astype(int) + rows[1].astype(int)).astype(x.dtype)
    )


def test_views_address_what_numpy_addresses(run: Any, integers: Any) -> None:
    body = """
        out = nl.ndarray((2, 3, 2), dtype=nl.bfloat16, buffer=nl.shared_hbm, name="out")
        x = nl.ndarray((4, 6, 8), dtype=nl.bfloat16, buffer=nl.sbuf, name="x")
        nisa.dma_copy(dst=x, src=a[1])
        y = x.reshape((4, 48))
        nisa.dma_copy(dst=out[0:1, 0:3, 0:2], src=x[2, 0:6:2, nl.ds(5, 2)])
        z = y.ap(pattern=[[48, 1], [8, 3], [3, 2]], offset=145)
        nisa.dma_copy(dst=out[1:2, 0:3, 0:2], src=z)
        return out
    """
    x = integers(2, 4, 6, 8)
    result = run(body, x)
    assert result.violations == ()
    assert np.array_equal(result.outputs[0][0], x[1, 2, 0:6:2, 5:7])
    flat = x[1].reshape(4, 48)
    expected = [[flat[3, 1 + 8 * i + 3 * j] for j in range(2)] for i in range(3)]
    assert np.array_equal(result.outputs[0][1], np.array(expected))


def test_inputs_are_never_changed(run: Any, integers: Any) -> None:
    x = integers(4, 8, dtype=np.float32)
    before = x.copy()
    body = on_chip("y", (4, 8)) + "\nnisa.tensor_copy(dst=y, src=x)"
    result = run(body_of(body, (4, 8), (4, 8)), x)
    assert np.array_equal(x, before)
    assert np.array_equal(result.outputs[0], before)


def test_filled_tensors(run: Any) -> None:
    body = """
        out = nl.ndarray((3, 4, 8), dtype=nl.float32, buffer=nl.shared_hbm, name="out")
        zeros = nl.zeros((4, 8), dtype=nl.float32, name="zeros")
        ones = nl.ones((4, 8), dtype=nl.float32, buffer=nl.psum, name="ones")
        fives = nl.full((4, 8), 5, dtype=nl.bfloat16, name="fives")
        copied = nl.ndarray((4, 8), dtype=nl.float32, buffer=nl.sbuf, name="copied")
        nisa.tensor_copy(dst=copied, src=ones)
        nisa.dma_copy(dst=out[0], src=zeros)
        nisa.dma_copy(dst=out[1], src=copied)
        nisa.dma_copy(dst=out[2], src=fives)
        return out
    """
    result = run(body)
    assert result.violations == ()
    assert result.outputs[0].tolist() == [[[value] * 8] * 4 for value in (0.0, 1.0, 5.0)]


def test_results_cross_processes(run: Any, integers: Any) -> None:
    body = on_chip("y", (4, 8)) + "\nnisa.tensor_copy(dst=y, src=x)"
    x = integers(4, 8, dtype=np.float32)
    result = run(body_of(body, (4, 8), (4, 8)), x, nki="0.6")
    copy = pickle.loads(pickle.dumps(result))
    assert copy.timeline == result.timeline
    assert np.array_equal(copy.outputs[0], x)
