# SPDX-License-Identifier: Apache-2.0
"""How long a program takes, told from the engines' times section by section, without playing its instructions.

What it assumes, and the simulator's timeline does not have to:

- Within a section the tensor engine and evictions overlap, so that it takes as long as the busier of the two; Vector
  and Scalar share evictions evenly.
- What a section loads for itself arrives buffer by buffer while it works. Of what an earlier one loaded for it, that
  must be there which its first matmul or transpose reads. Loads run ahead of the work by one slab: room for more is
  rare.
- A load takes its share of all DMA engines' time, or of the queues, each of which a transfer holds for its own time and
  latency, whichever is more. It is there when the engines that serve its partitions are done.
- Stores leave as results come. Iterations of hardware loops follow each other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from conv3d_codegen.program.price import engine_times, instruction_ns, queued_ns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from conv3d_codegen.program.instructions import Instruction
    from conv3d_codegen.program.program import Program
    from conv3d_codegen.program.views import Buffer
    from conv3d_codegen.targets import TargetSpec


def makespan_ns(program: Program, spec: TargetSpec) -> float:
    """Estimate the time from the first load to the last store, on one core."""
    clock = _Clock(spec)
    for loop, sections in program.blocks:
        body = clock if loop is None else _Clock(spec)
        for section in sections:
            body.run(_stage(section.instructions(), spec))
        if loop is not None:
            clock.meet(clock.end + loop.iterations * body.end)
    busy = dict(engine_times(program, spec).by_engine)
    # The first load and the last store arrive a latency after the transfers themselves.
    transfers = busy.pop("dma") + 2 * spec.dma_latency_ns
    return max(clock.end, transfers, *busy.values())


@dataclass(slots=True)
class _Transfers:
    """Transfers in one direction: share of the DMA engines, share of the queues, and buffers on chip in order.

    buffers: of each the share of the DMA engines, and how much longer its longest transfer takes on those it has.
    """

    shared: float = 0.0
    queued: float = 0.0
    buffers: dict[Buffer, tuple[float, float]] = field(default_factory=dict)

    @property
    def ns(self) -> float:
        return max(self.shared, self.queued)

    def add(self, buffer: Buffer, ns: float, queued: float, spec: TargetSpec) -> None:
        """Add one transfer."""
        self.shared += ns
        self.queued += queued
        share, longer = self.buffers.get(buffer, (0.0, 0.0))
        own = queued * spec.dma_queues - spec.dma_latency_ns
        self.buffers[buffer] = share + ns, max(longer, own - ns)

    @property
    def piece(self) -> float:
        """Time of one buffer."""
        return self.ns / max(1, len(self.buffers))


@dataclass(slots=True)
class _Stage:
    """What a section keeps the engines busy for, in ns; first_read: what its first matmul or transpose reads."""

    first_read: tuple[Buffer, ...] = ()
    loads: _Transfers = field(default_factory=_Transfers)
    stores: _Transfers = field(default_factory=_Transfers)
    tensor: float = 0.0
    evictions: float = 0.0

    @property
    def work(self) -> float:
        return max(self.tensor, self.evictions)


def _stage(instructions: Iterable[Instruction], spec: TargetSpec) -> _Stage:
    stage = _Stage()
    for instruction in instructions:
        ns = instruction_ns(instruction, spec)
        if instruction.engine == "tensor":
            if not stage.tensor:
                stage.first_read = tuple(view.buffer.storage for view in instruction.reads)
            stage.tensor += ns
        elif instruction.engine in {"vector", "scalar"}:
            stage.evictions += ns / 2
        elif instruction.engine == "dma":
            (dst,), (src, *_) = instruction.writes, instruction.reads
            arrives = dst.buffer.space in {"sbuf", "psum"}
            transfers, end = (stage.loads, dst) if arrives else (stage.stores, src)
            transfers.add(end.buffer.storage, ns, queued_ns(instruction, spec), spec)
    return stage


class _Clock:
    """When loads, work and stores are done."""

    def __init__(self, spec: TargetSpec) -> None:
        self._latency = spec.dma_latency_ns
        self._result_delay = spec.tensor_fill_ns + spec.semaphore_ns
        self._arrivals: dict[Buffer, float] = {}
        self._pieces = 1  # buffers that the last loads brought
        self.meet(0.0)

    def meet(self, time: float) -> None:
        """Let everything be done at a time."""
        self._loaded = self._worked = self._stored = self._arrived = time
        # When the work before the last loads ended, and that before those before them.
        self._recent = self._earlier = time

    @property
    def end(self) -> float:
        """When all is done, the last store with its latency."""
        return max(self._loaded, self._worked + self._result_delay, self._stored + self._latency)

    def _load(self, start: float, loads: _Transfers) -> float:
        """Note when buffers arrive; the time at which all are there."""
        last = done = 0.0
        for buffer, (share, longer) in loads.buffers.items():
            done += share * loads.ns / loads.shared
            self._arrivals[buffer] = start + done + longer + self._latency
            last = max(last, self._arrivals[buffer])
        return last

    def run(self, stage: _Stage) -> None:
        """Add a section."""
        loads, stores = stage.loads, stage.stores
        first = last = self._arrived
        if loads.ns:
            if self._worked > self._recent:
                self._earlier, self._recent = self._recent, self._worked
            start = max(self._loaded, self._earlier)
            self._loaded = start + loads.ns
            last = self._arrived = self._load(start, loads)
            first = max(first, start + loads.piece + self._latency)
            self._pieces = len(loads.buffers)
        if stage.work:
            pieces = self._pieces if stage.tensor else 1
            if not loads.ns or not any(buffer in loads.buffers for buffer in stage.first_read):
                first = max((self._arrivals.get(b, 0.0) for b in stage.first_read), default=first)
            start = max(self._worked, first if pieces > 1 else last)
            self._worked = max(start + stage.work, last + stage.work / pieces)
        if stores.ns:
            ready = self._worked + self._result_delay - (stores.ns - stores.piece)
            self._stored = max(self._stored, ready) + stores.ns
