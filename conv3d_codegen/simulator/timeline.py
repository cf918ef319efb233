# SPDX-License-Identifier: Apache-2.0
"""When each instruction would run: in-order engines, dependencies by storage region.

An instruction starts when its engine is free, its operands are written, nobody still uses what it
overwrites, and its tensors have room. Engines see each other's results after a semaphore wait on
top of the producer's own latency. In hardware loops the engines meet between iterations: AWS
documents no cost, and this is the cautious reading.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from conv3d_codegen.simulator.cell_map import CellMap
from conv3d_codegen.simulator.dma_queues import DmaQueues
from conv3d_codegen.simulator.lifetimes import lifetimes
from conv3d_codegen.simulator.placement import Placement
from conv3d_codegen.simulator.tensors import INPUT, OUTPUT, PSUM
from conv3d_codegen.simulator.trace import BARRIER, CORE_BARRIER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from conv3d_codegen.simulator.cell_map import Region
    from conv3d_codegen.simulator.lifetimes import Lifetime
    from conv3d_codegen.simulator.tensors import Storage
    from conv3d_codegen.simulator.trace import Operand, Step
    from conv3d_codegen.targets import TargetSpec

ENGINES = ("tensor", "vector", "scalar", "gpsimd", "dma")
_ROW_GROUPS = 4


class Event(NamedTuple):
    """One instruction on the timeline."""

    core: int
    engine: str
    kind: str
    line: int
    start_ns: float
    end_ns: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """How long the kernel takes and what the engines do meanwhile, by the cost tables.

    `busy_us` says how long each engine works, `stalls_us` how long each compute engine waits for
    what: for another engine's result or last use ("dma", "tensor", ...), or for room ("sbuf",
    "psum"). With two cores both hold the larger of the cores' times.
    """

    makespan_us: float = 0.0
    busy_us: Mapping[str, float] = field(default_factory=dict)
    stalls_us: Mapping[tuple[str, str], float] = field(default_factory=dict)
    executed_macs: int = 0
    peak_macs_per_us: float = 0.0
    events: tuple[Event, ...] = ()

    @property
    def pe_utilisation(self) -> float:
        """Executed multiply-accumulates as a share of the 16-bit peak over the makespan."""
        return self.utilisation(self.executed_macs)

    def utilisation(self, macs: float) -> float:
        """Share of the 16-bit peak over the makespan that a number of useful MACs is."""
        capacity = self.makespan_us * self.peak_macs_per_us
        return macs / capacity if capacity else 0.0


class _StorageTimes:
    """Per engine and element: the end of its last write and of its last read."""

    __slots__ = ("end", "reads", "storage", "writes")

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.writes: dict[str, CellMap] = {}
        self.reads: dict[str, CellMap] = {}
        self.end = 0.0

    def note(self, maps: dict[str, CellMap], engine: str, region: Region, end: float) -> None:
        cells = maps.get(engine)
        if cells is None:
            cells = maps[engine] = CellMap(self.storage.partitions, self.storage.free, np.float64)
        cells.view(region).fill(end)
        self.end = max(self.end, end)


class _CoreSchedule:
    """Plays one core's trace."""

    def __init__(self, spec: TargetSpec, core: int, trace: Sequence[Step]) -> None:
        self._spec = spec
        self._core = core
        self._living = lifetimes(trace)
        self._ends_at = _by_last_use(self._living)
        self._times: dict[int, _StorageTimes] = {}
        self._placement = Placement(spec)
        self._dma = DmaQueues(spec)
        self._free = dict.fromkeys(ENGINES, 0.0)
        self._row_free = [0.0] * _ROW_GROUPS
        self._psum_use: dict[tuple[str, int], tuple[float, float]] = {}
        self._wait = (0.0, "")
        self.now = 0.0
        self.busy = dict.fromkeys(ENGINES, 0.0)
        self.stalls: dict[tuple[str, str], float] = {}
        self.events: list[Event] = []
        dependent = {e: spec.dependent_cycles / spec.clock_ghz[e] for e in ENGINES[1:4]}
        # What a result needs to be seen after its instruction's end; a transfer's end includes it.
        self._latency = {**dependent, "tensor": spec.tensor_fill_ns, "dma": 0.0}

    def play(self, position: int, step: Step) -> None:
        """Schedule the next instruction."""
        self._wait = (0.0, "")
        for operand in step.reads:
            self._await_read(step.engine, operand)
        for operand in step.writes:
            self._await_write(position, step.engine, operand)
        start, end = self._run_transfer(step) if step.engine == "dma" else self._run_compute(step)
        for storage, region in step.reads:
            if (times := self._times.get(storage.index)) is not None:
                times.note(times.reads, step.engine, region, end)
        for storage, region in step.writes:
            if (times := self._times.get(storage.index)) is not None:
                times.note(times.writes, step.engine, region, end)
        self.now = max(self.now, end)
        self.events.append(Event(self._core, step.engine, step.kind, step.line, start, end))
        for storage in self._ends_at.get(position, ()):
            times = self._times.pop(storage.index, None)
            if times is not None and storage.memory.is_on_chip:
                self._placement.release(storage, times.end + self._spec.semaphore_ns)

    def synchronise(self, time: float) -> None:
        """Let nothing start before a time."""
        self.now = time
        self._free = dict.fromkeys(ENGINES, time)
        self._row_free = [time] * _ROW_GROUPS
        self._dma.synchronise(time)

    def _await(self, time: float, cause: str) -> None:
        if time > self._wait[0]:
            self._wait = (time, cause)

    def _await_read(self, engine: str, operand: Operand) -> None:
        times = self._times.get(operand.storage.index)
        if times is None:
            return
        for writer, cells in times.writes.items():
            written = float(cells.view(operand.region).max())
            if written:
                self._await(written + self._result_delay(writer, engine), writer)

    def _await_write(self, position: int, engine: str, operand: Operand) -> None:
        storage, region = operand
        times = self._times.get(storage.index)
        if times is None:
            if storage.memory.is_on_chip:
                self._await(self._placement.place(storage), storage.memory.name)
            elif not self._is_tracked(storage):
                return
            self._times[storage.index] = _StorageTimes(storage)
            return
        for writer, cells in times.writes.items():
            written = float(cells.view(region).max())
            if written and (writer != engine or engine == "dma"):
                self._await(written + self._result_delay(writer, engine), writer)
            elif written:
                self._await(written, writer)
        for reader, cells in times.reads.items():
            if reader != engine or engine == "dma":
                read = float(cells.view(region).max())
                self._await(read + self._spec.semaphore_ns if read else 0.0, reader)

    def _is_tracked(self, storage: Storage) -> bool:
        """HBM scratch orders its accesses; inputs are never written and outputs never read."""
        return storage.role not in {INPUT, OUTPUT}

    def _result_delay(self, producer: str, consumer: str) -> float:
        semaphore = 0.0 if producer == consumer else self._spec.semaphore_ns
        return self._latency[producer] + semaphore

    def _run_compute(self, step: Step) -> tuple[float, float]:
        engine = step.engine
        first, last = step.rows
        is_tensor = engine == "tensor"
        free = max(self._row_free[first:last]) if is_tensor else self._free[engine]
        ready, cause = self._wait
        start = self._after_bank_conflicts(step, max(free, ready))
        end = start + step.ns
        if start > free:
            wait = (engine, cause if start == ready else "psum")
            self.stalls[wait] = self.stalls.get(wait, 0.0) + start - free
        if is_tensor:
            self._row_free[first:last] = [end] * (last - first)
        self._free[engine] = end
        self.busy[engine] += step.ns * ((last - first) / _ROW_GROUPS if is_tensor else 1.0)
        return start, end

    def _run_transfer(self, step: Step) -> tuple[float, float]:
        ready = max(self._wait[0], self._free["dma"])
        self.busy["dma"] += step.shared_ns
        return self._dma.transfer(ready, step.ns, step.shared_ns)

    def _after_bank_conflicts(self, step: Step, start: float) -> float:
        """Delay a start: Vector and Scalar use PSUM at once only on different banks."""
        if step.engine not in {"vector", "scalar"}:
            return start
        other = "scalar" if step.engine == "vector" else "vector"
        banks = {
            self._placement.bank(storage, region.offset)
            for storage, region in (*step.reads, *step.writes)
            if storage.memory is PSUM
        }
        for bank in banks:
            used_from, used_to = self._psum_use.get((other, bank), (0.0, 0.0))
            if start < used_to and start + step.ns > used_from:
                start = used_to
        for bank in banks:
            self._psum_use[step.engine, bank] = (start, start + step.ns)
        return start


