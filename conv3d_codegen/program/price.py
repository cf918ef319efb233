# SPDX-License-Identifier: Apache-2.0
"""What a program costs by the hardware tables: busy time of each engine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conv3d_codegen.dtypes import dtype
from conv3d_codegen.program.views import (
    contiguous_run,
    elements,
    elements_per_partition,
    inner_stride,
)
from conv3d_codegen.targets.cost import (
    Access,
    copy_ns,
    dma_busy_ns,
    dma_ns,
    matmul_ns,
    memset_ns,
    reduce_ns,
    select_ns,
    tensor_tensor_ns,
    transpose_ns,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from conv3d_codegen.program.instructions import Instruction
    from conv3d_codegen.program.program import Program
    from conv3d_codegen.program.views import View
    from conv3d_codegen.targets import TargetSpec


@dataclass(frozen=True, slots=True)
class EngineTimes:
    """Busy time in ns per engine: tensor, vector, scalar, gpsimd, dma."""

    by_engine: tuple[tuple[str, float], ...]

    @property
    def bound(self) -> str:
        """The busiest engine."""
        return max(self.by_engine, key=lambda row: row[1])[0]

    @property
    def busiest_ns(self) -> float:
        """Busy time of the busiest engine: no overlap can beat it."""
        return max(time for _, time in self.by_engine)


def engine_times(program: Program, spec: TargetSpec) -> EngineTimes:
    """Add up what every instruction keeps its engine busy for."""
    totals = dict.fromkeys(("tensor", "vector", "scalar", "gpsimd", "dma"), 0.0)
    for times, instruction in program.executed():
        totals[instruction.engine] += times * instruction_ns(instruction, spec)
    return EngineTimes(tuple(totals.items()))


def instruction_ns(instruction: Instruction, spec: TargetSpec) -> float:
    """Price one instruction."""
    return _PRICES[instruction.name](instruction, spec)


def queued_ns(transfer: Instruction, spec: TargetSpec) -> float:
    """Price the share of all DMA queues' time that a transfer holds one of them."""
    views = (*transfer.writes, *transfer.reads)
    on_chip = [view.shape[0] for view in views if view.buffer.space in {"sbuf", "psum"}]
    run, descriptors = _runs(transfer)
    own = dma_ns(spec, run, descriptors, max(on_chip, default=spec.partitions))
    return (own + spec.dma_latency_ns) / spec.dma_queues


def access(view: View) -> Access:
    """Describe a view to the cost tables."""
    return Access(
        memory=view.buffer.space,
        itemsize=dtype(view.buffer.dtype).bytes,
        inner_stride=inner_stride(view),
    )


def _matmul(instruction: Instruction, spec: TargetSpec) -> float:
    (dst,), (_, moving) = instruction.writes, instruction.reads
    return matmul_ns(
        spec,
        elements_per_partition(dst),
        stationary_columns=dst.shape[0],
        dtype=moving.buffer.dtype,
        moving=access(moving),
    )


def _transpose(instruction: Instruction, spec: TargetSpec) -> float:
    (data,) = instruction.reads
    itemsize = dtype(data.buffer.dtype).bytes
    return transpose_ns(spec, data.shape[0], elements_per_partition(data), itemsize=itemsize)


def _dma(instruction: Instruction, spec: TargetSpec) -> float:
    return dma_busy_ns(spec, *_runs(instruction))


def _runs(transfer: Instruction) -> tuple[int, int]:
    """Bytes of a run that is contiguous on both sides, and how many of them there are."""
    (dst,), (src,) = transfer.writes, transfer.reads
    run = math.gcd(contiguous_run(dst), contiguous_run(src))
    itemsize = max(dtype(dst.buffer.dtype).bytes, dtype(src.buffer.dtype).bytes)
    return run * itemsize, elements(dst) // run


def _copy(instruction: Instruction, spec: TargetSpec) -> float:
    (dst,), (src,) = instruction.writes, instruction.reads
    columns = elements_per_partition(dst)
    return copy_ns(spec, instruction.engine, columns, access(src), access(dst))


def _memset(instruction: Instruction, spec: TargetSpec) -> float:
    (dst,) = instruction.writes
    columns = elements_per_partition(dst)
    return memset_ns(spec, instruction.engine, columns, access(dst), zero=True)


def _tensor_tensor(instruction: Instruction, spec: TargetSpec) -> float:
    (dst,), (left, right) = instruction.writes, instruction.reads
    columns = elements_per_partition(dst)
    inputs = (access(left), access(right))
    return tensor_tensor_ns(spec, instruction.engine, columns, inputs, access(dst))


def _reduce(instruction: Instruction, spec: TargetSpec) -> float:
    (dst,), (data,) = instruction.writes, instruction.reads
    return reduce_ns(spec, elements_per_partition(data), access(data), access(dst))


def _select(instruction: Instruction, spec: TargetSpec) -> float:
    (dst,) = instruction.writes
    return select_ns(spec, elements_per_partition(dst))


_PRICES: dict[str, Callable[[Instruction, TargetSpec], float]] = {
    "nc_matmul": _matmul,
    "nc_transpose": _transpose,
    "dma_copy": _dma,
    "sendrecv": _dma,
    "tensor_copy": _copy,
    "memset": _memset,
    "tensor_tensor": _tensor_tensor,
    "tensor_reduce": _reduce,
    "iota": _select,
    "affine_select": _select,
}
