# SPDX-License-Identifier: Apache-2.0
"""Stationary matrices of dx where a group has one channel on the wide side, built in place.

Each row (u_d, u_h, dy channel) of a matrix has the filters of its own channel alone, so they are loaded
as a short row of numbers, one transfer for every row of a dy block, and spread over the columns by a
product with a mask. Nothing is turned, and no transfer depends on how many groups there are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from conv3d_codegen.lower.groups import group_mask
from conv3d_codegen.lower.tensors import TapRun
from conv3d_codegen.plan.progressions import progressions
from conv3d_codegen.program.instructions import dma_copy, tensor_multiply

if TYPE_CHECKING:
    from conv3d_codegen.lower.builder import Builder
    from conv3d_codegen.lower.tensors import FilterTensor
    from conv3d_codegen.plan.axes import DgradAxis
    from conv3d_codegen.plan.schedule import Side
    from conv3d_codegen.program.views import Buffer

FREE_DIMS = 3  # of an operand of tensor_tensor


@dataclass(frozen=True, slots=True)
class _Dim:
    """One loop over the matrices: elements from one to the next in the matrices, the filters, the mask."""

    count: int
    steps: tuple[int, int, int]

    def inside(self, outer: _Dim) -> bool:
        """Whether an outer dim continues this one everywhere."""
        return all(
            far == near * self.count for far, near in zip(outer.steps, self.steps, strict=True)
        )


def diagonal_matrices(
    builder: Builder,
    tensor: FilterTensor,
    axes: tuple[DgradAxis, DgradAxis],
    dy_side: Side,
) -> Buffer:
    """Give [K, entries, M], entries in the order of the axes' entries of D, H and the taps of W."""
    depth, height = axes
    groups = tensor.groups[1] - tensor.groups[0]
    channels = groups * (tensor.wide if dy_side == "wide" else tensor.narrow)
    own = tensor.narrow if dy_side == "wide" else tensor.wide
    lines = len(depth.entries()) * depth.rows, len(height.entries()) * height.rows
    folds = depth.fold * height.fold
    shape = (folds * channels, *lines, tensor.kernel[2], own)
    filters = builder.allocate("w_own", shape, builder.dtype, "sbuf")
    if depth.blocked or height.blocked:
        builder.zero(filters.whole())
    _load(builder, tensor, axes, dy_side, filters)
    entries = len(depth.entries()) * len(height.entries()) * tensor.kernel[2]
    columns = depth.rows * height.rows * groups * own
    bank = builder.allocate("w_bank", (shape[0], entries, columns), builder.dtype, "sbuf")
    mask = group_mask(builder, channels, groups, builder.dtype, folds)
    _spread(builder, (bank, filters, mask), _dims(axes, tensor.kernel[2], groups, own))
    return bank


def _load(
    builder: Builder,
    tensor: FilterTensor,
    axes: tuple[DgradAxis, DgradAxis],
    dy_side: Side,
    filters: Buffer,
) -> None:
    """Load each row's filters to where its (entry, dx row) pairs want them."""
    depth, height = axes
    channels = filters.shape[0] // (depth.fold * height.fold)
    for u_d, u_h in product(range(depth.fold), range(height.fold)):
        first = (u_d * height.fold + u_h) * channels
        for d, h in product(progressions(depth, u_d), progressions(height, u_h)):
            runs = TapRun(0, d.count, d.tap_step), TapRun(1, h.count, h.tap_step)
            whole = TapRun(2, tensor.kernel[2])
            for (low, high), src in tensor.compact(dy_side, (d.tap, h.tap, 0), (*runs, whole)):
                dst = filters[first + low : first + high, d.places, h.places]
                builder.add(dma_copy(dst, src))


def _dims(axes: tuple[DgradAxis, DgradAxis], k_w: int, groups: int, own: int) -> list[_Dim]:
    """All loops over the matrices, outermost first as the matrices lie."""
    depth, height = axes
    e_d, e_h = len(depth.entries()), len(height.entries())
    column = groups * own
    line = e_h * height.rows * k_w * own  # of all pairs of H
    entry = depth.rows * height.rows * column
    return [
        _Dim(e_d, (e_h * k_w * entry, depth.rows * line, 0)),
        _Dim(e_h, (k_w * entry, height.rows * k_w * own, 0)),
        _Dim(k_w, (entry, own, 0)),
        _Dim(depth.rows, (height.rows * column, line, 0)),
        _Dim(height.rows, (column, k_w * own, 0)),
        _Dim(groups, (own, 0, 1)),
        _Dim(own, (1, 1, 0)),
    ]


def _spread(builder: Builder, buffers: tuple[Buffer, Buffer, Buffer], dims: list[_Dim]) -> None:
    """Multiply filters and mask into the matrices, in as few instructions as operands have dims for."""
    merged: list[_Dim] = []
    for dim in dims:
        if dim.count == 1:
            continue
        if merged and dim.inside(merged[-1]):
            merged[-1] = _Dim(merged[-1].count * dim.count, dim.steps)
        else:
            merged.append(dim)
    inner = sorted(merged, key=lambda dim: dim.count)[-FREE_DIMS:]
    kept = [dim for dim in merged if dim in inner] or [_Dim(1, (1, 1, 1))]
    looped = [dim for dim in merged if dim not in inner]
    for indices in product(*(range(dim.count) for dim in looped)):
        views = []
        for position, buffer in enumerate(buffers):
            offset = sum(i * dim.steps[position] for i, dim in zip(indices, looped, strict=True))
            pairs = [(math.prod(buffer.shape[1:]), buffer.shape[0])]
            pairs += [(dim.steps[position], dim.count) for dim in kept]
            views.append(buffer.pattern(pairs, offset))
        builder.add(tensor_multiply(views[0], views[1], views[2], "gpsimd"))
