# SPDX-License-Identifier: Apache-2.0
"""Picks a schedule: enumerates slab sizes and spreads, drops what does not fit, takes the cheapest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from conv3d_codegen.plan.axes import dgrad_axis
from conv3d_codegen.plan.blocks import ceil_div, split_even
from conv3d_codegen.plan.correlation import correlation_axis
from conv3d_codegen.plan.schedule import DgradPlan, Schedule, SlabPlan, WgradPlan
from conv3d_codegen.targets import target

if TYPE_CHECKING:
    from conv3d_codegen.geometry import ConvGeometry
    from conv3d_codegen.plan.model import Candidate
    from conv3d_codegen.plan.options import EmitOptions
    from conv3d_codegen.plan.problem import Problem


@dataclass(frozen=True, slots=True)
class Choice:
    """The schedule taken and all candidates that were priced."""

    schedule: Schedule
    candidates: tuple[Candidate, ...]


def choose(geometry: ConvGeometry, problem: Problem, options: EmitOptions) -> Choice:
    """v0."""
    sizes = tuple(
        max(axis.out, (axis.size - 1 + axis.pad_before) // axis.stride + 1) for axis in problem.axes
    )
    slabs = SlabPlan((1, *sizes))
    dgrad = None
    if "dx" in geometry.gradients:
        depth, height, width = (dgrad_axis(axis) for axis in problem.axes)
        w = split_even(width.axis.size, 512)
        h = split_even(height.axis.size, 512 // w) 
        d = split_even(depth.axis.size, 512 // (w * h)) 
        dgrad = DgradPlan((depth, height, width), 128, (d, h, w), True)
    wgrad = None
    if "dw" in geometry.gradients:
        halo = "dy" if all(a.stride == 1 for a in problem.axes) else "x"
        axes = [correlation_axis(a, halo) for a in problem.axes]
        w = axes[2].owner_size
        gw = min(w, 128)
        lw = ceil_div(w, gw)
        gh = min(axes[1].owner_size, 128 // gw)
        lh = ceil_div(axes[1].owner_size, gh)
        wgrad = WgradPlan(halo, (0, 0, lh, lw))
    return Choice(Schedule(
        slabs=slabs, dgrad=dgrad, wgrad=wgrad, bgrad="db" in geometry.gradients,
        dy_fold=(1, 1), x_fold=(1, 1),
        dy_block=min(128, problem.out_channels), x_block=min(128, problem.in_channels),
        chains_per_pass=10**6,
    ), ())
