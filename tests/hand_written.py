# SPDX-License-Identifier: Apache-2.0
"""A kernel as people write them, for tests of everything that reads kernel files."""

from __future__ import annotations

KEY = "conv3d-n1-ci4-co8-i1x1x6-k1x1x2-s1x1x1-p0.0.0.0.0.0-d1x1x1-bf16-trn2-dx"

# As small as a kernel with two taps gets: dx[c, i] = sum over t, o of w[t, c, o] * dy[o, i - t].
KERNEL = f"""\
# Regenerate: python -m conv3d_codegen emit --key {KEY}
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def by_hand(dy, x_in, filters):
    dx = nl.ndarray((1, 4, 1, 1, 6), dtype=nl.bfloat16, buffer=nl.shared_hbm, name="dx")
    rows = nl.ndarray((8, 7), dtype=nl.bfloat16, buffer=nl.sbuf, name="rows")
    tap0 = nl.ndarray((8, 4), dtype=nl.bfloat16, buffer=nl.sbuf, name="tap0")
    tap1 = nl.ndarray((8, 4), dtype=nl.bfloat16, buffer=nl.sbuf, name="tap1")
    acc = nl.ndarray((4, 6), dtype=nl.float32, buffer=nl.psum, name="acc")
    out = nl.ndarray((4, 6), dtype=nl.bfloat16, buffer=nl.sbuf, name="out")
    nisa.memset(dst=rows, value=0.0)
    nisa.dma_copy(dst=rows[0:8, 1:6], src=dy.reshape((8, 5)))
    nisa.dma_copy(dst=tap0, src=filters.ap(pattern=[[1, 8], [8, 4]], offset=0))
    nisa.dma_copy(dst=tap1, src=filters.ap(pattern=[[1, 8], [8, 4]], offset=32))
    nisa.nc_matmul(dst=acc, stationary=tap0, moving=rows[0:8, 1:7], accumulate=False)
    nisa.nc_matmul(dst=acc, stationary=tap1, moving=rows[0:8, 0:6], accumulate=True)
    nisa.tensor_copy(dst=out, src=acc)
    nisa.dma_copy(dst=dx.reshape((4, 6)), src=out)
    return dx
"""
