# SPDX-License-Identifier: Apache-2.0
"""How long one instruction keeps its engine busy, in ns.

The planner's closed form and the simulator's timeline both price with these functions. AWS
published per-instruction costs with the Beta-1 `nki.isa` docstrings (SDK 2.20 to 2.26), in cycles
of the executing engine; the architecture guides of Trainium2 and Trainium3 add fast modes. They
are a model of the hardware, not a promise.

`columns` is always the number of elements per partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conv3d_codegen.targets.spec import TargetSpec

# Full fp32 goes through the PE in four passes, every other type in one (Inferentia2 guide).
_FP32_PASSES = 4
# Transpose mode moves fp32 twice as fast as a product would (Trainium2 guide).
_FP32_TRANSPOSE_PASSES = 2
# A float is called narrow when Vector has fast modes for pairs of it.
_HALF_WORD = 2


@dataclass(frozen=True, slots=True)
class Access:
    """What an operand's memory traffic costs: where it lies and how its elements follow."""

    memory: str  # "sbuf" or "psum"
    itemsize: int
    is_float: bool = True
    inner_stride: int = 1  # elements between neighbours along the innermost dimension

    def is_wide(self, spec: TargetSpec) -> bool:
        """Whether neighbours lie so far apart that the memory port runs at half rate."""
        return self.inner_stride * self.itemsize > spec.wide_stride_bytes


def _cycles_ns(spec: TargetSpec, engine: str, cycles: float) -> float:
    return max(cycles, spec.min_interval_cycles) / spec.clock_ghz[engine]


def _port_factor(spec: TargetSpec, *accesses: Access) -> int:
    return 2 if any(access.is_wide(spec) for access in accesses) else 1


def matmul_ns(
    spec: TargetSpec,
    columns: int,
    *,
    stationary_columns: int = 128,
    dtype: str = "bfloat16",
    moving: Access | None = None,
) -> float:
    """One nc_matmul in a long run of them: LoadStationary hides behind the previous multiply.

    How many rows contract does not matter. A double-row fp8 matmul costs the same as this one.
    """
    passes = _FP32_PASSES if dtype in {"float32", "fp32"} else 1
    multiply = max(columns, spec.min_interval_cycles) * passes
    if moving is not None:
        multiply *= _port_factor(spec, moving)
    load = stationary_columns / spec.load_stationary_columns_per_cycle * passes
    return max(multiply, load) / spec.clock_ghz["tensor"]


def transpose_ns(
    spec: TargetSpec, rows: int, columns: int, *, itemsize: int, engine: str = "tensor"
) -> float:
    """nc_transpose of [rows, columns], or the same as a matmul in transpose mode."""
    if engine != "tensor":
        return _cycles_ns(spec, engine, columns)
    cycles = max(rows, min(spec.min_interval_cycles, columns))
    passes = _FP32_TRANSPOSE_PASSES if itemsize > _HALF_WORD else 1
    return cycles * passes / spec.clock_ghz["tensor"]


def copy_rate(spec: TargetSpec, engine: str, src: Access, dst: Access) -> int:
    """Elements a cycle and partition of tensor_copy, tensor_scalar and activation."""
    if not (src.is_float and dst.is_float):
        return 1
    if engine == "scalar":
        narrow = src.itemsize <= _HALF_WORD and dst.itemsize <= _HALF_WORD
        return spec.scalar_narrow_rate if narrow else 1
    if engine != "vector" or not {src.itemsize, dst.itemsize} <= set(spec.vector_fast_itemsizes):
        return 1
    strided = src.inner_stride != 1 or dst.inner_stride != 1
    in_psum = "psum" in {src.memory, dst.memory}
    if in_psum and strided:
        return 1
    return 2 if in_psum or strided else 4


def copy_ns(spec: TargetSpec, engine: str, columns: int, src: Access, dst: Access) -> float:
    """tensor_copy, and tensor_scalar with one or two operators, which cost the same."""
    cycles = columns / copy_rate(spec, engine, src, dst) * _port_factor(spec, src, dst)
    return _cycles_ns(spec, engine, cycles)


