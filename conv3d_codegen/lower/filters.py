# SPDX-License-Identifier: Apache-2.0
"""Stationary matrices of dx: filters with dy's channels on partitions, block-Toeplitz where rows are folded.

Entry (e_d, e_h, k_w) of a pair of channel blocks is the matrix

    [ (u_d, u_h, dy channel), (r_d, r_h, dx channel) ] = filter tap (t_d, t_h, k_w) of the two channels

for every pair of triples (u_d, r_d, t_d), (u_h, r_h, t_h) of the two block taps, and zero elsewhere; several groups of
one pack lie on its diagonal. Filters are loaded with that side on partitions which gives long runs in HBM. If it is
dx's, the tensor engine turns the matrices.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from conv3d_codegen.dtypes import dtype
from conv3d_codegen.lower.diagonal import DiagonalFilters
from conv3d_codegen.lower.groups import spread
from conv3d_codegen.lower.tensors import Block, TapRun
from conv3d_codegen.program.instructions import dma_copy, transpose
from conv3d_codegen.program.program import PSUM_BANK_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from conv3d_codegen.lower.builder import Builder
    from conv3d_codegen.lower.tensors import FilterTensor
    from conv3d_codegen.planner.axes import BlockTap, DgradAxis
    from conv3d_codegen.planner.schedule import DgradPlan, Side
    from conv3d_codegen.program.views import Buffer, SliceView, View

Range = tuple[int, int]
Contracted = tuple[Range, ...]  # blocks of dy channels that one matmul contracts: one, or a pair

# Bytes per partition that are loaded before the tensor engine starts to turn them: about 4 us of the whole DMA rate.
STAGE_BYTES = 12 * 1024


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
    def has_zeros(self) -> bool:
        """Whether matrices have elements that no filter fills: rows that no tap connects, or idle columns."""
        return self.depth.blocked or self.height.blocked or self.plan.beside > 1

    @property
    def turns(self) -> bool:
        """Whether the matrices are loaded with dx's channels on partitions."""
        return self.tensor.rows == self.dx_side

    def sides(self, dx_channels: Range, dy_channels: Range) -> tuple[Range, Range]:
        """Put a pair of channel blocks in the order (wide, narrow)."""
        if self.dx_side == "wide":
            return dx_channels, dy_channels
        return dy_channels, dx_channels


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


class Arrivals:
    """Stages of filters in order, of which some are loaded before the first one is asked for."""

    def __init__(self, stages: Iterator[Staged]) -> None:
        self._stages = stages
        self._loaded: deque[Staged] = deque()

    def load(self, most: float) -> None:
        """Load stages of so many bytes per partition, of which all but the last have the same."""
        held = 0
        for stage in self._stages:
            self._loaded.append(stage)
            held += stage.buffer.bytes_per_partition
            if held + stage.buffer.bytes_per_partition > most:
                return

    def __iter__(self) -> Iterator[Staged]:
        """Give a stage once the next one is loading in its place."""
        for stage in self._stages:
            self._loaded.append(stage)
            yield self._loaded.popleft()
        while self._loaded:
            yield self._loaded.popleft()


def load_filters(
    builder: Builder,
    source: FilterSource,
    dx_channels: Range,
    contracted: tuple[Contracted, ...],
) -> Iterator[Staged]:
    """Load the matrices of some channels, stage by stage where they are to be turned."""
    rows = all_rows(source)
    if not source.turns and len(contracted[0]) > 1:
        pair = _load_pair(builder, source, dx_channels, contracted[0])
        yield Staged(dx_channels, contracted, rows, pair)
        return
    dy_channels = contracted[0][0][0], contracted[-1][-1][1]
    loader = _Loader(builder, source, dx_channels, dy_channels)
    for staged in loader.stages(rows) if source.turns else (rows,):
        yield Staged(dx_channels, contracted, staged, loader.load(staged))


def _load_pair(
    builder: Builder, source: FilterSource, dx_channels: Range, pair: Contracted
) -> Buffer:
    """Load the matrices of two blocks of dy channels side by side, in their own type, since nothing turns them."""
    rows = all_rows(source)
    columns, entries = dx_channels[1] - dx_channels[0], len(rows) * source.tensor.kernel[2]
    matrices = (columns, entries) if source.tensor.taps_last else (entries, columns)
    shape = (pair[0][1] - pair[0][0], len(pair), *matrices)
    bank = builder.allocate("w_pair", shape, source.tensor.buffer.dtype, "sbuf")
    for half, dy_channels in enumerate(pair):
        _Loader(builder, source, dx_channels, dy_channels).fill(bank, rows, half=(half,))
    return bank


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
    return DiagonalFilters(builder, source.tensor, source.depth, source.height, dy_side)


def diagonal_bank(diagonal: DiagonalFilters, loaded: Buffer, *, side_by_side: bool) -> FilterBank:
    """Build the matrices of a pack from its filters."""
    rows = product(diagonal.depth.entries(), diagonal.height.entries())
    positions = {EntryRow(d, h): number for number, (d, h) in enumerate(rows)}
    k_w = diagonal.tensor.kernel[2]
    buffer = diagonal.spread(loaded)
    if side_by_side:
        return _side_by_side(diagonal.builder, buffer, positions, k_w)
    return FilterBank(buffer, positions, k_w, entries_last=False)


