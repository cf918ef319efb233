# SPDX-License-Identifier: Apache-2.0
"""The shape of a hardware table: everything the planner and the simulator know about a core."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSpec:
    """One physical NeuronCore. Times are ns, clocks GHz (cycles per ns), rates bytes per ns.

    Numbers that differ between generations have no default: `trn2.py` and `trn3.py` give them
    with their sources. The defaults below hold for every generation that NKI supports today.
    """

    name: str
    generation: str
    clock_ghz: Mapping[str, float] = field(hash=False)
    sbuf_bytes_per_partition: int
    # Columns of one matmul by dtype of its PSUM destination, and the bytes per partition that
    # destination may span.
    matmul_max_columns: Mapping[str, int] = field(hash=False)
    matmul_dst_bytes: int
    matmul_operand_dtypes: frozenset[str]
    dma_engine_rate: float
    # Element sizes (bytes) of floats for which Vector's copies run at several elements a cycle.
    vector_fast_itemsizes: tuple[int, ...]
    # Elements a cycle and partition that Scalar copies of 16-bit floats reach.
    scalar_narrow_rate: int

    # Partitions of SBUF and PSUM, and the PE array: 128 on every generation (architecture
    # guides' specification tables).
    partitions: int = 128
    matmul_max_stationary_columns: int = 128
    # 16 KiB of PSUM per partition in 8 banks of 2 KiB (architecture guides; nl.tile_size).
    psum_banks: int = 8
    psum_bank_bytes: int = 2048
    # SBUF and PSUM tensors start at multiples of 64 bytes: nkipy's allocator aligns so; AWS
    # publishes no number for nl.tile_size.sbuf_min_align.
    onchip_alignment: int = 64
    # The nc_matmul docstring describes column tiling and, in its parameter notes, forbids it;
    # off until AWS's documentation agrees with itself.
    column_tiling: bool = False
    # fp8 operands of [K, 2, M] and [K, 2, N] contract 2K rows in the time of K rows of 16 bits, without
    # column tiling or transposes (Trainium2 guide, "double FP8"; nc_matmul docstring: Trainium2 and later).
    double_row: bool = True
    # Instruction interval floor in the engine's own cycles (Beta-1 nki.isa docstrings: every
    # cost is max(64, N); the Inferentia2 guide quotes the same 64 for MultiplyMoving).
    min_interval_cycles: int = 64
    # LoadStationary moves up to four columns a cycle (NKI performance guide).
    load_stationary_columns_per_cycle: int = 4
    # Small instructions that depend on the previous one pay about 100 cycles (Inferentia2 guide).
    dependent_cycles: int = 100
    # A 128-column matmul takes 188 ns from issue to its last result where its interval is
    # 46 ns (NKI performance guide, profile screenshots): the pipeline's fill.
    tensor_fill_ns: float = 142.0
    # A wait on another engine's semaphore, as seen in the same screenshots.
    semaphore_ns: float = 25.0
    # iota and affine_select on GpSimd: 150 + N cycles (Beta-1 nki.isa docstrings).
    gpsimd_setup_cycles: int = 150
    # Inner strides above 16 bytes halve SBUF and PSUM port bandwidth (Inferentia2 guide).
    wide_stride_bytes: int = 16
    # 16 DMA engines with 16 queues each serve a core (NKI DMA overview).
    dma_engines: int = 16
    dma_queues: int = 16
    # From the trigger of a transfer to the start of what depends on it, without the transfer
    # itself (NKI DMA bandwidth guide: about 1300 ns).
    dma_latency_ns: float = 1300.0
    # One engine moves 8 descriptors of 256 bytes in 97 ns and 32 KiB in 1416 ns (NKI DMA
    # overview, trn2): 23 bytes/ns, and 1 ns per descriptor.
    dma_descriptor_ns: float = 1.0
    # Below 64 bytes a descriptor costs what 64 cost (one DRAM burst).
    dma_min_descriptor_bytes: int = 64
    # Fixed share of every call: 128 partitions × 4 KiB reach 354 of 368 GB/s in AWS's profile.
    dma_call_ns: float = 50.0
    # dma_transpose reaches 90 % of a copy from HBM and 50 % within SBUF (Trainium2 guide).
    dma_transpose_hbm_efficiency: float = 0.9
    dma_transpose_sbuf_efficiency: float = 0.5
    # Physical cores per logical core (LNC guide).
    lnc_sizes: tuple[int, ...] = (1, 2)
    # Hardware field widths of an access pattern: 16-bit signed strides (Inferentia2 guide).
    max_access_stride: int = 32767
    # One instruction addresses up to 64 Ki elements per partition (architecture guides).
    max_access_elements: int = 65_536
    # Largest output tensor the compiler accepts (NCC_EVRF024).
    max_output_bytes: int = 4 << 30

    @property
    def psum_bytes_per_partition(self) -> int:
        """All banks together."""
        return self.psum_banks * self.psum_bank_bytes

    @property
    def dma_rate(self) -> float:
        """Bytes per ns of all DMA engines together, at long descriptors."""
        return self.dma_engines * self.dma_engine_rate

    def products_per_cell(self, itemsize: int) -> int:
        """Products that one cell of the PE array adds at a time: two of 8-bit floats, else one."""
        return 2 if itemsize == 1 and self.double_row else 1

    @property
    def peak_macs_per_ns(self) -> float:
        """Multiply-accumulates per ns of the full PE array at 16 bits."""
        return self.partitions * self.matmul_max_stationary_columns * self.clock_ghz["tensor"]
