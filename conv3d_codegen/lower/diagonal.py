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
from conv3d_codegen.planner.progressions import progressions
from conv3d_codegen.program.instructions import dma_copy, tensor_multiply

if TYPE_CHECKING:
    from conv3d_codegen.lower.builder import Builder
    from conv3d_codegen.lower.tensors import FilterTensor
    from conv3d_codegen.planner.axes import DgradAxis
    from conv3d_codegen.planner.schedule import DgradPlan, Side
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


@dataclass(frozen=True, slots=True)
class DiagonalFilters:
    """The filters of one pack, and the way to compute dx; dy_side: the side on partitions."""

    builder: Builder
    tensor: FilterTensor
    plan: DgradPlan
    dy_side: Side

    @property
    def depth(self) -> DgradAxis:
        """Rows of D in the matrices."""
        return self.plan.axes[0]

    @property
    def height(self) -> DgradAxis:
        """Rows of H in the matrices."""
        return self.plan.axes[1]

    @property
    def columns(self) -> int:
        """Columns of a matrix, of which the last ones may be idle."""
        return self.plan.columns(self.groups * self.own)

    @property
    def groups(self) -> int:
        """Groups of the pack."""
        return self.tensor.groups[1] - self.tensor.groups[0]

    @property
    def folds(self) -> int:
        """Dy rows on partitions."""
        return self.depth.fold * self.height.fold

    @property
    def channels(self) -> int:
        """Dy channels of the pack."""
        return self.groups * (self.tensor.wide if self.dy_side == "wide" else self.tensor.narrow)

    @property
    def own(self) -> int:
        """Dx channels of a group."""
        return self.tensor.narrow if self.dy_side == "wide" else self.tensor.wide

    def load(self) -> Buffer:
        """Load each row's own filters to where its (entry, dx row) pairs want them."""
        depth, height = self.depth, self.height
        lines = (len(axis.entries()) * axis.rows for axis in (depth, height))
        k_w = self.tensor.kernel[2]
        shape = (self.folds * self.channels, *lines, k_w, self.own)
        filters = self.builder.allocate("w_own", shape, self.builder.dtype, "sbuf")
        if depth.blocked or height.blocked:
            self.builder.zero(filters.whole())
        for u_d, u_h in product(range(depth.fold), range(height.fold)):
            first = (u_d * height.fold + u_h) * self.channels
            for d, h in product(progressions(depth, u_d), progressions(height, u_h)):
                runs = (
                    TapRun(0, d.count, d.tap_step),
                    TapRun(1, h.count, h.tap_step),
                    TapRun(2, k_w),
                )
                for (low, high), src in self.tensor.compact(self.dy_side, (d.tap, h.tap, 0), runs):
                    dst = filters[first + low : first + high, d.places, h.places]
                    self.builder.add(dma_copy(dst, src))
        return filters

    def spread(self, filters: Buffer) -> Buffer:
        """Give [K, entries, M], entries in the order of the axes' entries of D, H and the taps of W."""
        depth, height = self.depth, self.height
        k_w = self.tensor.kernel[2]
        entries = len(depth.entries()) * len(height.entries()) * k_w
        shape = (filters.shape[0], entries, self.columns)
        bank = self.builder.allocate("w_bank", shape, self.builder.dtype, "sbuf")
        if self.columns > depth.rows * height.rows * self.groups * self.own:
            self.builder.zero(bank.whole())
        mask = group_mask(self.builder, self.channels, self.groups, self.builder.dtype, self.folds)
        _spread(self.builder, (bank, filters, mask), self._dims())
        return bank

    def _dims(self) -> list[_Dim]:
        """All loops over the matrices, outermost first as the matrices lie."""
        depth, height, k_w, own = self.depth, self.height, self.tensor.kernel[2], self.own
        e_d, e_h = len(depth.entries()), len(height.entries())
        column = self.groups * own
        line = e_h * height.rows * k_w * own  # of all pairs of H
        entry = self.columns
        return [
            _Dim(e_d, (e_h * k_w * entry, depth.rows * line, 0)),
            _Dim(e_h, (k_w * entry, height.rows * k_w * own, 0)),
            _Dim(k_w, (entry, own, 0)),
            _Dim(depth.rows, (height.rows * column, line, 0)),
            _Dim(height.rows, (column, k_w * own, 0)),
            _Dim(self.groups, (own, 0, 1)),
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