@dataclass(frozen=True, slots=True)
class _Loader:
    """Loads the matrices of some channels of dx and of dy."""

    builder: Builder
    source: FilterSource
    dx_channels: Range
    dy_channels: Range

    def stages(self, rows: tuple[EntryRow, ...]) -> Iterator[tuple[EntryRow, ...]]:
        """Cut rows of entries into what one transfer loads; groups are spread out all at once."""
        step = len(rows)
        if self.source.tensor.is_dense:
            contraction = self.source.depth.fold * self.source.height.fold
            contraction *= self.dy_channels[1] - self.dy_channels[0]
            entries = self.source.tensor.kernel[2]
            row_bytes = entries * contraction * dtype(self.builder.dtype).bytes
            step = max(1, STAGE_BYTES // row_bytes)
        for start in range(0, len(rows), step):
            yield rows[start : start + step]

    def load(self, rows: tuple[EntryRow, ...]) -> Buffer:
        """Give [one side, entries, other side], or with the entries last."""
        source, tensor = self.source, self.source.tensor
        depth, height = source.depth, source.height
        contraction = depth.fold * height.fold * (self.dy_channels[1] - self.dy_channels[0])
        columns = source.plan.columns(self.dx_channels[1] - self.dx_channels[0])
        entries = len(rows) * tensor.kernel[2]
        first, last = (columns, contraction) if source.turns else (contraction, columns)
        shape = (first, last, entries) if tensor.taps_last else (first, entries, last)
        stem = "w_nat" if source.turns else "w_bank"
        grouped = None if tensor.is_dense else self._load_groups()
        if grouped is not None and not source.has_zeros:
            return grouped
        loaded = self.builder.allocate(stem, shape, self.builder.dtype, "sbuf")
        if source.has_zeros:
            self.builder.zero(loaded.whole())
        self.fill(loaded, rows, grouped)
        return loaded

    def fill(
        self,
        loaded: Buffer,
        rows: tuple[EntryRow, ...],
        grouped: Buffer | None = None,
        half: tuple[int, ...] = (),
    ) -> None:
        """Load matrices into their places in a buffer, or in one half of a pair's."""
        blocked = self.source.depth.blocked or self.source.height.blocked
        for taps, entry, count, corner in self._pieces(rows, blocked=blocked):
            dst = self._place(loaded, (entry, count), corner, half)
            self.builder.add(dma_copy(dst, self._taps(grouped, taps, count)))

    def _load_groups(self) -> Buffer:
        """Load the filters of all groups, each row its own group's, and spread them out."""
        tensor = self.source.tensor
        groups = tensor.groups[1] - tensor.groups[0]
        rows, others = tensor.narrow * groups, tensor.wide
        if tensor.rows == "wide":
            rows, others = tensor.wide * groups, tensor.narrow
        taps = math.prod(tensor.kernel)
        shape = (rows, others, taps) if tensor.taps_last else (rows, taps, others)
        compact = self.builder.allocate("w_own", shape, self.builder.dtype, "sbuf")
        views = tensor.compact(
            tensor.rows, (0, 0, 0), (TapRun(2, taps),), taps_last=tensor.taps_last
        )
        for (first, stop), view in views:
            self.builder.add(dma_copy(compact[first:stop], view))
        return spread(self.builder, compact, groups, taps_last=tensor.taps_last)

    def _taps(self, grouped: Buffer | None, first: int, count: int) -> View:
        """Give the filters of a run of taps, in HBM or, where groups were spread out, in SBUF."""
        tensor = self.source.tensor
        if grouped is None:
            sides = self.source.sides(self.dx_channels, self.dy_channels)
            return tensor.taps(Block(*sides), first, count)
        taps = slice(first, first + count)
        return grouped[:, :, taps] if tensor.taps_last else grouped[:, taps]

    def _pieces(
        self, rows: tuple[EntryRow, ...], *, blocked: bool
    ) -> Iterator[tuple[int, int, int, Range]]:
        """First tap, first entry and count of each transfer, and the (dy row, dx row) block it fills."""
        source = self.source
        _, k_h, k_w = source.tensor.kernel
        if not blocked:
            # Entry order is tap order where nothing is folded, so one transfer takes a run of taps.
            taps = [row.depth.triples[0][2] * k_h + row.height.triples[0][2] for row in rows]
            start = 0
            while start < len(taps):
                stop = start + 1
                while stop < len(taps) and taps[stop] == taps[stop - 1] + 1:
                    stop += 1
                yield taps[start] * k_w, start * k_w, (stop - start) * k_w, (0, 0)
                start = stop
            return
        for position, row in enumerate(rows):
            for u_d, r_d, t_d in row.depth.triples:
                for u_h, r_h, t_h in row.height.triples:
                    corner = u_d * source.height.fold + u_h, r_d * source.height.rows + r_h
                    yield (t_d * k_h + t_h) * k_w, position * k_w, k_w, corner

    def _place(
        self, loaded: Buffer, entries: Range, corner: tuple[int, int], half: tuple[int, ...]
    ) -> SliceView:
        """Where a transfer lands: the rows and columns of one corner."""
        source = self.source
        spans = []
        for (low, high), row in zip((self.dy_channels, self.dx_channels), corner, strict=True):
            spans.append(slice(row * (high - low), (row + 1) * (high - low)))
        first, last = reversed(spans) if source.turns else spans
        taps = slice(entries[0], entries[0] + entries[1])
        matrices = (last, taps) if source.tensor.taps_last else (taps, last)
        return loaded[(first, *half, *matrices)]


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
