# SPDX-License-Identifier: Apache-2.0
"""Hardware loops over like slabs: where each iteration reads and writes.

An iteration is a point of a grid along N, D, H, W; a tensor moves by a fixed number of elements per
step along each of them. Where one loop register, times elements per index of some axis, gives the
distance for every tensor, it is used as it is. Otherwise each iteration reads its distances from a
table in HBM, because registers cannot be computed with.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conv3d_codegen.planner.grid import slab_steps
from conv3d_codegen.program.instructions import dma_copy, iota
from conv3d_codegen.program.program import Loop
from conv3d_codegen.program.views import RunTimeOffset

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from conv3d_codegen.lower.builder import Builder
    from conv3d_codegen.lower.tensors import Activation, Tensors
    from conv3d_codegen.planner.grid import Index, SlabGroup
    from conv3d_codegen.planner.problem import Problem
    from conv3d_codegen.planner.schedule import Schedule
    from conv3d_codegen.program.views import Buffer

Lanes = tuple[tuple[int, int], ...]  # (iterations, elements per step) of each axis, outermost first


@dataclass(frozen=True, slots=True)
class _Moving:
    """An HBM tensor that moves from iteration to iteration."""

    tensor: Activation
    lanes: Lanes

    @property
    def units(self) -> list[tuple[int, int]]:
        """(elements of one index, axis) for every axis of the tensor, largest first."""
        shape = self.tensor.buffer.storage.shape
        return [(math.prod(shape[axis + 1 :]), axis) for axis in range(len(shape))]


@contextmanager
def iterations(
    builder: Builder, tensors: Tensors, problem: Problem, schedule: Schedule, group: SlabGroup
) -> Iterator[None]:
    """Make what is built inside the body of the group's loop, if the group is one."""
    if group.iterations == 1:
        yield
        return
    moving = _moving_tensors(tensors, problem, schedule, group.counts)
    name = builder.unused_name("slabs")
    step, axes = _common_register(moving)
    tables = [] if step else _tables(builder, moving)
    loop = Loop(name, "i", group.iterations * (step or 1), step or 1, _notes(group.counts))
    with builder.loop(loop):
        if step:
            offsets = [RunTimeOffset(loop.register, axis) for axis in axes]
        else:
            builder.section("places", "How far on this iteration's slabs lie in HBM.")
            offsets = _look_up(builder, loop, tables)
        pairs = zip(moving, offsets, strict=True)
        builder.move({row.tensor.buffer.storage.name: offset for row, offset in pairs})
        yield


def _notes(counts: Index) -> tuple[str, ...]:
    along = " x ".join(
        f"{count} along {name}" for name, count in zip("NDHW", counts, strict=True) if count > 1
    )
    return (f"Slabs that differ only in their place in HBM: {along}.",)


def _moving_tensors(
    tensors: Tensors, problem: Problem, schedule: Schedule, counts: Index
) -> list[_Moving]:
    """Give dy, x and dx with their lanes; lanes that are one even progression in all are joined."""
    narrow, wide = slab_steps(problem, schedule)
    x, dy = (narrow, wide) if problem.transposed else (wide, narrow)
    used = [
        (tensor, steps)
        for tensor, steps in ((tensors.dy, dy), (tensors.x, x), (tensors.dx, x))
        if tensor is not None
    ]
    lanes = [
        [
            (count, step * pitch)
            for count, step, pitch in zip(counts, steps, tensor.pitches, strict=True)
            if count > 1
        ]
        for tensor, steps in used
    ]
    position = len(lanes[0]) - 2
    while position >= 0:
        if all(row[position][1] == math.prod(row[position + 1]) for row in lanes):
            for row in lanes:
                count, step = row.pop(position + 1)
                row[position] = row[position][0] * count, step
        position -= 1
    return [_Moving(tensor, tuple(row)) for (tensor, _), row in zip(used, lanes, strict=True)]


def _common_register(moving: Sequence[_Moving]) -> tuple[int, list[int]]:
    """Find a loop step that is every tensor's step in units of some axis, and those axes; or 0."""
    if len(moving[0].lanes) > 1:
        return 0, []
    for unit, _ in moving[0].units:
        step, rest = divmod(moving[0].lanes[0][1], unit)
        if rest:
            continue
        found = [
            next((axis for unit, axis in row.units if unit * step == row.lanes[0][1]), None)
            for row in moving
        ]
        axes = [axis for axis in found if axis is not None]
        if len(axes) == len(moving):
            return step, axes
    return 0, []


@dataclass(frozen=True, slots=True)
class _Table:
    """Distances of all iterations in HBM, in units of one index of an axis."""

    buffer: Buffer
    axis: int


def _tables(builder: Builder, moving: Sequence[_Moving]) -> list[_Table]:
    """Write the distances of every tensor to HBM; tensors with the same ones share a table."""
    builder.section("places", "How far on each iteration's slabs lie, counted on chip.")
    written: dict[Lanes, Buffer] = {}
    tables = []
    for row in moving:
        unit, axis = next(
            pair for pair in row.units if all(step % pair[0] == 0 for _, step in row.lanes)
        )
        lanes = tuple((step // unit, count) for count, step in row.lanes)
        if lanes not in written:
            shape = (1, math.prod(count for _, count in lanes))
            counted = builder.allocate("places", shape, "int32", "sbuf")
            table = builder.allocate("places_hbm", shape, "int32", "private_hbm")
            builder.add(iota(counted.whole(), lanes))
            builder.add(dma_copy(table.whole(), counted.whole()))
            written[lanes] = table
        tables.append(_Table(written[lanes], axis))
    return tables


def _look_up(builder: Builder, loop: Loop, tables: Sequence[_Table]) -> list[RunTimeOffset]:
    """Load an iteration's distances from the tables."""
    loaded: dict[Buffer, Buffer] = {}
    for table in tables:
        if table.buffer not in loaded:
            place = builder.allocate("place", (1, 1), "int32", "sbuf")
            entry = table.buffer.pattern(((1, 1), (1, 1)), 0, RunTimeOffset(loop.register, 1))
            builder.add(dma_copy(place.whole(), entry))
            loaded[table.buffer] = place
    return [RunTimeOffset(loaded[table.buffer], table.axis) for table in tables]
