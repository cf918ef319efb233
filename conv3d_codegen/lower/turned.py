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
from conv3d_codegen.program.instructions import transpose
from conv3d_codegen.program.program import PSUM_BANK_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from conv3d_codegen.lower.builder import Builder
    from conv3d_codegen.lower.windows import Window
    from conv3d_codegen.program.views import Buffer, SliceView

Range = tuple[int, int]


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
        entry: tuple[int, int | slice, int | slice, int | slice],
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


def _shift(index: int | slice, by: int) -> int | slice:
    if isinstance(index, int):
        return index + by
    return slice(index.start + by, index.stop + by, index.step)


def turn(
    builder: Builder,
    stem: str,
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
    buffer = builder.allocate(stem, shape, builder.dtype, "sbuf")
    turned = Turned(buffer, spreads, (d_skip, h_skip), first)
    if zero_outside:
        _zero_entries(builder, turned)
    for window in windows:
        for sample, column in product(range(n.entries), range(*w.inside)):
            _turn_plane(builder, turned, window, sample, column)
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


def _turn_plane(
    builder: Builder, turned: Turned, window: Window, sample: int, column: int
) -> None:
    """Turn all rows of one sample entry and one W entry, as many blocks per PSUM bank as fit."""
    _, d, h, w = turned.spreads
    f_d, f_h = window.fold
    width = window.channels[1] - window.channels[0]
    rows = f_d * f_h * width
    per_bank = PSUM_BANK_BYTES // (rows * dtype(builder.dtype).bytes)
    h_first, h_stop = _blocks(h, f_h)
    d_first, d_stop = _blocks(d, f_d)
    whole_rows = f_d == 1 and 0 < h_stop - h_first <= per_bank
    d_step = per_bank // (h_stop - h_first) if whole_rows else 1
    for d_low in range(d_first, d_stop, d_step):
        d_count = min(d_step, d_stop - d_low)
        for h_low in range(h_first, h_stop, per_bank):
            h_count = min(per_bank, h_stop - h_low)
            shape = (turned.positions, d_count, h_count, rows)
            landing = builder.allocate("t_ps", shape, builder.dtype, "psum")
            for i, j in product(range(d_count), range(h_count)):
                data = _data(turned.spreads, window, (sample, d_low + i, h_low + j, column))
                builder.add(transpose(landing[:, i, j, :], data))
            lane = sample * w.entries + column
            box = (lane, (d_low, d_count), (h_low, h_count))
            _evict(builder, turned, window, landing, box)


def _evict(
    builder: Builder,
    turned: Turned,
    window: Window,
    landing: Buffer,
    box: tuple[int, Range, Range],
) -> None:
    """Copy a bank of turned blocks to their entries.

    The rows of a fold along H are neighbours in the entries too, so one copy serves them all, unless other channel
    blocks lie between them.
    """
    lane, (d_low, d_count), (h_low, h_count) = box
    f_d, f_h = window.fold
    width = window.channels[1] - window.channels[0]
    c0 = window.channels[0] - turned.first_channel
    target, joint = turned.buffer, 1
    if f_h > 1 and width == target.shape[4]:
        n, d, h, _ = target.shape[1:]
        target, joint = builder.alias(target, (turned.positions, n, d, h // f_h, f_h * width)), f_h
    part = joint * width
    for u in range(f_d):
        entry = d_low * f_d + u
        for v in range(f_h // joint):
            first = h_low * (f_h // joint) + v
            span = slice(first, first + (h_count - 1) * (f_h // joint) + 1, f_h // joint)
            dst = target[:, lane, entry : entry + d_count, span, c0 : c0 + part]
            start = (u * f_h + v) * width
            builder.copy(dst, landing[:, :, :, start : start + part])


def _data(
    spreads: tuple[Spread, Spread, Spread, Spread],
    window: Window,
    entry: tuple[int, int, int, int],
) -> SliceView:
    """The window's positions of one entry, over all groups: what one transpose reads."""
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
        start = index[4]
        assert isinstance(start, int)
        index[4] = slice(start, start + 1)
    return window.buffer[tuple(index)]
