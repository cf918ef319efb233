# SPDX-License-Identifier: Apache-2.0
"""When instructions run: overlap, dependencies, room, latencies, by the hardware table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from conv3d_codegen.targets import TARGETS

TRN2 = TARGETS["trn2"]

HEAD = """
out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm, name="out")
w = nl.ndarray((128, 128), dtype=nl.bfloat16, buffer=nl.sbuf, name="w")
x = nl.ndarray((128, 512), dtype=nl.bfloat16, buffer=nl.sbuf, name="x")
y = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf, name="y")
nisa.memset(dst=w, value=1.0, engine=nisa.engine.gpsimd)
nisa.memset(dst=x, value=1.0, engine=nisa.engine.vector)
"""
TAIL = """
nisa.dma_copy(dst=out, src=y)
return out
"""


def tile(name: str, columns: int, memory: str = "sbuf", dtype: str = "float32") -> str:
    return (
        f"{name} = nl.ndarray((128, {columns}), dtype=nl.{dtype}, buffer=nl.{memory}, "
        f'name="{name}")\n'
    )


def matmul(dst: str, *, accumulate: bool = False) -> str:
    return f"nisa.nc_matmul(dst={dst}, stationary=w, moving=x, accumulate={accumulate})\n"


def events(result: Any, kind: str) -> list[Any]:
    assert result.violations == ()
    return [event for event in result.timeline.events if event.kind == kind]


def test_a_chain_of_matmuls_runs_at_the_peak_rate(run: Any) -> None:
    chain = "".join(matmul("p", accumulate=i > 0) for i in range(32))
    result = run(HEAD + tile("p", 512, "psum") + chain + "nisa.tensor_copy(dst=y, src=p)\n" + TAIL)
    matmuls = events(result, "nc_matmul")
    assert matmuls[-1].end_ns - matmuls[0].start_ns == pytest.approx(32 * 512 / 2.4)
    assert result.timeline.busy_us["tensor"] == pytest.approx(32 * 512 / 2.4 / 1e3)
    assert result.counts.macs == 32 * 128 * 128 * 512


def test_evictions_wait_for_the_pipeline_and_overlap_the_next_tile(run: Any) -> None:
    body = HEAD
    for i in range(4):
        body += tile(f"p{i}", 512, "psum")
        body += matmul(f"p{i}") + f"nisa.tensor_copy(dst=y, src=p{i})\n"
    result = run(body + TAIL)
    matmuls, copies = events(result, "nc_matmul"), events(result, "tensor_copy")
    latency = TRN2.tensor_fill_ns + TRN2.semaphore_ns
    assert copies[0].start_ns == pytest.approx(matmuls[0].end_ns + latency)
    assert matmuls[3].end_ns - matmuls[0].start_ns == pytest.approx(4 * 512 / 2.4)
    assert copies[3].end_ns - copies[0].start_ns == pytest.approx(4 * 512 / 0.96)


@pytest.mark.parametrize("kept", [0, 1])
def test_matmuls_wait_for_a_bank_that_has_been_read(run: Any, kept: int) -> None:
    body = HEAD + (tile("kept", 512, "psum") + matmul("kept")) * kept
    for i in range(14):
        body += tile(f"p{i}", 512, "psum")
        body += matmul(f"p{i}") + f"nisa.tensor_copy(dst=y, src=p{i})\n"
    result = run(body + "nisa.tensor_copy(dst=y, src=kept)\n" * kept + TAIL)
    matmuls, copies = events(result, "nc_matmul")[kept:], events(result, "tensor_copy")
    banks = 8 - kept
    for i in range(banks, 14):
        room = copies[i - banks].end_ns + TRN2.semaphore_ns
        assert matmuls[i].start_ns == pytest.approx(max(matmuls[i - 1].end_ns, room))
    assert result.timeline.stalls_us["tensor", "psum"] > 0
    assert result.psum_peak_banks == 1 + kept


def test_disjoint_parts_of_a_tensor_do_not_wait_for_each_other(run: Any) -> None:
    body = HEAD + tile("z", 512)
    body += "nisa.memset(dst=z[0:128, 0:512:2], value=1.0, engine=nisa.engine.vector)\n"
    body += "nisa.memset(dst=z[0:128, 1:512:2], value=1.0, engine=nisa.engine.gpsimd)\n"
    body += "nisa.tensor_copy(dst=y, src=z, engine=nisa.engine.scalar)\n"
    result = run(body + TAIL)
    _, _, even, odd = events(result, "memset")
    (copy,) = events(result, "tensor_copy")
    assert odd.start_ns < even.end_ns
    seen = [
        even.end_ns + 100 / 0.96 + TRN2.semaphore_ns,
        odd.end_ns + 100 / 1.2 + TRN2.semaphore_ns,
    ]
    assert copy.start_ns == pytest.approx(max(seen))


def test_a_write_waits_for_readers_on_other_engines(run: Any) -> None:
    body = HEAD + "nisa.tensor_copy(dst=y, src=x, engine=nisa.engine.scalar)\n"
    body += "nisa.memset(dst=x, value=2.0, engine=nisa.engine.gpsimd)\n"
    result = run(body + TAIL)
    (copy,) = events(result, "tensor_copy")
    assert events(result, "memset")[-1].start_ns == pytest.approx(copy.end_ns + TRN2.semaphore_ns)


def test_dependent_instructions_of_one_engine_pay_the_access_latency(run: Any) -> None:
    body = HEAD + "nisa.tensor_copy(dst=y, src=x)\n"
    body += "nisa.tensor_scalar(dst=y, data=y, op0=nl.add, operand0=1.0)\n"
    result = run(body + TAIL)
    (copy,), (add,) = events(result, "tensor_copy"), events(result, "tensor_scalar")
    assert add.start_ns == pytest.approx(copy.end_ns + 100 / 0.96)


@pytest.mark.parametrize("banks_apart", [True, False])
def test_vector_and_scalar_share_no_psum_bank(run: Any, banks_apart: bool) -> None:
    second = "q" if banks_apart else "p"
    body = HEAD + tile("p", 512, "psum") + tile("q", 512, "psum") + tile("z", 256)
    body += matmul("p") + matmul("q")
    body += "nisa.tensor_copy(dst=y[0:128, 0:256], src=p[0:128, 0:256])\n"
    body += f"nisa.tensor_copy(dst=z, src={second}[0:128, 0:256], engine=nisa.engine.scalar)\n"
    body += "nisa.tensor_copy(dst=y[0:128, 256:512], src=q[0:128, 256:512])\n"
    result = run(body + TAIL)
    first, scalar, _ = events(result, "tensor_copy")
    overlaps = scalar.start_ns < first.end_ns
    assert overlaps == banks_apart


def test_transfers_share_bandwidth_and_overlap_their_latency(run: Any, integers: Any) -> None:
    body = 'out = nl.ndarray((128, 8192), dtype=nl.float32, buffer=nl.shared_hbm, name="out")\n'
    for i in range(4):
        body += tile(f"t{i}", 2048)
        body += f"nisa.dma_copy(dst=t{i}, src=a[0:128, {2048 * i}:{2048 * (i + 1)}])\n"
    for i in range(4):
        body += f"nisa.dma_copy(dst=out[0:128, {2048 * i}:{2048 * (i + 1)}], src=t{i})\n"
    result = run(body + "return out", integers(128, 8192, dtype=np.float32))
    copies = events(result, "dma_copy")
    each = 50 + 128 * (8192 / 23 + 1) / 16
    assert result.timeline.busy_us["dma"] == pytest.approx(8 * each / 1e3)
    for i in range(4):
        assert copies[i].start_ns == pytest.approx(i * each)
        assert copies[i].end_ns == pytest.approx((i + 1) * each + 1300)
    assert result.timeline.makespan_us == pytest.approx((8 * each + 1300) / 1e3)


def test_sixteen_transfers_are_under_way_at_once(run: Any, integers: Any) -> None:
    body = 'out = nl.ndarray((20, 16), dtype=nl.float32, buffer=nl.shared_hbm, name="out")\n'
    body += 't = nl.ndarray((20, 16), dtype=nl.float32, buffer=nl.sbuf, name="t")\n'
    for i in range(20):
        body += f"nisa.dma_copy(dst=t[{i}:{i + 1}], src=a[{i}:{i + 1}])\n"
    result = run(body + "nisa.dma_copy(dst=out, src=t)\nreturn out", integers(20, 16, dtype="f4"))
    copies = events(result, "dma_copy")
    assert copies[15].start_ns < copies[0].end_ns
    for i in range(16, 20):
        assert copies[i].start_ns == pytest.approx(copies[i - 16].end_ns)


def test_a_waiting_store_does_not_hold_up_later_loads(run: Any, integers: Any) -> None:
    body = HEAD + tile("p", 512, "psum")
    body += "".join(matmul("p", accumulate=i > 0) for i in range(64))
    body += "nisa.tensor_copy(dst=y, src=p)\nnisa.dma_copy(dst=out, src=y)\n"
    body += tile("t", 512) + "nisa.dma_copy(dst=t, src=a)\n"
    body += "nisa.tensor_copy(dst=y, src=t)\nreturn out"
    result = run(body, integers(128, 512, dtype=np.float32))
    store, load = events(result, "dma_copy")
    assert load.start_ns == 0.0
    assert store.start_ns > load.end_ns


def test_no_number_of_waiting_stores_holds_up_later_loads(run: Any, integers: Any) -> None:
    body = HEAD + tile("p", 512, "psum")
    body += "".join(matmul("p", accumulate=i > 0) for i in range(64))
    body += "nisa.tensor_copy(dst=y, src=p)\n"
    for i in range(32):
        rows = f"{4 * i}:{4 * i + 4}"
        body += f"nisa.dma_copy(dst=out[{rows}], src=y[{rows}])\n"
    body += tile("t", 512) + "nisa.dma_copy(dst=t, src=a)\n"
    body += "nisa.tensor_copy(dst=y, src=t)\nreturn out"
    result = run(body, integers(128, 512, dtype=np.float32))
    *stores, load = events(result, "dma_copy")
    assert load.start_ns == 0.0
    assert all(store.start_ns > load.end_ns for store in stores)


def test_sbuf_room_delays_a_load_until_the_previous_tile_is_read(run: Any, integers: Any) -> None:
    columns = 30_000
    body = 'out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm, name="out")\n'
    for i in range(2):
        body += tile(f"t{i}", columns) + f"nisa.dma_copy(dst=t{i}, src=a)\n"
        body += tile(f"y{i}", 512) + f"nisa.tensor_copy(dst=y{i}, src=t{i}[0:128, 0:512])\n"
    result = run(body + "nisa.dma_copy(dst=out, src=y1)\nreturn out", np.ones((128, columns), "f4"))
    first, second, _ = events(result, "dma_copy")
    copy = events(result, "tensor_copy")[0]
    assert second.start_ns == pytest.approx(copy.end_ns + TRN2.semaphore_ns)
    assert first.start_ns == 0.0


def test_row_tiles_run_side_by_side(run: Any) -> None:
    body = HEAD
    for row in range(4):
        body += tile(f"p{row}", 512, "psum")
    for row in range(4):
        rows = f"{32 * row}:{32 * row + 32}"
        body += (
            f"nisa.nc_matmul(dst=p{row}, stationary=w[{rows}], moving=x[{rows}], "
            f"accumulate=False, tile_position=({32 * row}, 0), tile_size=(32, 128))\n"
        )
    body += "".join(f"nisa.tensor_copy(dst=y, src=p{row})\n" for row in range(4))
    result = run(body + TAIL)
    matmuls = events(result, "nc_matmul")
    assert len({event.start_ns for event in matmuls}) == 1
    assert result.timeline.busy_us["tensor"] == pytest.approx(512 / 2.4 / 1e3)


def test_loop_iterations_follow_each_other(run: Any, integers: Any) -> None:
    body = """
