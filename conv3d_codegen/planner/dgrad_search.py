# SPDX-License-Identifier: Apache-2.0
"""Ways to compute dx: row by row, or in blocks of rows that fill partitions and columns.

They are ranked by tensor and eviction time alone; only the best are priced in full.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, TypeAlias

from conv3d_codegen.planner.axes import dgrad_axis, forward_axis
from conv3d_codegen.planner.blocks import PARTITIONS
from conv3d_codegen.planner.double_row import may_double, paired_block, tile_of_rows
from conv3d_codegen.planner.estimate import balanced_tile, dgrad_counts, dx_cuts
from conv3d_codegen.planner.grid import AxisCuts
from conv3d_codegen.planner.schedule import STAGED_FILTERS, DgradPlan
from conv3d_codegen.planner.side_taps import SIDES, may_share, side_blocks, side_deltas

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from conv3d_codegen.geometry import AxisGeometry
    from conv3d_codegen.planner.axes import DgradAxis
    from conv3d_codegen.planner.candidates import Pricing
    from conv3d_codegen.planner.problem import Problem

Sizes = tuple[int, int, int, int]
Fold = tuple[int, int]
DgradWay = tuple[DgradPlan | None, Fold, int]  # with the fold and the channel blocks of dy
Axes: TypeAlias = "tuple[DgradAxis, DgradAxis, DgradAxis]"

RESIDENT_FILTERS = 112 * 1024
FOLDS = (1, 2, 3, 4, 6, 8, 16)
NO_TILE = (1, 1, 1)  # until slabs are known


@dataclass(frozen=True)
class DgradSearch:
    """Ways to compute dx of one problem."""

    pricing: Pricing

    def ways(self) -> list[DgradWay]:
        """List the plainest way to compute dx and the few best others, by tensor and eviction time alone."""
        dx_channels, channels = self.pricing.dgrad_channels
        transposed = self.pricing.problem.transposed
        if "dx" not in self.pricing.geometry.gradients:
            folds = [(1, 1)]
            if channels <= 64 and not (transposed or self._meets_direct()):
                folds += [f for f in product(FOLDS, FOLDS) if math.prod(f) == 128 // channels]
            return [(None, fold, min(channels, 128 // math.prod(fold))) for fold in folds]
        found = []
        for axes, beside in self._row_modes():
            fold = axes[0].fold, axes[1].fold
            rows = axes[0].rows * axes[1].rows
            in_block = min(dx_channels, 128 // rows)
            block = min(channels, 128 // math.prod(fold))
            # Filters of groups are spread out together: those of large kernels fit in smaller packs.
            if self.pricing.problem.groups == 1 and not any(axis.blocked for axis in axes):
                in_block = min(in_block, self._most_channels(axes))
                block = min(block, self._most_channels(axes[2:]))
            whole = DgradPlan(axes, in_block, NO_TILE, filters_resident=True, beside=beside)
            options = (
                option
                for plan in self._with_tail(whole)
                for option in self._paired_or_not(plan, block)
            )
            for option, dy_block in options:
                work = self.pricing.dgrad_work(option, whole_slab(self.pricing.problem), dy_block)
                found.append((work.busiest[1] + 0.1 * work.total, option, fold, dy_block))
        found.sort(key=lambda row: row[0])
        # The plain way, row by row, has the smallest matrices: it fits where others do not.
        kept = found[:3] + [row for row in found[3:] if _is_plain(row[1])]
        return [(plan, fold, block) for _, plan, fold, block in kept]

    def _with_tail(self, plan: DgradPlan) -> Iterator[DgradPlan]:
        """Give a plain plan, and with taps of W side by side for channels that fill part of their block's columns."""
        yield plan
        rest = self.pricing.dgrad_channels[0] % plan.in_block
        if rest == 0 or self.pricing.problem.groups > 1 or plan.beside > 1 or not _is_plain(plan):
            return
        for beside in SIDES:
            if rest * beside <= PARTITIONS and may_share(plan.axes[2], beside):
                yield replace(plan, tail=replace(plan, in_block=rest, beside=beside))

    def _paired_or_not(self, plan: DgradPlan, dy_block: int) -> Iterator[tuple[DgradPlan, int]]:
        """Give the plan, and where several blocks of 8-bit dy channels contract one with pairs of them."""
        yield self._tiled(plan, dy_block), dy_block
        channels = self.pricing.dgrad_channels[1]
        block = paired_block(channels, dy_block)
        is_plain = self.pricing.problem.groups == 1 and not plan.shares_columns
        if (
            block
            and dy_block < channels
            and is_plain
            and may_double(self.pricing.geometry, plan.axes)
        ):
            yield self._tiled(replace(plan, double_row=True), block), block

    def _most_channels(self, axes: Sequence[DgradAxis]) -> int:
        """Channels whose filters, of all taps of some axes, may lie in one partition: the plain way always fits."""
        entries = math.prod(len(axis.entries()) for axis in axes)
        return max(1, STAGED_FILTERS // 2 // (max(1, entries) * self.pricing.item))

    def _meets_direct(self) -> bool:
        """Whether dw reads a tensor row by row as it lies in HBM, which folded rows of dy do not meet."""
        return self.pricing.geometry.layout == "NDHWC"

    def _row_modes(self) -> Iterator[tuple[Axes, int]]:
        """Row by row, and where channels leave partitions or columns idle, blocks of rows along D and H.

        Each with how many taps of W lie side by side.
        """
        depth, height, width = self.pricing.problem.axes
        modes = _forward_modes if self.pricing.problem.transposed else _axis_modes
        columns = next(modes(width))
        yield (next(modes(depth)), next(modes(height)), columns), 1
        if min(self.pricing.problem.in_channels, self.pricing.problem.out_channels) > 64:
            return
        unfolded = self._meets_direct()
        for d, h in product(modes(depth), list(modes(height))):
            if unfolded and d.fold * h.fold > 1:
                continue
            if (d.blocked or h.blocked) and self._fills(d, h):
                yield (d, h, columns), 1
            for beside in SIDES:
                if may_share(columns, beside) and self._fits_beside(d, h, beside):
                    yield (d, h, columns), beside

    def _fits_beside(self, depth: DgradAxis, height: DgradAxis, beside: int) -> bool:
        """Whether a block's rows of all channels leave so many taps room."""
        in_channels, out_channels = self.pricing.dgrad_channels
        columns = depth.rows * height.rows * in_channels
        folds = depth.fold * height.fold
        return columns * beside <= PARTITIONS and folds <= max(1, PARTITIONS // out_channels)

    def _fills(self, depth: DgradAxis, height: DgradAxis) -> bool:
        """Whether blocks of rows fit the array, and span several dy blocks only where columns would be idle."""
        folds, rows = depth.fold * height.fold, depth.rows * height.rows
        in_channels, out_channels = self.pricing.dgrad_channels
        is_split = max(rows * in_channels, folds * out_channels) > 128
        if is_split and (self.pricing.problem.groups > 1 or self.pricing.problem.transposed):
            return False  # groups stay together
        if depth.step == height.step == 1:
            return rows <= 128 and folds <= 128 // min(in_channels, out_channels)
        return rows * in_channels <= 128 and folds <= max(1, 128 // out_channels)

    def _tiled(self, plan: DgradPlan, dy_block: int) -> DgradPlan:
        plan = tiled(plan, whole_slab(self.pricing.problem)[1:])
        resident = self.pricing.filter_bytes(plan, dy_block) <= RESIDENT_FILTERS
        tail = plan.tail and replace(plan.tail, filters_resident=resident)
        return replace(plan, filters_resident=resident, tail=tail)


def whole_slab(problem: Problem) -> Sizes:
    """Size of the one slab that holds the whole problem, in samples and windows."""
    d, h, w = (
        axis.out
        if AxisCuts(axis, axis.out).count == 1
        else max(axis.out, (axis.size - 1 + axis.pad_before) // axis.stride + 1)
        for axis in problem.axes
    )
    return problem.batch, d, h, w


def _axis_modes(axis: AxisGeometry) -> Iterator[DgradAxis]:
    """Row by row, or blocks of dy rows, with as many dx rows or a multiple of them."""
    yield dgrad_axis(axis)
    for fold in FOLDS:
        if fold > axis.out:
            break
        for multiple in FOLDS:
            if (multiple - 1) * fold < axis.out and (fold, multiple, axis.stride) != (1, 1, 1):
                yield dgrad_axis(axis, fold, blocked=True, multiple=multiple)


def _forward_modes(axis: AxisGeometry) -> Iterator[DgradAxis]:
    """Row by row, or blocks of dx rows, for a transposed convolution."""
    yield forward_axis(axis)
    for fold in FOLDS:
        if fold <= axis.out and (fold, axis.stride) != (1, 1):
            yield forward_axis(axis, fold, blocked=True)


def tiled(plan: DgradPlan, slab: Sequence[int]) -> DgradPlan:
    """Cut slabs of so many windows into PSUM tiles."""
    tail = plan.tail and replace(plan.tail, tile=_tile_for(plan.tail, slab))
    return replace(plan, tile=_tile_for(plan, slab), tail=tail)


def _tile_for(plan: DgradPlan, slab: Sequence[int]) -> tuple[int, int, int]:
    """Cut slabs into PSUM tiles of dx, in blocks: as suits the largest slab, or those between if that makes fewer."""
    axes = plan.axes

    def tiles(tile: tuple[int, int, int]) -> int:
        return math.prod(
            dgrad_counts(*of_axis).tiles for of_axis in zip(axes, slab, tile, strict=True)
        )

    blocks = [_blocks(axis, size) for axis, size in zip(axes, slab, strict=True)]
    if plan.double_row:
        return tile_of_rows(axes, slab, [most for most, _ in blocks])
    halo = 0
    if plan.beside > 1:
        blocks[2] = _side_blocks(axes[2], slab[2])
        low, high = side_deltas(axes[2], plan.beside)
        halo = high - low
    found = (balanced_tile(extents, halo=halo) for extents in zip(*blocks, strict=True))
    return min(found, key=tiles)


@lru_cache(maxsize=4096)
def _blocks(axis: DgradAxis, size: int) -> tuple[int, int]:
    """Blocks of the phase that has most of them, in the largest slab and in the second one."""
    cuts = dx_cuts(axis, size)
    most = [
        max(stop - first for first, stop in (axis.blocks_for(phase, *cut) for phase in axis.phases))
        for cut in cuts
    ]
    return max(most), most[min(1, len(most) - 1)]


def _side_blocks(axis: DgradAxis, size: int) -> tuple[int, int]:
    """Blocks of all phases together, in the largest slab and in the second one."""
    most = [
        stop - first for first, stop in (side_blocks(axis, *cut) for cut in dx_cuts(axis, size))
    ]
    return max(most), most[min(1, len(most) - 1)]


def _is_plain(plan: DgradPlan) -> bool:
    return plan.axes[0].rows * plan.axes[1].rows * plan.axes[0].fold * plan.axes[1].fold == 1