def activation_ns(
    spec: TargetSpec, columns: int, src: Access, dst: Access, *, reduces: bool = False
) -> float:
    """Activation on Scalar; reading out the accumulator adds an interval."""
    cycles = max(columns * _port_factor(spec, src, dst), spec.min_interval_cycles)
    extra = spec.min_interval_cycles if reduces else 0
    return (cycles + extra) / spec.clock_ghz["scalar"]


def tensor_tensor_ns(
    spec: TargetSpec, engine: str, columns: int, inputs: tuple[Access, Access], dst: Access
) -> float:
    """Two tile inputs: 2N cycles, but N when one is in PSUM or everything is a 16-bit float."""
    accesses = (*inputs, dst)
    narrow = all(a.is_float and a.itemsize == _HALF_WORD for a in accesses)
    one_pass = narrow or "psum" in {a.memory for a in inputs}
    cycles = columns * (1 if one_pass else 2) * _port_factor(spec, *accesses)
    return _cycles_ns(spec, engine, cycles)


def scalar_tensor_tensor_ns(
    spec: TargetSpec, columns: int, inputs: tuple[Access, Access], dst: Access
) -> float:
    """Two operators on two tiles, on Vector: 2N cycles."""
    return _cycles_ns(spec, "vector", 2 * columns * _port_factor(spec, *inputs, dst))


def reduce_ns(spec: TargetSpec, columns: int, src: Access, dst: Access) -> float:
    """tensor_reduce on Vector: N cycles, half of that between 16-bit floats."""
    narrow = all(a.is_float and a.itemsize == _HALF_WORD for a in (src, dst))
    cycles = columns / (2 if narrow else 1) * _port_factor(spec, src)
    return _cycles_ns(spec, "vector", cycles)


def memset_ns(spec: TargetSpec, engine: str, columns: int, dst: Access, *, zero: bool) -> float:
    """Memset: N cycles, half of that for zeros of a 16-bit type."""
    cycles = columns / (2 if zero and dst.itemsize == _HALF_WORD else 1)
    return _cycles_ns(spec, engine, cycles * _port_factor(spec, dst))


def select_ns(spec: TargetSpec, columns: int) -> float:
    """Iota and affine_select on GpSimd."""
    return (spec.gpsimd_setup_cycles + columns) / spec.clock_ghz["gpsimd"]


def dma_busy_ns(spec: TargetSpec, run_bytes: int, descriptors: int) -> float:
    """Share of all DMA engines' time that one transfer takes, in ns of the whole group.

    A descriptor is a run that is contiguous on both sides. The two per-engine samples that AWS
    publishes (8 × 256 B in 97 ns, 32 KiB in 1416 ns) give 23 B/ns plus 1 ns per descriptor; the
    50 ns per call fit 128 × 4096 B at 354 GB/s. Between the samples the model is optimistic: it
    gives 316 GB/s for 128 × 1024 B where AWS's profile shows 259, and AWS's curve for calls that
    wait for each other (42 % at 1 KiB, 81 % at 2 KiB) is the latency, which overlaps when several
    transfers are in flight.
    """
    run = max(run_bytes, spec.dma_min_descriptor_bytes)
    per_descriptor = run / spec.dma_engine_rate + spec.dma_descriptor_ns
    return spec.dma_call_ns + descriptors * per_descriptor / spec.dma_engines


def dma_ns(spec: TargetSpec, run_bytes: int, descriptors: int, partitions: int) -> float:
    """How long the engines that serve a transfer work on it, latency not included.

    Each engine serves the partitions of its share of SBUF, so that a transfer that touches few
    partitions runs on few engines (NKI DMA bandwidth guide: use 128 partitions) and lasts longer
    while the other engines are free for other transfers.
    """
    engines = min(spec.dma_engines, -(-partitions * spec.dma_engines // spec.partitions))
    busy = dma_busy_ns(spec, run_bytes, descriptors) - spec.dma_call_ns
    return spec.dma_call_ns + busy * spec.dma_engines / engines


def dma_transpose_busy_ns(spec: TargetSpec, total_bytes: int, *, from_hbm: bool) -> float:
    """dma_transpose at its documented fraction of a long copy's rate."""
    efficiency = (
        spec.dma_transpose_hbm_efficiency if from_hbm else spec.dma_transpose_sbuf_efficiency
    )
    return spec.dma_call_ns + total_bytes / spec.dma_rate / efficiency