out = nl.ndarray((3, 128, 64), dtype=nl.float32, buffer=nl.shared_hbm, name="out")

def body(i):
    t = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf, name="t")
    pattern = [[64, 128], [1, 64]]
    nisa.dma_copy(dst=t, src=a.ap(pattern=pattern, offset=0, scalar_offset=i, indirect_dim=0))
    nisa.dma_copy(dst=out.ap(pattern=pattern, offset=0, scalar_offset=i, indirect_dim=0), src=t)

nl.fori_loop(0, 3, body)
return out
"""
    result = run(body, integers(3, 128, 64, dtype=np.float32), nki="0.6..0.7")
    copies = events(result, "dma_copy")
    for i in range(2):
        assert copies[2 * i + 2].start_ns >= copies[2 * i + 1].end_ns


def test_cores_meet_at_barriers(run: Any, integers: Any) -> None:
    body = """
out = nl.ndarray((2, 128, 64), dtype=nl.float32, buffer=nl.shared_hbm, name="out")
me = nl.program_id(0)
t = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf, name="t")
nisa.dma_copy(dst=t, src=a)
for i in range(1 + 20 * me):
    nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)
nisa.core_barrier(data=out, cores=(0, 1))
nisa.dma_copy(dst=out[me], src=t)
return out
"""
    result = run(body, integers(128, 64, dtype=np.float32), lnc=2)
    stores = [event for event in events(result, "dma_copy") if event.line == 16]
    slow = [event for event in events(result, "tensor_scalar") if event.core == 1]
    assert {store.core for store in stores} == {0, 1}
    assert all(store.start_ns >= slow[-1].end_ns for store in stores)


def test_utilisation_is_a_share_of_the_peak(run: Any) -> None:
    chain = "".join(matmul("p", accumulate=i > 0) for i in range(8))
    result = run(HEAD + tile("p", 512, "psum") + chain + "nisa.tensor_copy(dst=y, src=p)\n" + TAIL)
    timeline = result.timeline
    peak = 128 * 128 * 2.4e3 * timeline.makespan_us
    assert timeline.pe_utilisation == pytest.approx(result.counts.macs / peak)
    assert timeline.utilisation(result.counts.macs // 2) == pytest.approx(
        timeline.pe_utilisation / 2
    )


def test_run_lengths_are_counted(run: Any, integers: Any) -> None:
    body = """
out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm, name="out")
t = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf, name="t")
nisa.dma_copy(dst=t[0:128, 0:256], src=a[0:128, 0:256])
nisa.dma_copy(dst=t[0:128, 256:512:2], src=a[0:128, 256:512:2])
nisa.dma_copy(dst=t[0:128, 257:512:2], src=t[0:128, 256:512:2])
nisa.dma_copy(dst=out, src=t)
return out
"""
    counts = run(body, integers(128, 512, dtype=np.float32)).counts
    short, kilobyte, long = 2 * 128 * 128 * 4, 128 * 1024, 128 * 2048
    assert dict(counts.dma_bytes_by_run) == {2048: kilobyte, 64: short, 0: long}
    assert counts.short_run_share == pytest.approx(short / (short + kilobyte + long))
    assert counts.dma_in_bytes == 128 * (256 + 128) * 4
    assert counts.dma_onchip_bytes == 128 * 128 * 4
    assert counts.dma_out_bytes == 128 * 2048
    assert counts.dma_descriptors == 128 * (1 + 128 + 128 + 1)
