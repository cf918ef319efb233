# SPDX-License-Identifier: Apache-2.0
"""Program and plan to source text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conv3d_codegen.emitter.environment import environment
from conv3d_codegen.emitter.header import Header

if TYPE_CHECKING:
    from conv3d_codegen.planner.model import KernelPlan
    from conv3d_codegen.program.program import Program


def render_kernel(program: Program, plan: KernelPlan) -> str:
    """Render a kernel; the same program and plan always give the same bytes."""
    template = environment().get_template("kernel.py.jinja")
    return template.render(program=program, header=Header(plan))
