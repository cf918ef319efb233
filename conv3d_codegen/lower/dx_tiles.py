# SPDX-License-Identifier: Apache-2.0
"""Tiles of dx, and what each tap reads of dy and adds to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from conv3d_codegen.lower.builder import Builder
    from conv3d_codegen.lower.filters import EntryRow
    from conv3d_codegen.lower.windows import Window
    from conv3d_codegen.planner.axes import BlockPhase, DgradAxis
    from conv3d_codegen.program.views import Buffer, SliceView

Range = tuple[int, int]
Ranges = tuple[Range, Range, Range]


@dataclass(frozen=True, slots=True)
class Tile:
    """One PSUM tile: a box of blocks of one phase combination and one sample.

    by_source: whether its columns are those of dy that it reads, for all phases of W.
    """

    sample: int
    phases: tuple[BlockPhase, BlockPhase, BlockPhase]
    blocks: Ranges
    by_source: bool = False

    def describe(self, axes: tuple[DgradAxis, DgradAxis, DgradAxis]) -> str:
        """Name the dx rows of the tile, or its blocks of rows."""
        parts = [f"dx of sample {self.sample}"]
        spans = zip("dhw", axes, self.phases, self.blocks, strict=True)
        for name, axis, phase, (first, stop) in spans:
            if self.by_source and name == "w":
                parts.append(f"what columns {first} to {stop - 1} of dy add to")
                continue
            if axis.blocked:
                parts.append(f"{name} blocks {first} to {stop - 1}")
                continue
            low = first * axis.period + phase.residue - axis.pad
            high = (stop - 1) * axis.period + phase.residue - axis.pad
            every = f" by {axis.period}" if axis.period > 1 and high > low else ""
            parts.append(f"{name} {low}" if low == high else f"{name} {low} to {high}{every}")
        return ", ".join(parts)

    @property
    def extents(self) -> tuple[int, int, int]:
        """Blocks of D, blocks of H, columns of W."""
        d, h, w = (stop - first for first, stop in self.blocks)
        return d, h, w


@dataclass(frozen=True, slots=True)
class Contribution:
    """One matmul of a tile: the entry it uses, the part of the tile it adds to, the first dy blocks and their steps.

    taps: of W: one, or several that lie side by side.
    """

    row: EntryRow
    taps: Range
    part: Ranges
    sources: tuple[tuple[int, int], tuple[int, int], tuple[int, int]]

    def covers(self, tile: Tile) -> bool:
        """Whether it writes the whole tile."""
        return all(
            part == (0, extent) for part, extent in zip(self.part, tile.extents, strict=True)
        )


class Moving(Protocol):
    """What matmuls read of dy, of one block of channels or of a pair of them."""

    def moving(self, tile: Tile, contribution: Contribution) -> SliceView:
        """Give what one tap reads for a tile."""


class Landing(Protocol):
    """A tile in PSUM."""

    @property
    def buffer(self) -> Buffer:
        """The memory it lies in, [M, ...]."""

    def part(self, contribution: Contribution) -> SliceView:
        """Give what one tap adds to."""

    def evict(self, builder: Builder, tile: Tile, place: Callable[[Tile], SliceView]) -> None:
        """Round the tile to its place among the dx rows, [M, blocks of D, blocks of H, columns of W]."""


@dataclass(frozen=True, slots=True)
class BoxMoving:
    """A window, of which a tap reads the box of blocks that exist."""

    window: Window

    def moving(self, tile: Tile, contribution: Contribution) -> SliceView:
        """Give [K, blocks of D, blocks of H, columns of W], with their steps."""
        window = self.window
        origin = (*window.block_origin, window.box.w[0])
        blocks = (
            slice(first - start, first - start + (high - low - 1) * step + 1, step)
            for (first, step), (low, high), start in zip(
                contribution.sources, contribution.part, origin, strict=True
            )
        )
        return window.buffer[(slice(None), tile.sample - window.box.n[0], *blocks)]


@dataclass(frozen=True, slots=True)
class BoxLanding:
    """A tile whose columns lie close together, [M, blocks of D, blocks of H, columns of W]."""

    buffer: Buffer

    def part(self, contribution: Contribution) -> SliceView:
        """Give the box that a tap reaches."""
        return self.buffer[(slice(None), *(slice(*part) for part in contribution.part))]

    def evict(self, builder: Builder, tile: Tile, place: Callable[[Tile], SliceView]) -> None:
        """Copy all of it."""
        builder.copy(place(tile), self.buffer.whole())
