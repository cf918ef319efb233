# SPDX-License-Identifier: Apache-2.0
"""The plan of a kernel: what was chosen, what was not, and what it costs. All of it is known before there is text."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from conv3d_codegen.dtypes import dtype
from conv3d_codegen.maps import useful_macs
from conv3d_codegen.targets import target

if TYPE_CHECKING:
    from conv3d_codegen.geometry import ConvGeometry
    from conv3d_codegen.planner.options import EmitOptions
    from conv3d_codegen.planner.problem import Problem
    from conv3d_codegen.planner.schedule import Schedule
    from conv3d_codegen.program.price import EngineTimes
    from conv3d_codegen.program.program import ProgramCounts


# Releases of NKI: the texts keep to what 0.3 has in common with later ones; fori_loop came with 0.6.
OLDEST_NKI = "0.3"
ROLLED_SINCE = "0.6"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One schedule that was priced: busy time of its busiest engine in µs, SBUF bytes per partition, verdict."""

    name: str
    time_us: float
    bound: str
    sbuf_bytes: int
    verdict: str


@dataclass(frozen=True, slots=True)
class SectionSummary:
    """Title of a section of the kernel, how many instructions it has, and how often they run."""

    title: str
    instructions: int
    times: int


@dataclass(frozen=True, slots=True)
class BufferSummary:
    """All buffers of one role together: how many, the largest shape, dtype and bytes per partition of one."""

    role: str
    space: str
    count: int
    shape: tuple[int, ...]
    dtype: str
    bytes_per_partition: int


@dataclass(frozen=True, slots=True)
class KernelPlan:
    """The chosen schedule of one geometry and everything that is known of its kernel.

    counts, times and estimate_us (of the makespan, see program.makespan) are those of the whole kernel, on one core;
    workspace_bytes is HBM scratch per core: only where two cores hold the same result, of which one core's goes there.
    """

    geometry: ConvGeometry
    options: EmitOptions
    problem: Problem
    schedule: Schedule
    candidates: tuple[Candidate, ...]
    sections: tuple[SectionSummary, ...]
    buffers: tuple[BufferSummary, ...]
    counts: ProgramCounts
    times: EngineTimes
    estimate_us: float
    workspace_bytes: int

    @property
    def oldest_nki(self) -> str:
        """Oldest NKI release whose language the text keeps to."""
        return ROLLED_SINCE if self.schedule.rolled else OLDEST_NKI

    @property
    def warning(self) -> str:
        """What a text over the budget costs; empty where it is within."""
        if self.counts.instructions <= self.options.max_instructions:
            return ""
        asked = self.options.unroll == "full"
        reason = "unrolled on request" if asked else "no schedule found is shorter"
        return (
            f"{self.counts.instructions} instructions exceed the budget of "
            f"{self.options.max_instructions}, {reason}: compile time and memory grow with the text"
        )

    @property
    def useful_macs(self) -> int:
        """Products that contribute to dx and dw: taps that read padding are not counted."""
        return useful_macs(self.geometry)

    @property
    def compulsory_bytes(self) -> int:
        """HBM traffic that no kernel can avoid: every needed input once, every output once."""
        total = 0
        geometry = self.geometry
        sizes = {
            "x": math.prod(geometry.x_shape),
            "dy": math.prod(geometry.dy_shape),
            "w": math.prod(geometry.filter_shape),
        }
        needs = {"dx": ("dy", "w"), "dw": ("dy", "x"), "db": ("dy",)}
        gives = {"dx": "x", "dw": "w"}
        item = self.item_bytes
        read = {name for gradient in geometry.gradients for name in needs[gradient]}
        total += sum(sizes[name] for name in read) * item[0]
        for gradient in geometry.gradients:
            total += item[1] * (
                sizes[gives[gradient]] if gradient in gives else geometry.out_channels
            )
        return total

    @property
    def item_bytes(self) -> tuple[int, int]:
        """Bytes of an input and of an output element."""
        return dtype(self.geometry.dtype).bytes, dtype(self.geometry.out_dtype).bytes

    @property
    def products_per_cell(self) -> int:
        """Products that one cell of the PE array can add at a time for inputs of this type."""
        return target(self.geometry.target).products_per_cell(self.item_bytes[0])

    @property
    def floor_us(self) -> float:
        """Roofline: useful MACs on the whole PE array or compulsory bytes at the DMA rate, whichever is more."""
        spec = target(self.geometry.target)
        macs_ns = self.useful_macs / (spec.peak_macs_per_ns * self.products_per_cell)
        bytes_ns = self.compulsory_bytes / spec.dma_rate
        return max(macs_ns, bytes_ns) / self.geometry.lnc / 1000

    @property
    def output_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the results."""
        shapes = {
            "dx": self.geometry.x_shape,
            "dw": self.geometry.filter_shape,
            "db": (self.geometry.out_channels,),
        }
        return {name: shapes[name] for name in self.geometry.gradients}

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `--json` and manifests."""
        return {
            "key": self.geometry.key(),
            "schedule": _decisions(self.schedule),
            "candidates": [asdict(candidate) for candidate in self.candidates],
            "sections": [asdict(section) for section in self.sections],
            "buffers": [asdict(buffer) for buffer in self.buffers],
            "counts": asdict(self.counts),
            "oldest_nki": self.oldest_nki,
            "busy_us": {name: round(ns / 1000, 3) for name, ns in self.times.by_engine},
            "bound": self.times.bound,
            "estimate_us": round(self.estimate_us, 3),
            "useful_macs": self.useful_macs,
            "compulsory_bytes": self.compulsory_bytes,
            "floor_us": round(self.floor_us, 3),
            "workspace_bytes": self.workspace_bytes,
            "output_shapes": {name: list(shape) for name, shape in self.output_shapes.items()},
        }


def _decisions(schedule: Schedule) -> dict[str, Any]:
    """Give a schedule as plain data; like a key, it only grows by what is decided otherwise than before."""
    plain = asdict(schedule)
    if schedule.together == 1:
        del plain["together"]
    for name in ("filters_late", "loads_ahead"):
        if not plain[name]:
            del plain[name]
    if schedule.dgrad is not None and not schedule.dgrad.double_row:
        del plain["dgrad"]["double_row"]
    if schedule.dgrad is not None and schedule.dgrad.tail is None:
        del plain["dgrad"]["tail"]
    if schedule.wgrad is not None and schedule.wgrad.pair_axis is None:
        del plain["wgrad"]["pair_axis"]
    return plain
