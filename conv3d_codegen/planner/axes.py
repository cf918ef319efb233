# SPDX-License-Identifier: Apache-2.0
"""Taps between blocks of rows: the index maths behind dx on the tensor engine.

Input row i and window o meet in tap t when i + pad = o·stride + t·dilation. dx takes its rows from those of dy.

Backward, for an ordinary convolution: dx rows are i, dy rows o. Put `fold` dy rows in a block: o = B'·fold + u. Put dx
rows in blocks of period fold·stride: i + pad = B·(fold·stride) + r. Then

    (B - B')·fold·stride = u·stride + t·dilation - r

so each tap connects row u of a dy block with row r of the dx block that is `delta` = B - B' further. All (u, r, t) of
one delta form one block-Toeplitz matrix and share one matmul per block pair. With fold 1 and one residue r at a time
this is the stride-phase decomposition; with all r of the period together (`blocked`) the phases share matmuls.

Where dx has fewer channels than dy, a dx block may span `multiple` dy blocks and r run over all their rows: the block
then starts at dy block B·multiple (the `step` below), and B·multiple takes the place of B in the formula.

Forward, for a transposed convolution: dx rows are o, dy rows i. The same matrices turned round: dx rows in blocks of
`fold`, o = B·fold + r, dy rows in blocks of fold·stride, i = B'·(fold·stride) + u, and

    (B - B')·fold·stride = pad + u - r·stride - t·dilation.

Row by row, dx row o reads dy rows o·stride + t·dilation - pad: a `step` of stride per row and one shift per tap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conv3d_codegen.geometry import AxisGeometry

Triple = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class BlockTap:
    """All taps that connect dy block B·step - delta with dx block B: (dy row, dx row, tap) triples."""

    delta: int
    triples: tuple[Triple, ...]


@dataclass(frozen=True, slots=True)
class BlockPhase:
    """The dx rows of one residue modulo the period, or all rows of an axis that is blocked."""

    residue: int
    taps: tuple[BlockTap, ...]


@dataclass(frozen=True, slots=True)
class DgradAxis:
    """One axis of dx: how its rows are grouped in blocks, and the taps between blocks.

    size, dy_size: rows of dx and of dy.
    pad, period: dx row i lies in block (i + pad) // period.
    fold: dy rows per block.
    step: dy blocks from one dx block to the next.
    pace: dx rows per row of dy, or 1 where dx is the smaller one; what slabs are measured in.
    """

    size: int
    dy_size: int
    pad: int
    period: int
    fold: int
    step: int
    pace: int
    blocked: bool
    phases: tuple[BlockPhase, ...]

    def describe(self) -> str:
        """Say in words how the axis is cut."""
        if self.blocked:
            return f"blocks of {self.fold} dy rows and {self.period} dx rows"
        return "row by row" if len(self.phases) == 1 else f"{len(self.phases)} stride phases"

    @property
    def grain(self) -> int:
        """Slabs are cut in multiples of it, so that blocks stay whole."""
        return self.period // self.pace if self.blocked else self.fold

    @property
    def rows(self) -> int:
        """How many dx rows of one block lie on partitions."""
        return self.period if self.blocked else 1

    @property
    def dy_blocks(self) -> int:
        """How many blocks hold dy rows."""
        return -(-self.dy_size // self.fold)

    @property
    def deltas(self) -> tuple[int, int]:
        """Smallest and largest block distance of any tap."""
        values = [tap.delta for phase in self.phases for tap in phase.taps]
        return min(values), max(values)

    def entries(self) -> tuple[BlockTap, ...]:
        """All block taps of the axis, over all phases: one matrix each."""
        return tuple(tap for phase in self.phases for tap in phase.taps)

    def blocks_for(self, phase: BlockPhase, low: int, high: int) -> tuple[int, int]:
        """Blocks [first, stop) that hold the phase's dx rows within [low, high)."""
        if low >= high:
            return 0, 0
        if self.blocked:
            return (low + self.pad) // self.period, (high - 1 + self.pad) // self.period + 1
        first = -(-(low + self.pad - phase.residue) // self.period)
        stop = (high - 1 + self.pad - phase.residue) // self.period + 1
        return first, max(first, stop)

    def reach(self, low: int, high: int) -> tuple[int, int]:
        """Dy blocks that the taps of dx rows [low, high) point at, whether they exist or not."""
        spans = [
            (first * self.step - tap.delta, (stop - 1) * self.step - tap.delta + 1)
            for phase in self.phases
            for first, stop in [self.blocks_for(phase, low, high)]
            if first < stop
            for tap in phase.taps
        ]
        return min((s[0] for s in spans), default=0), max((s[1] for s in spans), default=0)

    def held(self, low: int, high: int) -> tuple[int, int]:
        """Dy blocks among those that exist."""
        first, stop = self.reach(low, high)
        first = max(0, first)
        return first, max(first, min(self.dy_blocks, stop))

    def sources(self, tap: BlockTap, first: int, stop: int) -> tuple[int, int]:
        """Which of the dx blocks [first, stop) read an existing dy block through a tap."""
        low = max(first, -(-tap.delta // self.step))
        high = min(stop, (self.dy_blocks - 1 + tap.delta) // self.step + 1)
        return low, high


def dgrad_axis(
    axis: AxisGeometry, fold: int = 1, *, blocked: bool = False, multiple: int = 1
) -> DgradAxis:
    """Solve the congruence of the module docstring for one axis; a multiple is for blocked axes."""
    period = multiple * fold * axis.stride
    residues = [tuple(range(period))] if blocked else [(r,) for r in range(axis.stride)]
    phases = []
    for rows in residues:
        triples = (
            (u * axis.stride + tap * axis.dilation - r, (u, position, tap))
            for u in range(fold)
            for position, r in enumerate(rows)
            for tap in range(axis.kernel)
        )
        taps = tuple(_block_taps(triples, fold * axis.stride))
        phases.append(BlockPhase(0 if blocked else rows[0], taps))
    return DgradAxis(
        size=axis.size,
        dy_size=axis.out,
        pad=axis.pad_before,
        period=period,
        fold=fold,
        step=multiple,
        pace=axis.stride,
        blocked=blocked,
        phases=tuple(phases),
    )


def forward_axis(axis: AxisGeometry, fold: int = 1, *, blocked: bool = False) -> DgradAxis:
    """Set up one axis of a transposed convolution: row by row, or blocks of `fold` dx rows."""
    period = fold * axis.stride if blocked else 1
    triples = (
        (axis.pad_before + u - r * axis.stride - tap * axis.dilation, (u, r, tap))
        for u in range(period)
        for r in range(fold)
        for tap in range(axis.kernel)
    )
    return DgradAxis(
        size=axis.out,
        dy_size=axis.size,
        pad=0,
        period=fold,
        fold=period,
        step=1 if blocked else axis.stride,
        pace=1,
        blocked=blocked,
        phases=(BlockPhase(0, tuple(_block_taps(triples, period))),),
    )


def _block_taps(distances: Iterator[tuple[int, Triple]], period: int) -> Iterator[BlockTap]:
    """Collect the triples whose distance in rows is a whole number of blocks, by that number."""
    by_delta: dict[int, list[Triple]] = {}
    for distance, triple in distances:
        delta, rest = divmod(distance, period)
        if rest == 0:
            by_delta.setdefault(delta, []).append(triple)
    for delta in sorted(by_delta):
        yield BlockTap(delta, tuple(by_delta[delta]))
