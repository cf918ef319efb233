# SPDX-License-Identifier: Apache-2.0
"""Taps between blocks of rows: the index maths behind dx on the tensor engine.

On one axis, dx row i and dy row o meet in tap t when i + pad = o·stride + t·dilation. Put `fold` dy rows in a block:
o = B'·fold + u. Put dx rows in blocks of period fold·stride: i + pad = B·(fold·stride) + r. Then

    (B - B')·fold·stride = u·stride + t·dilation - r

so each tap connects row u of a dy block with row r of the dx block that is `delta` = B - B' further. All (u, r, t) of one
delta form one block-Toeplitz matrix and share one matmul per block pair. With fold 1 and one residue r at a time this is
the stride-phase decomposition (`phased`); with all r of the period together the phases share matmuls (`blocked`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conv3d_codegen.geometry import AxisGeometry


@dataclass(frozen=True, slots=True)
class BlockTap:
    """All taps that connect dy block B' with dx block B' + delta: (dy row, dx row, tap) triples."""

    delta: int
    triples: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class BlockPhase:
    """The dx rows with i + pad ≡ residue (mod stride), or all rows of an axis that is blocked."""

    residue: int
    taps: tuple[BlockTap, ...]


@dataclass(frozen=True, slots=True)
class DgradAxis:
    """One axis of dx: how its rows are grouped in blocks, and the taps between blocks."""

    axis: AxisGeometry
    fold: int
    blocked: bool
    phases: tuple[BlockPhase, ...]

    def describe(self) -> str:
        """Say in words how the axis is cut."""
        if self.blocked:
            return f"blocks of {self.fold} dy rows and {self.period} dx rows"
        return "row by row" if len(self.phases) == 1 else f"{len(self.phases)} stride phases"

    @property
    def period(self) -> int:
        """How many padded dx rows one block spans."""
        return self.fold * self.axis.stride

    @property
    def rows(self) -> int:
        """How many dx rows of one block lie on partitions."""
        return self.period if self.blocked else 1

    @property
    def dy_blocks(self) -> int:
        """How many blocks hold dy rows."""
        return -(-self.axis.out // self.fold)

    @property
    def deltas(self) -> tuple[int, int]:
        """Smallest and largest block distance of any tap."""
        values = [tap.delta for phase in self.phases for tap in phase.taps]
        return min(values), max(values)

    def entries(self) -> tuple[BlockTap, ...]:
        """All block taps of the axis, over all phases: one matrix each."""
        return tuple(tap for phase in self.phases for tap in phase.taps)

    def rows_between(self, first: int, stop: int) -> tuple[int, int]:
        """Dx rows [low, high) of blocks [first, stop), clipped to the tensor."""
        low = max(0, first * self.period - self.axis.pad_before)
        high = min(self.axis.size, stop * self.period - self.axis.pad_before)
        return low, max(low, high)

    def blocks_for(self, phase: BlockPhase, low: int, high: int) -> tuple[int, int]:
        """Blocks [first, stop) that hold the phase's dx rows within [low, high)."""
        if low >= high:
            return 0, 0
        pad = self.axis.pad_before
        if self.blocked:
            return (low + pad) // self.period, (high - 1 + pad) // self.period + 1
        first = -(-(low + pad - phase.residue) // self.period)
        stop = (high - 1 + pad - phase.residue) // self.period + 1
        return first, max(first, stop)


def dgrad_axis(axis: AxisGeometry, fold: int = 1, *, blocked: bool = False) -> DgradAxis:
    """Solve the congruence of the module docstring for one axis."""
    period = fold * axis.stride
    residues = [tuple(range(period))] if blocked else [(r,) for r in range(axis.stride)]
    phases = []
    for rows in residues:
        by_delta: dict[int, list[tuple[int, int, int]]] = {}
        for u in range(fold):
            for position, r in enumerate(rows):
                for tap in range(axis.kernel):
                    delta, rest = divmod(u * axis.stride + tap * axis.dilation - r, period)
                    if rest == 0:
                        by_delta.setdefault(delta, []).append((u, position, tap))
        taps = tuple(BlockTap(d, tuple(by_delta[d])) for d in sorted(by_delta))
        phases.append(BlockPhase(residue=0 if blocked else rows[0], taps=taps))
    return DgradAxis(axis=axis, fold=fold, blocked=blocked, phases=tuple(phases))
