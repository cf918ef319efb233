# SPDX-License-Identifier: Apache-2.0
"""Loads filters of dx to their places in stationary matrices, stage by stage where they are turned afterwards.

See lower.filters for how the matrices are laid out.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conv3d_codegen.dtypes import dtype
from conv3d_codegen.lower.filters import Staged, all_rows
from conv3d_codegen.lower.groups import spread
from conv3d_codegen.lower.tensors import Block, TapRun
from conv3d_codegen.planner.schedule import STAGE_BYTES
from conv3d_codegen.program.instructions import dma_copy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conv3d_codegen.lower.builder import Builder
    from conv3d_codegen.lower.filters import Contracted, EntryRow, FilterSource
    from conv3d_codegen.program.views import Buffer, SliceView, View

Range = tuple[int, int]


class Arrivals:
    """Stages of filters in order, of which some are loaded before the first one is asked for."""

    def __init__(self, stages: Iterator[Staged]) -> None:
        self._stages = stages
        self._loaded: deque[Staged] = deque()

    def load(self, most: float) -> float:
        """Load stages of so many bytes per partition, of which all but the last have the same; tell what is left."""
        left = most
        for stage in self._stages:
            self._loaded.append(stage)
            left -= stage.buffer.bytes_per_partition
            if stage.buffer.bytes_per_partition > left:
                break
        return left

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
        if grouped is not None and source.is_plain:
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
