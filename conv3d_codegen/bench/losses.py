# SPDX-License-Identifier: Apache-2.0
"""Where the time of a kernel goes: what its busiest engine does beyond useful work, and what it waits for."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conv3d_codegen.targets import target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conv3d_codegen.planner.model import KernelPlan
    from conv3d_codegen.simulator import SimulationResult


@dataclass(frozen=True, slots=True)
class Loss:
    """Microseconds of the makespan, and what they go to."""

    what: str
    us: float


def busiest_engine(run: SimulationResult) -> str:
    """Name the engine that works longest."""
    busy = run.timeline.busy_us
    return max(busy, key=lambda engine: busy[engine])


def losses(plan: KernelPlan, run: SimulationResult) -> tuple[Loss, ...]:
    """Split what the busiest engine's time has beyond useful work; with the useful time they add up to the makespan."""
    engine = busiest_engine(run)
    if engine == "tensor":
        found = [*_tensor(plan, run), *_waits(run, engine)]
    elif engine == "dma":
        found = [*_dma(plan, run), *_waits(run, engine)]
    else:
        found = [*_instructions(run, engine), *_waits(run, engine)]
    return tuple(sorted(found, key=lambda loss: -loss.us))


def _tensor(plan: KernelPlan, run: SimulationResult) -> Iterator[Loss]:
    """Name what the PE array does beside products that count."""
    spec = target(plan.geometry.target)
    by_kind = _time_by_kind(run, "tensor")
    counts = run.counts
    columns_us = counts.matmul_columns / spec.clock_ghz["tensor"] / 1e3
    macs_per_us = spec.peak_macs_per_ns * plan.products_per_cell * 1e3
    products_us = counts.macs / macs_per_us
    yield Loss("idle PE rows and columns", columns_us - products_us)
    yield Loss("products with zeros", products_us - plan.useful_macs / macs_per_us)
    yield Loss(
        "matmuls of few columns or of wide strides", by_kind.pop("nc_matmul", 0.0) - columns_us
    )
    yield Loss("transposes", sum(by_kind.values()))


def _dma(plan: KernelPlan, run: SimulationResult) -> Iterator[Loss]:
    """Name what transfers take beyond every tensor once at the full rate.

    Strides can leave elements of x unread, which the floor counts: then fewer bytes move than it says.
    """
    spec = target(plan.geometry.target)
    moved_us = run.counts.dma_bytes / spec.dma_rate / 1e3
    yield Loss("bytes moved more than once", moved_us - plan.compulsory_bytes / spec.dma_rate / 1e3)
    yield Loss("short DMA runs and calls", run.timeline.busy_us["dma"] - moved_us)


def _instructions(run: SimulationResult, engine: str) -> Iterator[Loss]:
    """Name all that another engine does: none of it counts as useful."""
    for kind, us in _time_by_kind(run, engine).items():
        yield Loss(f"{kind} on {engine}", us)


def _waits(run: SimulationResult, engine: str) -> Iterator[Loss]:
    """Name what keeps an engine from working; for DMA the timeline has no causes."""
    timeline = run.timeline
    idle = timeline.makespan_us - timeline.busy_us[engine]
    for (waiting, cause), us in timeline.stalls_us.items():
        if waiting == engine:
            idle -= us
            yield Loss(f"waiting for {cause}", us)
    yield Loss(
        "idle while others work" if engine == "dma" else "idle between iterations and at the end",
        idle,
    )


def _time_by_kind(run: SimulationResult, engine: str) -> dict[str, float]:
    """Microseconds of each kind of instruction on an engine."""
    times: dict[str, float] = defaultdict(float)
    for event in run.timeline.events:
        if event.engine == engine:
            times[event.kind] += (event.end_ns - event.start_ns) / 1e3
    return times
