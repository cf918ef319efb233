# SPDX-License-Identifier: Apache-2.0
"""Stationary matrices of dx: filters with dy's channels on partitions, block-Toeplitz where rows are folded.

Entry (e_d, e_h, k_w) of a pair of channel blocks is the matrix

    [ (u_d, u_h, dy channel), (r_d, r_h, dx channel) ] = filter tap (t_d, t_h, k_w) of the two channels

for every pair of triples (u_d, r_d, t_d), (u_h, r_h, t_h) of the two block taps, and zero elsewhere; several groups of
one pack lie on its diagonal. Filters are loaded with that side on partitions which gives long runs in HBM (see
lower.filter_loads). If it is dx's, the tensor engine turns the matrices.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from conv3d_codegen.dtypes import dtype
from conv3d_codegen.lower.diagonal import DiagonalFilters
from conv3d_codegen.program.instructions import transpose
from conv3d_codegen.program.program import PSUM_BANK_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from conv3d_codegen.lower.builder import Builder
    from conv3d_codegen.lower.tensors import FilterTensor
    from conv3d_codegen.planner.axes import BlockTap, DgradAxis
    from conv3d_codegen.planner.schedule import DgradPlan, Side
    from conv3d_codegen.program.views import Buffer, SliceView

Range = tuple[int, int]
Contracted = tuple[Range, ...]  # blocks of dy channels that one matmul contracts: one, or a pair


@dataclass(frozen=True, slots=True)
class FilterSource:
    """The filters in HBM, the way to compute dx, and the side that dx is on."""

    tensor: FilterTensor
    plan: DgradPlan
    dx_side: Side

    @property
    def depth(self) -> DgradAxis:
        """Block taps of D."""
        return self.plan.axes[0]

    @property
    def height(self) -> DgradAxis:
        """Block taps of H."""
        return self.plan.axes[1]

    @property
    def is_plain(self) -> bool:
        """Whether matrices are the filters themselves, tap by tap."""
        return not (self.depth.blocked or self.height.blocked) and self.plan.beside == 1

    @property
    def has_zeros(self) -> bool:
        """Whether matrices have elements that no filter fills: rows that no tap connects, or idle columns."""
        return self.plan.beside > 1 or not (_is_full(self.depth) and _is_full(self.height))

    @property
    def turns(self) -> bool:
        """Whether the matrices are loaded with dx's channels on partitions."""
        return self.tensor.rows == self.dx_side

    def sides(self, dx_channels: Range, dy_channels: Range) -> tuple[Range, Range]:
        """Put a pair of channel blocks in the order (wide, narrow)."""
        if self.dx_side == "wide":
            return dx_channels, dy_channels
        return dy_channels, dx_channels


def _is_full(axis: DgradAxis) -> bool:
    """Whether every block tap connects each dy row of a block with each dx row."""
    return all(len(tap.triples) == axis.fold * axis.rows for tap in axis.entries())


@dataclass(frozen=True, slots=True)
class EntryRow:
    """All K_w entries of one pair of block taps of D and H."""

    depth: BlockTap
    height: BlockTap


@dataclass(frozen=True, slots=True)
class FilterBank:
    """Stationary matrices in SBUF: [K, entries, M] or [K, M, entries], entries in (row, k_w) order.

    Those of a pair of blocks of dy channels are [K, 2, entries, M] or [K, 2, M, entries].
    in_line: the same as [K, entries · M], where several entries are taken side by side.
    """

    buffer: Buffer
    positions: dict[EntryRow, int]
    width_taps: int
    entries_last: bool
    in_line: Buffer | None = None

    def stationary(self, row: EntryRow, taps: Range) -> SliceView:
        """Give the matrix of one entry, or those of several side by side."""
        first, stop = (self.positions[row] * self.width_taps + tap for tap in taps)
        if self.in_line is not None:
            columns = self.buffer.shape[-1]
            return self.in_line[:, first * columns : stop * columns]
        return _entry(self.buffer, first, self.entries_last)


def all_rows(source: FilterSource) -> tuple[EntryRow, ...]:
    """List the entry rows in tap order where there is one."""
    rows = [EntryRow(d, h) for d in source.depth.entries() for h in source.height.entries()]
    return tuple(sorted(rows, key=lambda row: (row.depth.triples[0][2], row.height.triples[0][2])))


@dataclass(frozen=True, slots=True)
class Staged:
    """Rows of entries as they were loaded: of some dx channels, and of neighbouring blocks of dy channels."""

    dx_channels: Range
    contracted: tuple[Contracted, ...]
    rows: tuple[EntryRow, ...]
    buffer: Buffer


