# SPDX-License-Identifier: Apache-2.0
"""Emit the kernel of a layer, time it on the simulator's timeline, and say where the time goes."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

from conv3d_codegen.api import emit
from conv3d_codegen.bench.losses import busiest_engine, losses
from conv3d_codegen.bench.nkilib import BATCH, nkilib_figures
from conv3d_codegen.dtypes import dtype
from conv3d_codegen.simulator import Blank, simulate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from conv3d_codegen.bench.losses import Loss
    from conv3d_codegen.bench.nkilib import NkilibFigures
    from conv3d_codegen.layers import Layer

SHOWN_LOSSES = 3
SMALL_LOSS = 0.05  # of the makespan; smaller ones are not named
FULL_ARRAY = 128  # channels that fill the PE's rows or columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One layer: times in microseconds by the hardware tables, and the wall time of emitting it in seconds.

    is_ordinary: neither grouped nor transposed; is_wide: channels fill the PE, and there are several taps.
    """

    name: str
    key: str
    is_ordinary: bool
    is_wide: bool
    floor_us: float
    estimate_us: float
    makespan_us: float
    busy_us: Mapping[str, float]
    bound: str
    losses: tuple[Loss, ...]
    pe_use: float
    short_run_share: float
    instructions: int
    violations: int
    emission_s: float
    nkilib: NkilibFigures | None

    @property
    def ratio(self) -> float:
        """Makespan in floors."""
        return self.makespan_us / self.floor_us

    @property
    def speed_up(self) -> float | None:
        """How much sooner it is done than nkilib's kernel."""
        return self.nkilib.makespan_us / self.makespan_us if self.nkilib else None

    @property
    def reason(self) -> str:
        """What bounds it and where the time goes, largest share first."""
        share = self.busy_us[self.bound] / self.makespan_us
        told = [
            f"{loss.what} {loss.us / self.makespan_us:.0%}"
            for loss in self.losses[:SHOWN_LOSSES]
            if loss.us > SMALL_LOSS * self.makespan_us
        ]
        return f"{self.bound} works {share:.0%} of the time; of the makespan, {', '.join(told)}"

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        derived = {"ratio": self.ratio, "speed_up": self.speed_up, "reason": self.reason}
        return asdict(self) | derived


def measure(layer: Layer) -> Measurement:
    """Emit and time one layer."""
    geometry = layer.geometry
    start = perf_counter()
    kernel = emit(geometry)
    emission_s = perf_counter() - start
    plan = kernel.plan
    types = [dtype(name).numpy for name in geometry.input_dtypes.values()]
    shapes = (geometry.dy_shape, geometry.x_shape, geometry.filter_shape)
    run = simulate(
        kernel.source,
        list(map(Blank, shapes, types)),
        target=geometry.target,
        nki=plan.options.nki,
        lnc=geometry.lnc,
    )
    channels = min(geometry.in_channels, geometry.out_channels)
    is_ordinary = geometry.groups == 1 and not geometry.transposed
    several_taps = max(geometry.kernel_size) > 1
    return Measurement(
        name=layer.name,
        key=geometry.key(),
        is_ordinary=is_ordinary,
        is_wide=is_ordinary and channels >= FULL_ARRAY and several_taps,
        floor_us=plan.floor_us,
        estimate_us=plan.estimate_us,
        makespan_us=run.timeline.makespan_us,
        busy_us=run.timeline.busy_us,
        bound=busiest_engine(run),
        losses=losses(plan, run),
        pe_use=run.timeline.utilisation(plan.useful_macs / plan.products_per_cell),
        short_run_share=run.counts.short_run_share,
        instructions=run.counts.text,
        violations=len(run.violations),
        emission_s=emission_s,
        nkilib=nkilib_figures().get(layer.name) if geometry.batch == BATCH else None,
    )


def with_batch(layers: Sequence[Layer], batch: int) -> list[Layer]:
    """Give every layer the same batch."""
    return [replace(layer, geometry=replace(layer.geometry, batch=batch)) for layer in layers]


def measure_all(layers: Sequence[Layer], jobs: int) -> Iterator[Measurement]:
    """Measure layers in so many processes and yield each as it is done."""
    if jobs == 1:
        yield from map(measure, layers)
        return
    # A forked process would inherit the locks of this one's threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(layers)), context) as pool:
        for future in as_completed([pool.submit(measure, layer) for layer in layers]):
            yield future.result()
