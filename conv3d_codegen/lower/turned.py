# SPDX-License-Identifier: Apache-2.0
"""Windows turned so that positions lie on partitions: the operands of dw.

Each axis of a slab is spread over `groups` partitions groups of equal pitch; what is left of it stays in the free dims
as entries. Entry e of group g holds row low + g·pitch + e·unit. The tensor that owns positions has one entry per
position; the halo tensor also has the rows that the taps reach, so that every tap is an offset in the free dims.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from conv3d_codegen.dtypes import dtype
from conv3d_codegen.planner.blocks import split_upto
from conv3d_codegen.program.instructions import transpose
from conv3d_codegen.program.program import PSUM_BANK_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from conv3d_codegen.lower.builder import Builder
    from conv3d_codegen.lower.windows import Window
    from conv3d_codegen.program.views import Buffer, SliceView

Range = tuple[int, int]
Entry = tuple[int, "int | slice", "int | slice", "int | slice"]  # of N, D, H, W


@dataclass(frozen=True, slots=True)
class Held:
    """Name of a turned tensor, and the type it is cast to."""

    stem: str
    dtype: str


@dataclass(frozen=True, slots=True)
class Spread:
    """One axis of a tensor over partitions and free dims; size is the tensor's extent."""

    low: int
    groups: int
    pitch: int
    unit: int
    entries: int
    size: int

    @property
    def reach(self) -> Range:
        """Rows [first, stop) that the spread touches."""
        last = self.low + (self.groups - 1) * self.pitch + (self.entries - 1) * self.unit
        return self.low, last + 1

    @property
    def window(self) -> Range:
        """Rows to load: an axis on partitions needs its zero border, another one does not."""
        first, stop = self.reach
        if self.groups > 1:
            return first, stop
        return min(max(first, 0), self.size), max(0, min(stop, self.size))

    def existing(self, run: Range, origin: int, step: int) -> Range:
        """Cut a run to those i whose row origin + i · step exists, on an axis that is not on partitions."""
        if self.groups > 1:
            return run
        return max(run[0], -(origin // step)), min(run[1], (self.size - 1 - origin) // step + 1)

    @property
    def inside(self) -> Range:
        """Entries [first, stop) whose row exists, on an axis that is not on partitions."""
        if self.groups > 1:
            return 0, self.entries
        first = min(self.entries, max(0, -(self.low // self.unit)))
        stop = min(self.entries, max(first, (self.size - 1 - self.low) // self.unit + 1))
        return first, stop


@dataclass(frozen=True, slots=True)
class Turned:
    """[positions, N entries · W entries, D entries, H entries, channels] in SBUF.

    skips: how much further in the buffer than in the spread the D and H entries lie, because folded windows are turned
    in whole blocks; first_channel: the channel that the buffer's channel 0 holds.
    """

    buffer: Buffer
    spreads: tuple[Spread, Spread, Spread, Spread]
    skips: tuple[int, int]
    first_channel: int

    @property
    def positions(self) -> int:
        """Partitions in use."""
        return math.prod(spread.groups for spread in self.spreads)

    def view(
        self, sample: int, d: int | slice, h: int | slice, w: int | slice, channels: Range
    ) -> SliceView:
        """Address entries; d, h, w are entry indices or slices of them."""
        first = sample * self.spreads[3].entries
        c0 = self.first_channel
        index = (
            slice(None),
            _shift(w, first),
            _shift(d, self.skips[0]),
            _shift(h, self.skips[1]),
            slice(channels[0] - c0, channels[1] - c0),
        )
        return self.buffer[index]

    def columns(
        self,
        builder: Builder,
        entry: Entry,
        channels: Range,
    ) -> SliceView:
        """Address one entry, or neighbouring entries along one axis, as the columns of a stationary operand."""
        sample, d, h, w = entry
        if not any(isinstance(item, slice) for item in (d, h, w)):
            return self.view(sample, d, h, w, channels)
        positions, n, d_extent, h_extent, c = self.buffer.shape
        first = sample * self.spreads[3].entries
        w, d, h = _shift(w, first), _shift(d, self.skips[0]), _shift(h, self.skips[1])
        if isinstance(h, slice):
            flat = builder.alias(self.buffer, (positions, n, d_extent, h_extent * c))
            return flat[:, w, d, h.start * c : h.stop * c]
        if isinstance(d, slice):
            flat = builder.alias(self.buffer, (positions, n, d_extent * h_extent * c))
            return flat[:, w, d.start * c : d.stop * c]
        assert isinstance(w, slice)
        flat = builder.alias(self.buffer, (positions, n * d_extent * h_extent * c))
        return flat[:, w.start * c : w.stop * c]

    def row_columns(self, builder: Builder, sample: int, d: slice, h: slice, w: slice) -> SliceView:
        """Address neighbouring H entries with all channels: [positions, W entries, D entries, H entries · channels]."""
        positions, n, d_extent, h_extent, c = self.buffer.shape
        flat = builder.alias(self.buffer, (positions, n, d_extent, h_extent * c))
        first = h.start + self.skips[1], h.stop + self.skips[1]
        columns = slice(first[0] * c, first[1] * c)
        return flat[
            :, _shift(w, sample * self.spreads[3].entries), _shift(d, self.skips[0]), columns
        ]

    def pair(self, builder: Builder, entries: Sequence[Entry], channels: Range) -> SliceView:
        """Address two entries that differ along one axis, [positions, 2, ...].

        Where h is a run of entries, all channels of the buffer go with it.
        """
        first, second = (
            (
                _single(_shift(w, sample * self.spreads[3].entries)),
                _single(_shift(d, self.skips[0])),
                _single(_shift(h, self.skips[1])),
            )
            for sample, d, h, w in entries
        )
        w, d, h = map(_both, first, second)
        run = first[2]
        if isinstance(run, slice):
            positions, n, d_extent, h_extent, c = self.buffer.shape
            flat = builder.alias(self.buffer, (positions, n, d_extent, h_extent * c))
            return flat[:, w, d, run.start * c : run.stop * c]
        c0 = self.first_channel
        return self.buffer[:, w, d, h, channels[0] - c0 : channels[1] - c0]


def _single(index: int | slice) -> int | slice:
    """Give the index alone where a slice holds just one."""
    if isinstance(index, slice) and index.stop - index.start == 1:
        return int(index.start)
    return index


def _both(first: int | slice, second: int | slice) -> int | slice:
    """Address two indices at once where they differ."""
    if first == second or isinstance(first, slice) or isinstance(second, slice):
        return first
    return slice(first, second + 1, second - first)


def _shift(index: int | slice, by: int) -> int | slice:
    if isinstance(index, int):
        return index + by
    return slice(index.start + by, index.stop + by, index.step)


def turn(
    builder: Builder,
    held: Held,
    windows: Sequence[Window],
    spreads: tuple[Spread, Spread, Spread, Spread],
    *,
    zero_outside: bool,
) -> Turned:
    """Transpose all channel blocks of a tensor's windows on the tensor engine."""
    n, d, h, w = spreads
    f_d, f_h = windows[0].fold
    d_skip, h_skip = d.low % f_d, h.low % f_h
    d_extent = -(-(d.entries + d_skip) // f_d) * f_d
    h_extent = -(-(h.entries + h_skip) // f_h) * f_h
    first, last = windows[0].channels[0], windows[-1].channels[1]
    channels = last - first
    positions = math.prod(spread.groups for spread in spreads)
    shape = (positions, n.entries * w.entries, d_extent, h_extent, channels)
    buffer = builder.allocate(held.stem, shape, held.dtype, "sbuf")
    turned = Turned(buffer, spreads, (d_skip, h_skip), first)
    if zero_outside:
        _zero_entries(builder, turned)
    for window in windows:
        for batch in _batches(builder, turned, window):
            _turn_batch(builder, turned, window, batch)
    return turned


def _zero_entries(builder: Builder, turned: Turned) -> None:
    """Zero the entries whose rows do not exist."""
    n, d, h, w = turned.spreads
    full = slice(None)
    for low, high in _complement(d.inside, d.entries):
        builder.zero(turned.buffer[full, full, _shift(slice(low, high), turned.skips[0])])
    for low, high in _complement(h.inside, h.entries):
        builder.zero(turned.buffer[full, full, full, _shift(slice(low, high), turned.skips[1])])
    for sample in range(n.entries):
        for low, high in _complement(w.inside, w.entries):
            builder.zero(turned.buffer[full, _shift(slice(low, high), sample * w.entries)])


def _complement(inside: Range, extent: int) -> Iterator[Range]:
    for low, high in ((0, inside[0]), (inside[1], extent)):
        if low < high:
            yield low, high


def _blocks(spread: Spread, fold: int) -> Range:
    """Blocks of `fold` entries, counted from the one of entry 0, that hold existing rows."""
    skip = spread.low % fold
    first, stop = spread.inside
    if first >= stop:
        return 0, 0
    return (first + skip) // fold, (stop - 1 + skip) // fold + 1


@dataclass(frozen=True, slots=True)
class _Batch:
    """Blocks that share a PSUM bank and one eviction: several W entries or several D blocks, not both."""

    sample: int
    columns: Range
    d: Range
    h: Range

    @property
    def extents(self) -> tuple[int, int, int]:
        """W entries, D blocks, H blocks."""
        columns, d, h = (stop - first for first, stop in (self.columns, self.d, self.h))
        return columns, d, h


def _batches(builder: Builder, turned: Turned, window: Window) -> Iterator[_Batch]:
    """Fill banks with whole rows of H blocks first, then with the D blocks or W entries beside them."""
    n, d, h, w = turned.spreads
    f_d, f_h = window.fold
    rows = f_d * f_h * (window.channels[1] - window.channels[0])
    per_bank = PSUM_BANK_BYTES // (rows * dtype(builder.dtype).bytes)
    h_blocks, d_blocks = _blocks(h, f_h), _blocks(d, f_d)
    height = min(per_bank, max(1, h_blocks[1] - h_blocks[0]))
    beside = per_bank // height if height >= h_blocks[1] - h_blocks[0] else 1
    along_d = f_d == 1 and d_blocks[1] - d_blocks[0] > 1
    d_step, w_step = (beside, 1) if along_d else (1, beside)
    for sample in range(n.entries):
        for columns in split_upto(w.inside, w_step):
            for d_range, h_range in product(
                split_upto(d_blocks, d_step), list(split_upto(h_blocks, height))
            ):
                yield _Batch(sample, columns, d_range, h_range)


def _turn_batch(builder: Builder, turned: Turned, window: Window, batch: _Batch) -> None:
    """Transpose the blocks of a batch into one bank and copy them to their entries."""
    f_d, f_h = window.fold
    rows = f_d * f_h * (window.channels[1] - window.channels[0])
    columns, d_count, h_count = batch.extents
    shape = (turned.positions, columns * d_count, h_count, rows)
    landing = builder.allocate("t_ps", shape, builder.dtype, "psum")
    blocks = product(range(*batch.columns), range(*batch.d), range(*batch.h))
    for number, (column, d, h) in enumerate(blocks):
        data = _data(turned.spreads, window, (batch.sample, d, h, column))
        outer, inner = divmod(number, h_count)
        builder.add(transpose(landing[:, outer, inner, :], data))
    _evict(builder, turned, window, landing, batch)


def _evict(
    builder: Builder, turned: Turned, window: Window, landing: Buffer, batch: _Batch
) -> None:
    """Copy a bank of turned blocks to their entries.

    The rows of a fold along H are neighbours in the entries too, so one copy serves them all, unless other channel
    blocks lie between them.
    """
    f_d, f_h = window.fold
    width = window.channels[1] - window.channels[0]
    c0 = window.channels[0] - turned.first_channel
    target, joint = turned.buffer, 1
    if f_h > 1 and width == target.shape[4]:
        n, d, h, _ = target.shape[1:]
        target, joint = builder.alias(target, (turned.positions, n, d, h // f_h, f_h * width)), f_h
    part, apart = joint * width, f_h // joint
    lanes = slice(*(batch.sample * turned.spreads[3].entries + column for column in batch.columns))
    columns, d_count, h_count = batch.extents
    for u in range(f_d):
        entry = batch.d[0] * f_d + u
        outer = (lanes, entry) if columns > 1 else (lanes.start, slice(entry, entry + d_count))
        for v in range(apart):
            first = batch.h[0] * apart + v
            span = slice(first, first + (h_count - 1) * apart + 1, apart)
            dst = target[(slice(None), *outer, span, slice(c0, c0 + part))]
            start = (u * f_h + v) * width
            builder.copy(dst, landing[:, :, :, start : start + part])


def _data(
    spreads: tuple[Spread, Spread, Spread, Spread],
    window: Window,
    entry: tuple[int, int, int, int],
) -> SliceView:
    """Give the window's positions of one entry, over all groups: what one transpose reads."""
    folds = (1, *window.fold, 1)
    index: list[int | slice] = [slice(None)]
    for spread, fold, (origin, _), block in zip(
        spreads, folds, window.box.ranges, entry, strict=True
    ):
        row = spread.low - spread.low % fold + block * fold * spread.unit
        start = (row - origin) // fold
        pitch = spread.pitch // fold
        last = start + (spread.groups - 1) * pitch
        index.append(start if spread.groups == 1 else slice(start, last + 1, pitch))
    if all(isinstance(item, int) for item in index[1:]):
        column = index[4]
        assert isinstance(column, int)
        index[4] = slice(column, column + 1)
    return window.buffer[tuple(index)]
