# SPDX-License-Identifier: Apache-2.0
"""From schedule to program: interface tensors, and one pack of groups after the other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from conv3d_codegen.dtypes import compute_dtype
from conv3d_codegen.geometry.layouts import activation_shape, filter_shape
from conv3d_codegen.lower.balance import balance
from conv3d_codegen.lower.builder import Builder
from conv3d_codegen.lower.cores import select_outputs
from conv3d_codegen.lower.pack import PackLowering
from conv3d_codegen.lower.tensors import Activation, FilterTensor, Tensors, Vector
from conv3d_codegen.program.program import Program
from conv3d_codegen.program.views import Buffer
from conv3d_codegen.targets import target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conv3d_codegen.geometry import ConvGeometry
    from conv3d_codegen.planner.problem import Problem, Share
    from conv3d_codegen.planner.schedule import Schedule

Range = tuple[int, int]


def lower(geometry: ConvGeometry, problem: Problem, schedule: Schedule) -> Program:
    """Build the program that carries a schedule out."""
    builder = Builder(target(geometry.target), compute_dtype(geometry.dtype, geometry.math))
    interface = _interface(geometry)
    stored = select_outputs(builder, problem, interface.outputs)
    builder.section("views", "HBM tensors in the shape that the schedule works on.")
    shaped = _shape(builder, geometry, problem, (*interface.parameters, *stored.values()))
    packs = list(problem.packs())
    lowerings = []
    for groups, pack in packs:
        label = f"groups {groups[0]} to {groups[1] - 1}: " if len(packs) > 1 else ""
        tensors = _tensors(geometry, problem, shaped, groups)
        lowerings.append(PackLowering(builder, pack, schedule, tensors, geometry.out_dtype, label))
    pending = None
    for lowering, following in zip(lowerings, [*lowerings[1:], None], strict=True):
        pending = lowering.run(pending, following)
    if "db" in geometry.gradients and len(packs) > 1:
        builder.section("db", "Round and store the sums of all packs.")
    for lowering in lowerings:
        if lowering.bgrad is not None:
            lowering.bgrad.store()
    balance(builder.sections, builder.target, builder.tensor_ns)
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
    types = geometry.input_dtypes
    return _Interface(
        (
            Buffer("dy", geometry.dy_shape, types["dy"], "hbm"),
            Buffer("x_in", geometry.x_shape, types["x"], "hbm"),
            Buffer("filters", geometry.filter_shape, types["filters"], "hbm"),
        ),
        {
            name: Buffer(name, shapes[name], geometry.out_dtype, "hbm")
            for name in geometry.gradients
        },
    )


def _shape(
    builder: Builder, geometry: ConvGeometry, problem: Problem, buffers: Sequence[Buffer]
) -> dict[str, Buffer]:
    """Give every tensor five axes: those that the user's rank lacks, and those that were merged."""
    x_size, dy_size = map(problem.of_both_cores, (problem.in_size, problem.out_size))
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
    shapes = {"dy": dy, "x": x, "filters": w, "dx": x, "dw": w, "db": geometry.db_shape}
    # Access patterns address the tensor itself; only what is sliced gets a name in its new shape.
    halved: dict[Share, set[str]] = {
        "nothing": set(),
        "batch": {"dy", "x", "dx"},
        "positions": {"dy", "x", "dx"},
        "groups": {"dy", "x", "dx", "dw"},
        "x channels": {"x", "dx", "dw"},
        "dy channels": {"dy", "dw"},
    }
    sliced = {"dy", "x", "dx", "dw"} - halved[problem.share]
    if geometry.layout == "NDHWC":
        sliced &= {"dw"}
    names = ("dy", "x", "filters", *geometry.gradients)
    unused = {"x": "dw", "filters": "dx"}  # inputs that only one gradient reads
    shaped = {}
    for name, buffer in zip(names, buffers, strict=True):
        shape = shapes[name]
        if unused.get(name, name) not in names:
            continue
        if buffer.shape == shape:
            shaped[name] = buffer
        elif name in sliced:
            shaped[name] = builder.alias(buffer, shape)
        else:
            shaped[name] = Buffer(buffer.name, shape, buffer.dtype, "hbm", buffer)
    return shaped


def _tensors(
    geometry: ConvGeometry, problem: Problem, shaped: dict[str, Buffer], groups: Range
) -> Tensors:
    """Point at the channels of one pack in all tensors."""
    contraction = geometry.as_correlation()
    channels = {"x": geometry.in_channels, "dy": geometry.out_channels, "dx": geometry.in_channels}
    activations = {}
    for name, count in channels.items():
        if name in shaped:
            first = groups[0] * (count // geometry.groups)
            whole = Activation(shaped[name], name, geometry.layout == "NDHWC", first, 0)
            activations[name] = replace(whole, core_step=_activation_step(problem, whole))
    filters = {}
    for name in ("filters", "dw"):
        if name in shaped:
            whole_filters = FilterTensor(
                shaped[name],
                geometry.filter_layout,
                problem.in_channels // problem.groups,
                problem.out_channels // problem.groups,
                groups,
                0,
            )
            step = _filter_step(problem, whole_filters, contraction.narrow_channels)
            filters[name] = replace(whole_filters, core_step=step)
    out_per_group = geometry.out_channels // geometry.groups
    db_step = geometry.out_channels // 2 if problem.share in {"groups", "dy channels"} else 0
    return Tensors(
        dy=activations["dy"],
        x=activations.get("x"),
        dx=activations.get("dx"),
        filters=filters.get("filters"),
        dw=filters.get("dw"),
        db=Vector(shaped["db"], groups[0] * out_per_group, db_step) if "db" in shaped else None,
    )


def _activation_step(problem: Problem, tensor: Activation) -> int:
    """Elements from the first core's half of an activation to the second one's."""
    if problem.share == "batch":
        return problem.batch * tensor.pitches[0]
    if problem.halved is not None:
        return tensor.size[problem.halved] // 2 * tensor.pitches[problem.halved + 1]
    side = "dy channels" if tensor.stem == "dy" else "x channels"
    halved = problem.share in {"groups", side}
    return tensor.channels // 2 * tensor.channel_pitch if halved else 0


def _filter_step(problem: Problem, tensor: FilterTensor, narrow_channels: int) -> int:
    """Elements from the first core's half of the filters to the second one's."""
    narrow, wide = ("x", "dy") if problem.transposed else ("dy", "x")
    if problem.share in {"groups", f"{narrow} channels"}:
        return narrow_channels // 2 * tensor.pitches["narrow"]
    return tensor.wide * tensor.pitches["wide"] if problem.share == f"{wide} channels" else 0