def prepare_filters(
    builder: Builder,
    source: FilterSource,
    loaded: Iterable[Staged],
    contracted: Sequence[Contracted],
) -> list[FilterBank]:
    """Turn, where needed, what was loaded of neighbouring blocks of dy channels: one bank for each block or pair."""
    tensor = source.tensor
    width_taps, rows = tensor.kernel[2], all_rows(source)
    positions = {row: number for number, row in enumerate(rows)}
    if not source.turns:
        (whole,) = loaded
        if source.plan.beside == 1:
            return [FilterBank(whole.buffer, positions, width_taps, tensor.taps_last)]
        buffer = _entries_first(builder, whole.buffer) if tensor.taps_last else whole.buffer
        return [_side_by_side(builder, buffer, positions, width_taps)]
    fold = source.depth.fold * source.height.fold
    banks: list[Buffer] = []
    for staged in loaded:
        first = positions[staged.rows[0]] * width_taps
        for number, blocks in enumerate(contracted):
            if len(banks) == number:
                matrices = len(rows) * width_taps, staged.buffer.shape[0]
                banks.append(_turned_bank(builder, source, blocks, matrices))
            for half, (low, high) in enumerate(blocks):
                columns = slice(*((at - contracted[0][0][0]) * fold for at in (low, high)))
                where = (half,) if len(blocks) > 1 else ()
                part = staged.buffer, columns
                _turn(builder, banks[number], where, first, part, entries_last=tensor.taps_last)
    if source.plan.beside > 1:
        return [_side_by_side(builder, bank, positions, width_taps) for bank in banks]
    return [FilterBank(bank, positions, width_taps, entries_last=False) for bank in banks]


def _side_by_side(
    builder: Builder, buffer: Buffer, positions: dict[EntryRow, int], width_taps: int
) -> FilterBank:
    """Make a bank of [K, entries, M] that gives several entries at a time."""
    partitions, entries, columns = buffer.shape
    in_line = builder.alias(buffer, (partitions, entries * columns))
    return FilterBank(buffer, positions, width_taps, entries_last=False, in_line=in_line)


def _turned_bank(
    builder: Builder, source: FilterSource, blocks: Contracted, matrices: tuple[int, int]
) -> Buffer:
    """Make room for what is turned of one block of dy channels, or of a pair in the filters' own type.

    The tensor engine turns 16 bits; evicting rounds them back to 8, which loses nothing of 8-bit values.
    """
    (low, high), fold = blocks[0], source.depth.fold * source.height.fold
    if len(blocks) == 1:
        shape = ((high - low) * fold, *matrices)
        return builder.allocate("w_turned", shape, builder.dtype, "sbuf")
    paired = ((high - low) * fold, len(blocks), *matrices)
    return builder.allocate("w_pair", paired, source.tensor.buffer.dtype, "sbuf")


def diagonal_filters(builder: Builder, source: FilterSource) -> DiagonalFilters | None:
    """Give the filters of a pack of groups that have one channel each on the wide side; None for others."""
    if source.tensor.is_dense or source.tensor.wide > 1:
        return None
    dy_side: Side = "narrow" if source.dx_side == "wide" else "wide"
    return DiagonalFilters(builder, source.tensor, source.plan, dy_side)


def diagonal_bank(diagonal: DiagonalFilters, loaded: Buffer, *, side_by_side: bool) -> FilterBank:
    """Build the matrices of a pack from its filters."""
    rows = product(diagonal.depth.entries(), diagonal.height.entries())
    positions = {EntryRow(d, h): number for number, (d, h) in enumerate(rows)}
    k_w = diagonal.tensor.kernel[2]
    buffer = diagonal.spread(loaded)
    if side_by_side:
        return _side_by_side(diagonal.builder, buffer, positions, k_w)
    return FilterBank(buffer, positions, k_w, entries_last=False)


def _turn(
    builder: Builder,
    bank: Buffer,
    half: tuple[int, ...],
    first: int,
    loaded: tuple[Buffer, slice],
    *,
    entries_last: bool,
) -> None:
    """Transpose columns of every matrix to its entry of the bank, from entry `first` on, a PSUM bank at a time."""
    contraction, rows = bank.shape[0], bank.shape[-1]
    buffer, columns = loaded
    entries = buffer.shape[2 if entries_last else 1]
    per_bank = PSUM_BANK_BYTES // (rows * dtype(builder.dtype).bytes)
    for start in range(0, entries, per_bank):
        count = min(per_bank, entries - start)
        landing = builder.allocate("w_ps", (contraction, count, rows), builder.dtype, "psum")
        for j in range(count):
            entry = start + j
            data = buffer[:, columns, entry] if entries_last else buffer[:, entry, columns]
            builder.add(transpose(landing[:, j, :], data))
        turned = slice(first + start, first + start + count)
        builder.copy(bank[(slice(None), *half, turned)], landing.whole())


def _entries_first(builder: Builder, loaded: Buffer) -> Buffer:
    """Bring [K, M, entries] in the order [K, entries, M], so that neighbouring entries have neighbouring columns."""
    partitions, columns, entries = loaded.shape
    bank = builder.allocate("w_bank", (partitions, entries, columns), loaded.dtype, "sbuf")
    pairs = [(columns * entries, partitions), (1, entries), (entries, columns)]
    builder.copy(bank.whole(), loaded.pattern(pairs, 0))
    return bank


def _entry(buffer: Buffer, entry: int, entries_last: bool) -> SliceView:
    leading = (slice(None),) * (len(buffer.shape) - 2)
    return buffer[(*leading, slice(None), entry) if entries_last else (*leading, entry)]
