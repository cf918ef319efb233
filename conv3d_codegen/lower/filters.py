# SPDX-License-Identifier: Apache-2.0
"""Stationary matrices of dx: filters transposed, and spread to block-Toeplitz form where rows are folded.

Entry (e_d, e_h, k_w) of an (in-channel block, out-channel block) pair is the matrix

    [ (u_d, u_h, c_out), (r_d, r_h, c_in) ] = filters[t_d, t_h, k_w, c_in, c_out]

for every pair of triples (u_d, r_d, t_d), (u_h, r_h, t_h) of the two block taps, and zero elsewhere. It is loaded with
c_in on partitions, so that HBM runs along c_out, and turned by the tensor engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from conv3d_codegen.program.instructions import dma_copy, transpose

if TYPE_CHECKING:
    from conv3d_codegen.lower.builder import Builder
    from conv3d_codegen.plan.axes import BlockTap, DgradAxis
    from conv3d_codegen.program.views import Buffer, SliceView

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class FilterSource:
    """The filters in HBM, [K_d, K_h, K_w, C_in, C_out], and the block taps of D and H."""

    buffer: Buffer
    depth: DgradAxis
    height: DgradAxis

    @property
    def width_taps(self) -> int:
        """Taps of W."""
        return self.buffer.shape[2]


@dataclass(frozen=True, slots=True)
class EntryRow:
    """All K_w entries of one pair of block taps of D and H."""

    depth: BlockTap
    height: BlockTap


@dataclass(frozen=True, slots=True)
class FilterBank:
    """Stationary matrices in SBUF: [K, entries, M], entries in (row, k_w) order."""

    buffer: Buffer
    positions: dict[EntryRow, int]
    width_taps: int

    def stationary(self, row: EntryRow, tap: int) -> SliceView:
        """Give the matrix of one entry."""
        return self.buffer[:, self.positions[row] * self.width_taps + tap, :]


def all_rows(source: FilterSource) -> tuple[EntryRow, ...]:
    """List the entry rows in tap order where there is one."""
    rows = [EntryRow(d, h) for d in source.depth.entries() for h in source.height.entries()]
    return tuple(sorted(rows, key=lambda row: (row.depth.triples[0][2], row.height.triples[0][2])))


def prepare_filters(
    builder: Builder,
    source: FilterSource,
    in_channels: Range,
    out_channels: Range,
) -> FilterBank:
    """Load and turn the matrices of one pair of channel blocks."""
    rows = all_rows(source)
    c_in, c_out = in_channels[1] - in_channels[0], out_channels[1] - out_channels[0]
    depth, height = source.depth, source.height
    contraction = depth.fold * height.fold * c_out
    columns = depth.rows * height.rows * c_in
    entries = len(rows) * source.width_taps
    natural = builder.allocate("w_nat", (columns, entries, contraction), builder.dtype, "sbuf")
    if depth.blocked or height.blocked:
        builder.zero(natural.whole())
        for position, row in enumerate(rows):
            _load_blocks(builder, source, natural, (position, row), in_channels, out_channels)
    else:
        _load_taps(builder, source, natural, rows, in_channels, out_channels)
    bank = builder.allocate("w_turned", (contraction, entries, columns), builder.dtype, "sbuf")
    per_bank = 2048 // (columns * natural.bytes_per_partition // (entries * contraction))
    for first in range(0, entries, per_bank):
        count = min(per_bank, entries - first)
        landing = builder.allocate("w_ps", (contraction, count, columns), builder.dtype, "psum")
        for j in range(count):
            builder.add(transpose(landing[:, j, :], natural[:, first + j, :]))
        builder.copy(bank[:, first : first + count, :], landing.whole())
    return FilterBank(bank, {row: i for i, row in enumerate(rows)}, source.width_taps)


def _load_taps(
    builder: Builder,
    source: FilterSource,
    natural: Buffer,
    rows: tuple[EntryRow, ...],
    in_channels: Range,
    out_channels: Range,
) -> None:
    """One DMA per run of neighbouring taps: entry order is tap order where nothing is folded."""
    _, k_h, k_w, c_in, c_out = source.buffer.shape
    taps = [row.depth.triples[0][2] * k_h + row.height.triples[0][2] for row in rows]
    start = 0
    while start < len(taps):
        stop = start + 1
        while stop < len(taps) and taps[stop] == taps[stop - 1] + 1:
            stop += 1
        count = (stop - start) * k_w
        offset = (taps[start] * k_w * c_in + in_channels[0]) * c_out + out_channels[0]
        src = source.buffer.pattern(
            (
                (c_out, in_channels[1] - in_channels[0]),
                (c_in * c_out, count),
                (1, out_channels[1] - out_channels[0]),
            ),
            offset,
        )
        builder.add(dma_copy(natural[:, start * k_w : start * k_w + count, :], src))
        start = stop


def _load_blocks(
    builder: Builder,
    source: FilterSource,
    natural: Buffer,
    placed: tuple[int, EntryRow],
    in_channels: Range,
    out_channels: Range,
) -> None:
    """One DMA per tap that the entry row holds, into its block of rows and columns."""
    position, row = placed
    _, k_h, k_w, c_in, c_out = source.buffer.shape
    width_in, width_out = in_channels[1] - in_channels[0], out_channels[1] - out_channels[0]
    for u_d, r_d, t_d in row.depth.triples:
        for u_h, r_h, t_h in row.height.triples:
            offset = ((t_d * k_h + t_h) * k_w * c_in + in_channels[0]) * c_out + out_channels[0]
            src = source.buffer.pattern(
                ((c_out, width_in), (c_in * c_out, k_w), (1, width_out)), offset
            )
            p0 = (r_d * source.height.rows + r_h) * width_in
            f0 = (u_d * source.height.fold + u_h) * width_out
            dst = natural[
                p0 : p0 + width_in, position * k_w : (position + 1) * k_w, f0 : f0 + width_out
            ]
            builder.add(dma_copy(dst, src))
