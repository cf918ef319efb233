# SPDX-License-Identifier: Apache-2.0
"""Trainium3: NeuronCore-v4, "gen4"."""

from __future__ import annotations

from conv3d_codegen.targets.spec import TargetSpec

TRN3 = TargetSpec(
    name="trn3",
    generation="gen4",
    # Trainium3 architecture guide, engine specification tables.
    clock_ghz={"tensor": 2.4, "vector": 1.2, "scalar": 1.2, "gpsimd": 1.2},
    # 256 KiB less what the compiler keeps: nkipy, HardwareConstants.h.
    sbuf_bytes_per_partition=245_752,
    # nc_matmul docstring: destinations may span all of PSUM.
    matmul_max_columns={"float32": 4096, "bfloat16": 8192},
    matmul_dst_bytes=16_384,
    matmul_operand_dtypes=frozenset(
        {
            "float8_e4m3",
            "float8_e4m3fn",
            "float8_e5m2",
            "bfloat16",
            "float16",
            "tfloat32",
            "float32",
        }
    ),
    # NKI DMA bandwidth guide: 528 GB/s over 16 engines.
    dma_engine_rate=33.0,
    # Trainium3 architecture guide: 8-bit floats join the fast modes.
    vector_fast_itemsizes=(1, 2),
    # Trainium3 architecture guide: Scalar copies 16-bit floats at twice the rate.
    scalar_narrow_rate=2,
)
