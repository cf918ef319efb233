# SPDX-License-Identifier: Apache-2.0
"""Which products of dw share one PSUM bank."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from conv3d_codegen.planner.blocks import (
    BANK_COLUMNS,
    channel_blocks,
    row_cuts,
    split_even,
    split_upto,
)
from conv3d_codegen.planner.correlation import fixed_axis

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conv3d_codegen.planner.correlation import CorrelationAxis
    from conv3d_codegen.planner.schedule import WgradPlan

Range = tuple[int, int]
Axes = tuple["CorrelationAxis", "CorrelationAxis", "CorrelationAxis"]

STATIONARY_COLUMNS = 128


@dataclass(frozen=True, slots=True)
class Chain:
    """One PSUM accumulation: stationary channels × taps of D, H, W × moving channels.

    fixed: the axis whose taps do not run along the moving operand; packs: whether they lie beside the stationary
    channels instead. moving_block: the channels that are turned together with this chain's.
    rows, reach: with more than one row of H beside the stationary channels, no axis is fixed, and instead of the taps
    of H so many rows run along the moving operand (see lower.row_pairs).
    """

    stationary: Range
    moving: Range
    taps: tuple[Range, Range, Range]
    fixed: int
    packs: bool
    moving_block: Range
    rows: int = 1
    reach: int = 0

    @property
    def running(self) -> tuple[int, int]:
        """The other two axes, in the order of the turned buffer's free dims."""
        first, second = (axis for axis in (2, 0, 1) if axis != self.fixed)
        return first, second

    def describe(self, axes: Axes) -> str:
        """Name the part of dw that the chain sums up."""
        taps = []
        for name, axis, (first, stop) in zip("dhw", axes, self.taps, strict=True):
            ends = sorted((axis.filter_tap(first), axis.filter_tap(stop - 1)))
            taps.append(
                f"{name} {ends[0]}" if stop - first == 1 else f"{name} {ends[0]} to {ends[1]}"
            )
        (s0, s1), (m0, m1) = self.stationary, self.moving
        return (
            f"dw of taps {', '.join(taps)}, channels {s0} to {s1 - 1} on partitions, "
            f"{m0} to {m1 - 1} along columns"
        )

    @property
    def packed_taps(self) -> int:
        """Taps that lie beside the stationary channels."""
        return self.taps[self.fixed][1] - self.taps[self.fixed][0]

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """[packed taps · stationary channels, taps of the two running axes, moving channels]."""
        if self.rows > 1:
            return self._shape_of_rows
        first, second = (self.taps[axis][1] - self.taps[axis][0] for axis in self.running)
        columns = self.packed_taps * (self.stationary[1] - self.stationary[0])
        return columns, first, second, self.moving[1] - self.moving[0]

    @property
    def _shape_of_rows(self) -> tuple[int, int, int, int]:
        """[rows · stationary channels, taps of W, taps of D, reached rows · moving channels]."""
        width = self.stationary[1] - self.stationary[0]
        (d0, d1), _, (w0, w1) = self.taps
        return self.rows * width, w1 - w0, d1 - d0, self.reach * (self.moving[1] - self.moving[0])

    def by_depth(self) -> Iterator[Chain]:
        """Give the parts of a chain of rows that results are stored in: one tap of D each, and taps of H again."""
        for tap in range(*self.taps[0]):
            taps = (tap, tap + 1), self.taps[1], self.taps[2]
            yield Chain(self.stationary, self.moving, taps, 0, False, self.moving_block)

    def cells(self) -> Iterator[tuple[tuple[int, int, int], tuple[int, int, int]]]:
        """Every (taps of D, H, W) with its (packed tap, cell, cell) in the region."""
        for d, h, w in product(*(range(*run) for run in self.taps)):
            taps = (d, h, w)
            packed, first, second = (
                taps[axis] - self.taps[axis][0] for axis in (self.fixed, *self.running)
            )
            yield taps, (packed, first, second)


def cut_chains(plan: WgradPlan, axes: Axes, channels: tuple[int, int]) -> Iterator[Chain]:
    """Cut dw into chains, those that share turned moving channels next to each other."""
    stationary, moving = channels
    if plan.rows > 1:
        yield from _row_chains(plan, axes, channels)
        return
    for block in channel_blocks(moving, plan.moving_block):
        width = split_even(block[1] - block[0], BANK_COLUMNS)
        for owner in channel_blocks(stationary, STATIONARY_COLUMNS):
            for run in split_upto(block, width):
                for taps, fixed in tap_runs(plan, axes, (stationary, run)):
                    packs = plan.stationary_axis is not None
                    yield Chain(owner, run, taps, fixed, packs, block)


def _row_chains(plan: WgradPlan, axes: Axes, channels: tuple[int, int]) -> Iterator[Chain]:
    """Cut the taps of D and W; all rows that some of H reach stay together."""
    stationary, moving = channels
    reach = axes[1].reach(plan.rows)
    cuts = row_cuts((axes[0].kernel, axes[2].kernel), reach * moving)
    for d in split_upto((0, axes[0].kernel), cuts[0]):
        for w in split_upto((0, axes[2].kernel), cuts[1]):
            taps = d, (0, axes[1].kernel), w
            owner, run = (0, stationary), (0, moving)
            yield Chain(owner, run, taps, 0, False, run, plan.rows, reach)


def tap_runs(
    plan: WgradPlan, axes: Axes, channels: tuple[int, Range]
) -> Iterator[tuple[tuple[Range, Range, Range], int]]:
    """Cut the taps: two axes run along the moving operand, the third is packed or taken tap by tap.

    channels: all of the stationary tensor, beside which taps lie in one run, and those that move.
    Where positions are paired, H alone may run.
    """
    stationary, (m0, m1) = channels
    fixed = plan.stationary_axis
    sizes = [1, 1, 1]
    if fixed is None:
        fixed = fixed_axis([axis.kernel for axis in axes])
    else:
        sizes[fixed] = split_even(axes[fixed].kernel, max(1, STATIONARY_COLUMNS // stationary))
    limit = max(1, BANK_COLUMNS // (m1 - m0))
    for axis in plan.running_axes:
        if axis != fixed:
            sizes[axis] = split_even(axes[axis].kernel, limit)
            if sizes[axis] < axes[axis].kernel:
                break
            limit = max(1, limit // sizes[axis])
    cuts = [list(split_upto((0, axis.kernel), n)) for axis, n in zip(axes, sizes, strict=True)]
    for d, h, w in product(*cuts):
        yield (d, h, w), fixed
