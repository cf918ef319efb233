# SPDX-License-Identifier: Apache-2.0
"""Dx rows of a part of a slab in SBUF: where tiles are evicted to, and how they are stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from conv3d_codegen.dtypes import dtype
from conv3d_codegen.lower.channels_last import MIN_TURNED_BYTES, AxisRows, Part, store_turned
from conv3d_codegen.program.instructions import dma_copy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conv3d_codegen.lower.builder import Builder
    from conv3d_codegen.lower.dx_tiles import Tile
    from conv3d_codegen.lower.tensors import Activation
    from conv3d_codegen.lower.windows import Box
    from conv3d_codegen.planner.axes import DgradAxis
    from conv3d_codegen.program.views import Buffer, SliceView

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class DxTarget:
    """Dx in HBM, the type it is stored in, and how its rows are grouped in blocks."""

    dx: Activation
    dtype: str
    axes: tuple[DgradAxis, DgradAxis, DgradAxis]

    def allocate(self, builder: Builder, box: Box, channels: Range) -> DxRows:
        """Make room for a box of some channels."""
        depth, height, _ = self.axes
        d, h = (_block_extent(axis, extent) for axis, extent in ((depth, box.d), (height, box.h)))
        n, _, _, w = box.extents
        shape = (depth.rows * height.rows * (channels[1] - channels[0]), n, d, h, w)
        # The tensor engine turns 16 and 32 bits; narrower results are rounded after it.
        is_narrow = dtype(self.dtype).bytes < MIN_TURNED_BYTES
        held = "fp32" if is_narrow and self.stores_turned(channels) else self.dtype
        return DxRows(self, box, channels, builder.allocate("dx_out", shape, held, "sbuf"))

    def stores_turned(self, channels: Range) -> bool:
        """Whether channels are last in HBM, so that their rows are turned on the way."""
        return self.dx.channels_last and channels[1] - channels[0] > 1


@dataclass(frozen=True, slots=True)
class DxRows:
    """A box of dx: [dx rows of a block · channels, N, blocks of D, blocks of H, W]."""

    target: DxTarget
    box: Box
    channels: Range
    buffer: Buffer

    def place(self, tile: Tile) -> SliceView:
        """Where a tile's dx rows lie."""
        spans = []
        for axis, phase, (first, stop), (low, _) in zip(
            self.target.axes, tile.phases, tile.blocks, self.box.ranges[1:], strict=True
        ):
            if axis.blocked:
                origin = (low + axis.pad) // axis.period
                spans.append(slice(first - origin, stop - origin))
            else:
                start = first * axis.period + phase.residue - axis.pad - low
                span = (stop - 1 - first) * axis.period + 1
                spans.append(slice(start, start + span, axis.period))
        return self.buffer[(slice(None), tile.sample - self.box.n[0], *spans)]

    def store(self, builder: Builder) -> None:
        """Store the box, one transfer for each row of a block."""
        dx, box, channels = self.target.dx, self.box, self.channels
        depth, height, _ = self.target.axes
        if self.target.stores_turned(channels):
            rows = _block_rows(depth, box.d), _block_rows(height, box.h)
            columns = AxisRows(box.extents[3], box.w[0], 1, *box.w)
            part = Part(dx, self.buffer, channels, box.n, *rows, columns)
            store_turned(builder, part, self.target.dtype)
            return
        width = channels[1] - channels[0]
        for sample in range(*box.n):
            for r_d, (d_rows, d_blocks) in _stored_rows(depth, box.d):
                for r_h, (h_rows, h_blocks) in _stored_rows(height, box.h):
                    p0 = (r_d * height.rows + r_h) * width
                    src = self.buffer[p0 : p0 + width, sample - box.n[0], d_blocks, h_blocks, :]
                    dst = dx.view(sample, channels, (d_rows, h_rows, slice(*box.w)))
                    builder.add(dma_copy(dst, src))


def _block_extent(axis: DgradAxis, extent: Range) -> int:
    """Free positions that a range of dx rows takes in the output buffer."""
    low, high = extent
    if not axis.blocked:
        return high - low
    pad = axis.pad
    return (high - 1 + pad) // axis.period - (low + pad) // axis.period + 1


def _block_rows(axis: DgradAxis, extent: Range) -> AxisRows:
    """Dx rows of the output buffer's blocks."""
    low, high = extent
    if not axis.blocked:
        return AxisRows(high - low, low, 1, low, high)
    first = (low + axis.pad) // axis.period
    return AxisRows(
        _block_extent(axis, extent), first * axis.period - axis.pad, axis.period, low, high
    )


def _stored_rows(axis: DgradAxis, extent: Range) -> Iterator[tuple[int, tuple[slice, slice]]]:
    """For each row of a block: the dx rows it holds in HBM and the blocks it holds them in."""
    low, high = extent
    if not axis.blocked:
        yield 0, (slice(low, high), slice(0, high - low))
        return
    pad, period = axis.pad, axis.period
    origin = (low + pad) // period
    for r in range(axis.rows):
        first = -(-(low + pad - r) // period)
        stop = (high - 1 + pad - r) // period + 1
        if first < stop:
            start = first * period + r - pad
            rows = slice(start, start + (stop - 1 - first) * period + 1, period)
            yield r, (rows, slice(first - origin, stop - origin))
