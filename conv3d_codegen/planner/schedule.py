# SPDX-License-Identifier: Apache-2.0
"""The decisions of a kernel, as plain values: what the lowering stage carries out and `plan` prints."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from conv3d_codegen.planner.blocks import PARTITIONS, even_pieces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conv3d_codegen.planner.axes import DgradAxis

# Bytes per partition of filters that are loaded before they are turned; more of them follow in turn.
STAGED_FILTERS = 48 * 1024

# Bytes per partition that are loaded before the tensor engine starts to turn them: about 4 us of the whole DMA rate.
STAGE_BYTES = 12 * 1024

STREAMED_TILES = 4  # of dx, in PSUM, that share filters which are turned for them alone

ALONG_H = 2  # WgradPlan.pair_axis: H of (N, D, H, W)

Range = tuple[int, int]
Side = Literal["wide", "narrow"]  # of geometry.Correlation: x and dy of an ordinary convolution


@dataclass(frozen=True, slots=True)
class SlabPlan:
    """How the work is cut: each slab loads its windows of dy and x once and serves every gradient.

    sizes: extent of a slab along (N, D, H, W), in samples and dy rows.
    """

    sizes: tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class DgradPlan:
    """dx = sum over taps of W_tap.T · dy, as window matmuls over blocks of rows.

    axes: block maths of D, H, W.
    in_block: channels of dx per row of a block (stationary columns).
    tile: blocks of D, H and columns of W that share one PSUM tile.
    filters_resident: whether all transposed filters stay in SBUF for the whole kernel.
    double_row: whether a matmul contracts two blocks of dy's channels at once, in 8 bits (see planner.double_row).
    beside: taps of W in the columns of one matmul (see planner.side_taps).
    tail: how the channels beyond the last whole block are computed, if otherwise than those blocks.
    """

    axes: tuple[DgradAxis, DgradAxis, DgradAxis]
    in_block: int
    tile: tuple[int, int, int]
    filters_resident: bool
    double_row: bool = False
    beside: int = 1
    tail: DgradPlan | None = None

    @property
    def ways(self) -> tuple[DgradPlan, ...]:
        """This way, and that of the last channels if it is another one."""
        return (self,) if self.tail is None else (self, self.tail)

    def parts(self, channels: int) -> tuple[tuple[Range, DgradPlan], ...]:
        """Give the channels of dx [first, stop) that each way computes."""
        first = channels if self.tail is None else channels // self.in_block * self.in_block
        spans = (0, first), (first, channels)
        return tuple(zip(spans, self.ways, strict=False))

    @property
    def shares_columns(self) -> bool:
        """Whether taps of W lie side by side for any of the channels."""
        return any(way.beside > 1 for way in self.ways)

    def columns(self, channels: int) -> int:
        """Stationary columns of one tap: a block's rows of some channels, or the part of all that it has for itself."""
        if self.beside > 1:
            return PARTITIONS // self.beside
        return self.axes[0].rows * self.axes[1].rows * channels

    def describe(self) -> tuple[str, ...]:
        """Say in words how dx is computed."""
        d, h, w = self.tile
        modes = ", ".join(
            f"{name} {axis.describe()}" for name, axis in zip("DHW", self.axes, strict=True)
        )
        filters = "resident" if self.filters_resident else "turned again for each group of tiles"
        doubled = "dx: two blocks of dy channels per matmul, in 8 bits (double row)"
        shared = f"dx: {self._side_by_side}"
        return (
            f"dx: {modes}",
            *((doubled,) if self.double_row else ()),
            *((shared,) if self.beside > 1 else ()),
            f"dx: PSUM tile of {d} x {h} x {w} blocks; up to {self.in_block} channels; filters {filters}",
            *self._of_tail(),
        )

    def _of_tail(self) -> tuple[str, ...]:
        if self.tail is None:
            return ()
        d, h, w = self.tail.tile
        return (
            f"dx, last {self.tail.in_block} channels: {self.tail._side_by_side}; "
            f"PSUM tile of {d} x {h} x {w} blocks",
        )

    @property
    def _side_by_side(self) -> str:
        taps = min(self.beside, len(self.axes[2].entries()))
        return f"{taps} taps of W side by side in the columns of a matmul"


def dx_band(plan: DgradPlan, extents: Sequence[int], item: int) -> tuple[int, int, int]:
    """How much of a slab of dx is computed before it is stored: whole tiles, along the first axis that has several.

    extents: dx rows of the slab along D, H, W; item: bytes of an element.
    """
    band = list(extents)
    depth, height, _ = plan.axes
    # Rows of double-row tiles stay whole, with the zeros between them.
    for number, axis in enumerate(plan.axes[:2] if plan.double_row else plan.axes):
        unit = plan.tile[number] * axis.period
        if unit < extents[number]:
            positions = unit * math.prod(extents[number + 1 :]) // (depth.rows * height.rows)
            band[number] = even_pieces(extents[number], unit, positions * plan.in_block * item)
            break
    return band[0], band[1], band[2]


