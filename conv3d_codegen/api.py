# SPDX-License-Identifier: Apache-2.0
"""The two calls that everything above uses: plan a kernel, emit a kernel."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from conv3d_codegen.collector import collector_paused
from conv3d_codegen.emitter.render import render_kernel
from conv3d_codegen.lower.budget import Lowered, lower_within_budget
from conv3d_codegen.lower.kernel import lower
from conv3d_codegen.lower.summary import summarize_buffers, summarize_sections
from conv3d_codegen.planner.model import KernelPlan
from conv3d_codegen.planner.options import EmitOptions
from conv3d_codegen.planner.search import Choice
from conv3d_codegen.program.makespan import makespan_ns
from conv3d_codegen.program.price import engine_times
from conv3d_codegen.program.program import count
from conv3d_codegen.targets import target

if TYPE_CHECKING:
    from conv3d_codegen.geometry import ConvGeometry
    from conv3d_codegen.planner.search import Scored
    from conv3d_codegen.program.program import Program

__all__ = ["EmitOptions", "Kernel", "emit", "plan"]


@dataclass(frozen=True)
class Kernel:
    """An emitted kernel: source text, the plan behind it, and its identity."""

    source: str
    plan: KernelPlan

    @property
    def geometry(self) -> ConvGeometry:
        """The problem it solves."""
        return self.plan.geometry

    @property
    def key(self) -> str:
        """Readable key of the geometry."""
        return self.geometry.key()

    @property
    def name(self) -> str:
        """Name of the kernel function and stem of its file."""
        return self.geometry.module_name()

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the source."""
        return hashlib.sha256(self.source.encode()).hexdigest()


@collector_paused()
def plan(geometry: ConvGeometry, options: EmitOptions | None = None) -> KernelPlan:
    """Choose the schedule of a geometry and say what it costs."""
    return _plan(geometry, options or EmitOptions())[0]


@collector_paused()
def emit(geometry: ConvGeometry, options: EmitOptions | None = None) -> Kernel:
    """Plan a geometry and print its kernel; the same input always gives the same bytes."""
    chosen, program = _plan(geometry, options or EmitOptions())
    return Kernel(render_kernel(program, chosen), chosen)


def emit_scored(
    geometry: ConvGeometry, scored: Scored, options: EmitOptions | None = None
) -> Kernel:
    """Print the kernel of one of the schedules that `plan.search.priced` lists, taken or not."""
    program = lower(geometry, scored.problem, scored.schedule)
    choice = Choice(scored.problem, scored.schedule, (), scored.instructions, scored.fits)
    chosen = _describe(geometry, options or EmitOptions(), Lowered(choice, program, count(program)))
    return Kernel(render_kernel(program, chosen), chosen)


def _plan(geometry: ConvGeometry, options: EmitOptions) -> tuple[KernelPlan, Program]:
    lowered = lower_within_budget(geometry, options)
    return _describe(geometry, options, lowered), lowered.program


def _describe(geometry: ConvGeometry, options: EmitOptions, lowered: Lowered) -> KernelPlan:
    """Say what was chosen and what its program costs."""
    choice, program, spec = lowered.choice, lowered.program, target(geometry.target)
    return KernelPlan(
        geometry=geometry,
        options=options,
        problem=choice.problem,
        schedule=choice.schedule,
        candidates=choice.candidates,
        sections=summarize_sections(program),
        buffers=summarize_buffers(program),
        counts=lowered.counts,
        times=engine_times(program, spec),
        estimate_us=makespan_ns(program, spec) / 1000,
        workspace_bytes=program.workspace_bytes,
    )