def _by_last_use(living: dict[int, Lifetime]) -> dict[int, list[Storage]]:
    ends: dict[int, list[Storage]] = {}
    for lifetime in living.values():
        ends.setdefault(lifetime.last, []).append(lifetime.storage)
    return ends


def _segments(trace: Sequence[Step]) -> Iterator[list[tuple[int, Step]]]:
    """Split a trace into the stretches between points where the cores meet."""
    segment: list[tuple[int, Step]] = []
    for position, step in enumerate(trace):
        segment.append((position, step))
        if step.kind == CORE_BARRIER:
            yield segment
            segment = []
    yield segment


def build_timeline(traces: Sequence[Sequence[Step]], spec: TargetSpec, macs: int) -> Timeline:
    """Schedule the traces of all cores of a run."""
    cores = [_CoreSchedule(spec, number, trace) for number, trace in enumerate(traces)]
    for segments in zip(*[_segments(trace) for trace in traces], strict=False):
        for core, segment in zip(cores, segments, strict=True):
            for position, step in segment:
                if step.kind in {BARRIER, CORE_BARRIER}:
                    core.synchronise(core.now)
                else:
                    core.play(position, step)
        meeting = max(core.now for core in cores)
        if len(cores) > 1:
            for core in cores:
                core.synchronise(meeting)
    makespan = max((core.now for core in cores), default=0.0)
    busy = {engine: max(core.busy[engine] for core in cores) / 1e3 for engine in ENGINES}
    waits = sorted({wait for core in cores for wait in core.stalls})
    stalls = {wait: max(core.stalls.get(wait, 0.0) for core in cores) / 1e3 for wait in waits}
    return Timeline(
        makespan_us=makespan / 1e3,
        busy_us=busy,
        stalls_us=stalls,
        executed_macs=macs,
        peak_macs_per_us=spec.peak_macs_per_ns * 1e3 * len(cores),
        events=tuple(event for core in cores for event in core.events),
    )