@dataclass(frozen=True, slots=True)
class WgradPlan:
    """dw = sum over positions of x · dy, positions on partitions.

    moving: the tensor whose channels stream as the moving operand; the other one's are the stationary columns.
    stationary_axis: the axis whose taps shift the stationary tensor, and lie beside its channels where these are few;
        the taps of all other axes shift the moving tensor. None: all taps shift the moving tensor.
    lengths: positions of (N, D, H, W) that stay in the free dims of one partition; 0 means the slab's whole extent.
        The rest of each axis is spread over partitions.
    moving_block: channels of the moving tensor that are turned at a time.
    rows: how many neighbouring rows of H of the stationary tensor lie beside its channels. More than one meet, in one
        matmul, all rows of the moving tensor that their taps reach; products of rows that no tap connects are left out
        of the result.
    pair_axis: the axis of (N, D, H, W) along which one matmul contracts two positions of each partition, in 8 bits
        (see planner.double_row); None: one position, in the type that the kernel computes with.
    """

    moving: Side
    stationary_axis: int | None
    lengths: tuple[int, int, int, int]
    moving_block: int
    rows: int = 1
    pair_axis: int | None = None

    @property
    def stationary(self) -> Side:
        """The other tensor."""
        return "narrow" if self.moving == "wide" else "wide"

    @property
    def running_axes(self) -> tuple[int, ...]:
        """Axes (of D, H, W) whose taps may run along the moving operand, in the order of preference.

        Pairs of positions need columns in a single run, which only taps of H are, beside all channels.
        """
        if self.pair_axis is None:
            return 2, 1, 0
        return (1,) if self.pair_axis != ALONG_H else ()

    def shifted(self, axis: int) -> Side:
        """Name the side that the taps of an axis shift."""
        return self.stationary if axis == self.stationary_axis else self.moving

    def describe(self, names: dict[Side, str]) -> tuple[str, ...]:
        """Say in words how dw is computed; names are those of the two tensors."""
        kept = ", ".join(
            f"{name} {length or 'all'}" for name, length in zip("NDHW", self.lengths, strict=True)
        )
        packed = ""
        if self.stationary_axis is not None:
            along = "DHW"[self.stationary_axis]
            packed = f", shifted along {along}, by taps beside each other where columns are idle"
        if self.rows > 1:
            packed = f", {self.rows} of its rows beside its channels"
        return (
            f"dw: {names[self.stationary]} stationary{packed}; {names[self.moving]} moving, "
            f"{self.moving_block} channels turned at a time",
            f"dw: positions per partition {kept}; the rest of each axis lies on partitions",
            *self._pairs(),
        )

    def _pairs(self) -> tuple[str, ...]:
        if self.pair_axis is None:
            return ()
        along = "NDHW"[self.pair_axis]
        return (
            f"dw: two positions of a partition per matmul, along {along}, in 8 bits (double row)",
        )


@dataclass(frozen=True, slots=True)
class Schedule:
    """Everything the lowering stage needs to know beyond the problem itself.

    dy_fold, x_fold: rows of D and H that lie on partitions beside the channels of a window.
    dy_block, x_block: channels per window.
    chains_per_pass: accumulations of dw that one pass over the slabs serves.
    woven: whether a slab is prepared while the one before is contracted; takes room for both.
    dx_last: whether the only slab's dx follows its dw, so that filters arrive meanwhile.
    filters_late: whether filters of all but the first dx channels arrive while the first slab's dx is computed.
    filters_ahead: bytes of such filters per partition that are loaded before what dw alone reads, or is contracted.
    loads_ahead: whether a slab is loaded before the one before it is prepared, so that stores don't hold it up.
    rolled: axes of (N, D, H, W) along which like slabs are iterations of a hardware loop.
    together: slabs that one iteration takes along the last of these axes.
    """

    slabs: SlabPlan
    dgrad: DgradPlan | None
    wgrad: WgradPlan | None
    bgrad: bool
    dy_fold: tuple[int, int]
    x_fold: tuple[int, int]
    dy_block: int
    x_block: int
    chains_per_pass: int
    woven: bool
    dx_last: bool = False
    filters_ahead: int = 0
    filters_late: bool = False
    loads_ahead: bool = False
    rolled: tuple[int, ...] = ()
    together: int = 1

    def per_iteration(self, axis: int) -> int:
        """Slabs that one iteration takes along an axis of (N, D, H, W); 0 where there is no loop."""
        if axis not in self.rolled:
            return 0
        return self.together if axis == self.rolled[-1] else 1
