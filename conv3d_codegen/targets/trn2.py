# SPDX-License-Identifier: Apache-2.0
"""Trainium2: NeuronCore-v3, "gen3"."""

from __future__ import annotations

from conv3d_codegen.targets.spec import TargetSpec

TRN2 = TargetSpec(
    name="trn2",
    generation="gen3",
    # Trainium2 architecture guide, engine specification tables.
    clock_ghz={"tensor": 2.4, "vector": 0.96, "scalar": 1.2, "gpsimd": 1.2},
    # 224 KiB less what the compiler keeps: nkipy, HardwareConstants.h.
    sbuf_bytes_per_partition=212_984,
    # nc_matmul docstring: PSUM destinations are fp32 in one 2 KiB bank.
    matmul_max_columns={"float32": 512},
    matmul_dst_bytes=2048,
    # nc_matmul docstring; e4m3fn needs Trainium3.
    matmul_operand_dtypes=frozenset(
        {"float8_e4m3", "float8_e5m2", "bfloat16", "float16", "tfloat32", "float32"}
    ),
    # NKI DMA bandwidth guide: 368 GB/s over 16 engines.
    dma_engine_rate=23.0,
    # Trainium2 architecture guide: fast modes for 16-bit floats.
    vector_fast_itemsizes=(2,),
    scalar_narrow_rate=1,
)
