# SPDX-License-Identifier: Apache-2.0
"""HBM tensors as the lowering sees them: one pack of groups of x, dy, dx, filters or dw, whatever the layout."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from conv3d_codegen.planner.schedule import Side
    from conv3d_codegen.program.views import Buffer, View

Range = tuple[int, int]
Tap = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Activation:
    """x, dy or dx: [N, C, D, H, W], or [N, D, H, W, C] with channels last.

    first_channel: where the pack's channels start; all channels named below count from there.
    core_step: elements from the first core's part to the second one's.
    """

    buffer: Buffer
    stem: str
    channels_last: bool
    first_channel: int
    core_step: int

    @property
    def size(self) -> tuple[int, int, int]:
        """Extents of D, H, W."""
        d, h, w = self.buffer.shape[1:4] if self.channels_last else self.buffer.shape[2:5]
        return d, h, w

    @property
    def channels(self) -> int:
        """Channels of the whole tensor."""
        return self.buffer.shape[4 if self.channels_last else 1]

    @property
    def channel_pitch(self) -> int:
        """Elements from one channel to the next."""
        return 1 if self.channels_last else math.prod(self.size)

    @property
    def pitches(self) -> tuple[int, int, int, int]:
        """Elements from one index of N, D, H, W to the next."""
        shape = self.buffer.shape
        spatial = 1 if self.channels_last else 2
        n, d, h, w = (math.prod(shape[axis + 1 :]) for axis in (0, *range(spatial, spatial + 3)))
        return n, d, h, w

    def view(self, sample: int, channels: Range, spans: tuple[slice, slice, slice]) -> View:
        """Give [C, D, H, W] of one sample."""
        c0, c1 = (self.first_channel + channel for channel in channels)
        if not self.channels_last and not self.core_step:
            return self.buffer[(sample, slice(c0, c1), *spans)]
        n, *spatial = self.pitches
        offset = sample * n + c0 * self.channel_pitch
        pairs = [(self.channel_pitch, c1 - c0)]
        for span, pitch, extent in zip(spans, spatial, self.size, strict=True):
            pairs.append(((span.step or 1) * pitch, len(range(extent)[span])))
            offset += span.start * pitch
        return self.buffer.pattern(pairs, offset, core_step=self.core_step)

    def positions(
        self,
        place: tuple[int, int, int, int],
        skipped: int,
        pairs: Sequence[tuple[int, int]],
        channels: Range,
    ) -> View:
        """Give [.., C]: the given steps and counts from `skipped` positions past a place in N, D, H, W."""
        offset = sum(index * pitch for index, pitch in zip(place, self.pitches, strict=True))
        offset += (
            skipped * self.pitches[3] + (self.first_channel + channels[0]) * self.channel_pitch
        )
        inner = (self.channel_pitch, channels[1] - channels[0])
        return self.buffer.pattern((*pairs, inner), offset, core_step=self.core_step)


@dataclass(frozen=True, slots=True)
class Block:
    """Channels of one group on both sides, counted within the group."""

    wide: Range
    narrow: Range


@dataclass(frozen=True, slots=True)
class TapRun:
    """Evenly spaced taps along D, H or W (axis 0, 1, 2)."""

    axis: int
    taps: int
    step: int = 1


@dataclass(frozen=True, slots=True)
class FilterTensor:
    """Filters or dw: the channels of one group along the wide side, all channels along the narrow one.

    buffer: [K_d, K_h, K_w, wide, narrow] (DHWCN), [narrow, wide, K_d, K_h, K_w] (OIDHW) or
        [narrow, K_d, K_h, K_w, wide] (ODHWI).
    wide, narrow: channels of one group that a core has.
    groups: the pack's groups [first, stop).
    core_step: elements from the first core's part to the second one's.
    """

    buffer: Buffer
    layout: str
    wide: int
    narrow: int
    groups: Range
    core_step: int

    @property
    def rows(self) -> Side:
        """The side that lies on partitions when transfers are to have long runs."""
        return "wide" if self.layout == "DHWCN" else "narrow"

    @property
    def taps_last(self) -> bool:
        """Whether the taps are innermost, rather than the channels of the other side."""
        return self.layout == "OIDHW"

    @property
    def kernel(self) -> tuple[int, int, int]:
        """Taps of D, H, W."""
        start = {"DHWCN": 0, "OIDHW": 2, "ODHWI": 1}[self.layout]
        d, h, w = self.buffer.shape[start : start + 3]
        return d, h, w

    @property
    def is_dense(self) -> bool:
        """Whether the pack is one group, so that every pair of channels has a filter."""
        return self.groups[1] - self.groups[0] == 1

    def taps(self, block: Block, first: int, count: int) -> View:
        """Give `count` taps of a single group in the tensor's order: [rows, taps, others], or taps last."""
        rows, others = self._pairs(block)
        run = (self.tap_pitch, count)
        pairs = (rows, others, run) if self.taps_last else (rows, run, others)
        offset = self._offset(block) + first * self.tap_pitch
        return self.buffer.pattern(pairs, offset, core_step=self.core_step)

    def neighbours(self, block: Block, first: int, count: int) -> View:
        """Give [rows, taps, others], or [rows, others] of a single tap."""
        if count > 1:
            return self.taps(block, first, count)
        _, k_h, k_w = self.kernel
        row, w = divmod(first, k_w)
        return self.tap(block, (*divmod(row, k_h), w))

    def joined_taps(self, block: Block, first: int, count: int) -> View | None:
        """Give `count` taps as [taps · rows, others], if their rows follow each other evenly in HBM."""
        (pitch, rows), others = self._pairs(block)
        if self.tap_pitch != pitch * rows or count == 1:
            return None
        offset = self._offset(block) + first * self.tap_pitch
        return self.buffer.pattern(
            ((pitch, count * rows), others), offset, core_step=self.core_step
        )

    def tap(self, block: Block, tap: Tap) -> View:
        """Give [rows, others] of one tap of a single group."""
        if self.core_step:
            offset = self._offset(block) + self._at(tap)
            return self.buffer.pattern(self._pairs(block), offset, core_step=self.core_step)
        first = self.groups[0] * self.narrow
        wide, narrow = slice(*block.wide), slice(block.narrow[0] + first, block.narrow[1] + first)
        if self.layout == "DHWCN":
            return self.buffer[(*tap, wide, narrow)]
        if self.layout == "ODHWI":
            return self.buffer[(narrow, *tap, wide)]
        return self.buffer[(narrow, wide, *tap)]

    def are_even(self, rows: Side) -> bool:
        """Whether the rows of all groups are evenly apart, as one view needs them."""
        return rows == "narrow" or self.wide == 1

    def compact(
        self, rows: Side, tap: Tap, runs: Sequence[TapRun], *, taps_last: bool = False
    ) -> Iterator[tuple[Range, View]]:
        """Give all groups of the pack: (rows, view) with [rows, taps, others of the row's group].

        One view serves all groups where their rows are evenly apart.
        """
        first, stop = self.groups
        counts: dict[Side, int] = {"wide": self.wide, "narrow": self.narrow}
        others: Side = "wide" if rows == "narrow" else "narrow"
        pitch, together = self.pitches[rows], stop - first
        if not self.are_even(rows):
            together = 1
        elif rows == "wide":
            pitch = self.narrow * self.pitches["narrow"]
        steps = [(self._weights[run.axis] * run.step * self.tap_pitch, run.taps) for run in runs]
        channels = (self.pitches[others], counts[others])
        inner = [channels, *steps] if taps_last else [*steps, channels]
        for group in range(0, stop - first, together):
            count = together * counts[rows]
            offset = self._at(tap) + (first + group) * self.narrow * self.pitches["narrow"]
            view = self.buffer.pattern(((pitch, count), *inner), offset, core_step=self.core_step)
            yield (group * counts[rows], group * counts[rows] + count), view

    @property
    def tap_pitch(self) -> int:
        """Elements from a tap to the next one in (d, h, w) order."""
        if self.layout == "OIDHW":
            return 1
        others = self.buffer.shape[4]
        return others if self.layout == "ODHWI" else self.buffer.shape[3] * others

    @property
    def pitches(self) -> dict[Side, int]:
        """Elements from one channel to the next."""
        taps = math.prod(self.kernel)
        if self.layout == "DHWCN":
            return {"wide": self.buffer.shape[4], "narrow": 1}
        if self.layout == "OIDHW":
            return {"wide": taps, "narrow": self.buffer.shape[1] * taps}
        return {"wide": 1, "narrow": taps * self.buffer.shape[4]}

    @property
    def _weights(self) -> Tap:
        """Taps from one index of D, H, W to the next."""
        _, k_h, k_w = self.kernel
        return k_h * k_w, k_w, 1

    def tap_number(self, tap: Tap) -> int:
        """Count the taps before this one, in (d, h, w) order."""
        return sum(t * w for t, w in zip(tap, self._weights, strict=True))

    def _at(self, tap: Tap) -> int:
        """Elements from the first tap to this one."""
        return self.tap_pitch * self.tap_number(tap)

    def _pairs(self, block: Block) -> tuple[tuple[int, int], tuple[int, int]]:
        """Give steps and counts of a block's rows and of the other channels."""
        wide = (self.pitches["wide"], block.wide[1] - block.wide[0])
        narrow = (self.pitches["narrow"], block.narrow[1] - block.narrow[0])
        return (wide, narrow) if self.rows == "wide" else (narrow, wide)

    def _offset(self, block: Block) -> int:
        narrow = self.groups[0] * self.narrow + block.narrow[0]
        return block.wide[0] * self.pitches["wide"] + narrow * self.pitches["narrow"]


@dataclass(frozen=True, slots=True)
class Vector:
    """db: one number per channel."""

    buffer: Buffer
    first_channel: int
    core_step: int

    def view(self, channels: Range) -> View:
        """Give [C, 1]."""
        pairs = ((1, channels[1] - channels[0]), (1, 1))
        return self.buffer.pattern(
            pairs, self.first_channel + channels[0], core_step=self.core_step
        )


@dataclass(frozen=True, slots=True)
class Tensors:
    """One pack's share of the kernel's tensors; None where no requested gradient needs it."""

    dy: Activation
    x: Activation | None
    dx: Activation | None
    filters: FilterTensor | None
    dw: FilterTensor | None
    db: Vector | None
