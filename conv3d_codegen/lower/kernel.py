# SPDX-License-Identifier: Apache-2.0
"""From schedule to program: interface tensors, and one pack of groups after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from conv3d_codegen.dtypes import compute_dtype
from conv3d_codegen.geometry.layouts import activation_shape, filter_shape
from conv3d_codegen.lower.builder import Builder
from conv3d_codegen.lower.pack import PackLowering
from conv3d_codegen.lower.tensors import Activation, FilterTensor, Tensors
from conv3d_codegen.program.program import Program
from conv3d_codegen.program.views import Buffer
from conv3d_codegen.targets import target

if TYPE_CHECKING:
    from conv3d_codegen.geometry import ConvGeometry
    from conv3d_codegen.plan.problem import Problem
    from conv3d_codegen.plan.schedule import Schedule

Range = tuple[int, int]


def lower(geometry: ConvGeometry, problem: Problem, schedule: Schedule) -> Program:
    """Build the program that carries a schedule out."""
    builder = Builder(target(geometry.target), compute_dtype(geometry.dtype, geometry.math))
    builder.section("views", "HBM tensors in the shape that the schedule works on.")
    interface = _interface(geometry)
    shaped = _shape(builder, geometry, problem, interface)
    packs = list(problem.packs())
    for number, (groups, pack) in enumerate(packs):
        label = f"groups {groups[0]} to {groups[1] - 1}: " if len(packs) > 1 else ""
        tensors = _tensors(geometry, shaped, groups)
        PackLowering(builder, pack, schedule, tensors, geometry.out_dtype, label).run()
    return Program(
        geometry.module_name(),
        interface.parameters,
        tuple(interface.outputs.values()),
        tuple(section for section in builder.sections if section.items),
    )


@dataclass(frozen=True, slots=True)
class _Interface:
    """Parameters and results of the kernel."""

    parameters: tuple[Buffer, Buffer, Buffer]
    outputs: dict[str, Buffer]


def _interface(geometry: ConvGeometry) -> _Interface:
    shapes = {"dx": geometry.dx_shape, "dw": geometry.dw_shape, "db": geometry.db_shape}
    return _Interface(
        (
            Buffer("dy", geometry.dy_shape, geometry.dtype, "hbm"),
            Buffer("x_in", geometry.x_shape, geometry.dtype, "hbm"),
            Buffer("filters", geometry.filter_shape, geometry.dtype, "hbm"),
        ),
        {
            name: Buffer(name, shapes[name], geometry.out_dtype, "hbm")
            for name in geometry.gradients
        },
    )


def _shape(
    builder: Builder, geometry: ConvGeometry, problem: Problem, interface: _Interface
) -> dict[str, Buffer]:
    """Give every tensor five axes: those that the user's rank lacks, and those that were merged."""
    x_size, dy_size = problem.in_size, problem.out_size
    if geometry.transposed:
        x_size, dy_size = dy_size, x_size
    in_channels, out_channels = geometry.in_channels, geometry.out_channels
    contraction = geometry.as_correlation()
    x = activation_shape(geometry.layout, 3, geometry.batch, in_channels, x_size)
    dy = activation_shape(geometry.layout, 3, geometry.batch, out_channels, dy_size)
    w = filter_shape(
        geometry.filter_layout,
        3,
        contraction.narrow_channels,
        contraction.wide_channels // geometry.groups,
        problem.kernel,
    )
    buffers = dict(zip(("dy", "x", "filters"), interface.parameters, strict=True))
    buffers |= interface.outputs
    shapes = {"dy": dy, "x": x, "filters": w, "dx": x, "dw": w}
    if "dw" not in interface.outputs:
        del buffers["x"]
    if "dx" not in interface.outputs:
        del buffers["filters"]
    # Access patterns address the tensor itself; only what is sliced gets a name in its new shape.
    sliced = {"dw"} if geometry.layout == "NDHWC" else {"dy", "x", "dx", "dw"}
    for name, shape in shapes.items():
        if name in buffers and buffers[name].shape != shape:
            base = buffers[name]
            if name in sliced:
                buffers[name] = builder.alias(base, shape)
            else:
                buffers[name] = Buffer(base.name, shape, base.dtype, "hbm", base)
    return buffers


def _tensors(geometry: ConvGeometry, shaped: dict[str, Buffer], groups: Range) -> Tensors:
    """Point at the channels of one pack in all tensors."""
    per_group = {
        "x": geometry.in_channels // geometry.groups,
        "dy": geometry.out_channels // geometry.groups,
    }
    per_group["dx"] = per_group["x"]
    last = geometry.layout == "NDHWC"
    contraction = geometry.as_correlation()
    activations = {
        name: Activation(shaped[name], name, last, groups[0] * channels)
        for name, channels in per_group.items()
        if name in shaped
    }
    filters = {
        name: FilterTensor(
            shaped[name],
            geometry.filter_layout,
            contraction.wide_channels // geometry.groups,
            contraction.narrow_channels // geometry.groups,
            groups,
        )
        for name in ("filters", "dw")
        if name in shaped
    }
    return Tensors(
        dy=activations["dy"],
        x=activations.get("x"),
        dx=activations.get("dx"),
        filters=filters.get("filters"),
        dw=filters.get("dw"),
        db=shaped.get("db"),
        first_out_channel=groups[0] * per_group["dy"],
    )
