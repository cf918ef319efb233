# SPDX-License-Identifier: Apache-2.0
"""HBM tensors as the lowering sees them: one pack of groups of x, dy, dx, filters or dw, whatever the layout."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from conv3d_codegen.plan.schedule import Side
    from conv3d_codegen.program.views import Buffer, View

Range = tuple[int, int]
Tap = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Activation:
    """x, dy or dx: [N, C, D, H, W], or [N, D, H, W, C] with channels last.

    first_channel: where the pack's channels start; all channels named below count from there.
    """

    buffer: Buffer
    stem: str
    channels_last: bool
    first_channel: int

    @property
    def size(self) -> tuple[int, int, int]:
        """Extents of D, H, W."""
        d, h, w = self.buffer.shape[1:4] if self.channels_last else self.buffer.shape[2:5]
        return d, h, w

    def view(self, sample: int, channels: Range, spans: tuple[slice, slice, slice]) -> View:
        """Give [C, D, H, W] of one sample."""
        c0, c1 = (self.first_channel + channel for channel in channels)
        if not self.channels_last:
            return self.buffer[(sample, slice(c0, c1), *spans)]
        channel_count = self.buffer.shape[4]
        pairs = [(1, c1 - c0)]
        offset = c0
        pitch = channel_count
        for span, extent in reversed(list(zip(spans, self.size, strict=True))):
            pairs.insert(1, ((span.step or 1) * pitch, len(range(extent)[span])))
            offset += span.start * pitch
            pitch *= extent
        return self.buffer.pattern(pairs, offset + sample * pitch)


@dataclass(frozen=True, slots=True)
class Diagonal:
    """What one group has in a block of wide and narrow channels, counted within the pack."""

    group: int
    wide: Range
    narrow: Range


@dataclass(frozen=True, slots=True)
class FilterTensor:
    """Filters or dw: the channels of one group along the wide side, all channels along the narrow one.

    buffer: [K_d, K_h, K_w, wide, narrow] (DHWCN), [narrow, wide, K_d, K_h, K_w] (OIDHW) or
        [narrow, K_d, K_h, K_w, wide] (ODHWI).
    wide, narrow: channels of one group.
    groups: the pack's groups [first, stop).
    """

    buffer: Buffer
    layout: str
    wide: int
    narrow: int
    groups: Range

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

    def diagonals(self, wide: Range, narrow: Range) -> Iterator[Diagonal]:
        """Give the parts of a block of the pack's channels that lie within one group each."""
        for group in range(self.groups[1] - self.groups[0]):
            w = max(wide[0], group * self.wide), min(wide[1], (group + 1) * self.wide)
            n = max(narrow[0], group * self.narrow), min(narrow[1], (group + 1) * self.narrow)
            if w[0] < w[1] and n[0] < n[1]:
                yield Diagonal(group, w, n)

    def connects(self, wide: Range, narrow: Range) -> bool:
        """Whether any filter connects two blocks of channels."""
        return any(True for _ in self.diagonals(wide, narrow))

    def taps(self, part: Diagonal, first: int, count: int) -> View:
        """Give `count` taps from one on, in the order of the tensor: [rows, taps, others], or with taps last."""
        sizes = self._pairs(part)
        rows, others = sizes[self.rows], sizes["wide" if self.rows == "narrow" else "narrow"]
        run = (self._tap_pitch, count)
        pairs = (rows, others, run) if self.taps_last else (rows, run, others)
        return self.buffer.pattern(pairs, self._offset(part) + first * self._tap_pitch)

    def tap(self, part: Diagonal, tap: Tap) -> View:
        """Give [rows, others] of one tap."""
        wide, narrow = (slice(*channels) for channels in self._channels(part))
        if self.layout == "DHWCN":
            return self.buffer[(*tap, wide, narrow)]
        if self.layout == "ODHWI":
            return self.buffer[(narrow, *tap, wide)]
        return self.buffer[(narrow, wide, *tap)]

    def cells(
        self, part: Diagonal, rows: Side, tap: Tap, runs: Sequence[tuple[int, int]]
    ) -> View:
        """Give [rows, taps along some axes, others] from a tap on; runs: (axis, taps) pairs."""
        _, k_h, k_w = self.kernel
        weights = (k_h * k_w, k_w, 1)
        sizes = self._pairs(part)
        steps = [(weights[axis] * self._tap_pitch, count) for axis, count in runs]
        first = sum(t * weight for t, weight in zip(tap, weights, strict=True))
        others = sizes["wide" if rows == "narrow" else "narrow"]
        offset = self._offset(part) + first * self._tap_pitch
        return self.buffer.pattern((sizes[rows], *steps, others), offset)

    @property
    def _tap_pitch(self) -> int:
        """Elements from a tap to the next one in (d, h, w) order."""
        if self.layout == "OIDHW":
            return 1
        return self.wide if self.layout == "ODHWI" else self.wide * self.buffer.shape[4]

    def _pairs(self, part: Diagonal) -> dict[Side, tuple[int, int]]:
        """Steps and counts of a part's channels."""
        wide, narrow = part.wide[1] - part.wide[0], part.narrow[1] - part.narrow[0]
        if self.layout == "DHWCN":
            return {"wide": (self.buffer.shape[4], wide), "narrow": (1, narrow)}
        taps = math.prod(self.kernel)
        pitch = taps if self.layout == "OIDHW" else 1
        return {"wide": (pitch, wide), "narrow": (self.wide * taps, narrow)}

    def _offset(self, part: Diagonal) -> int:
        steps = self._pairs(part)
        wide, narrow = self._channels(part)
        return wide[0] * steps["wide"][0] + narrow[0] * steps["narrow"][0]

    def _channels(self, part: Diagonal) -> tuple[Range, Range]:
        """Where a part's channels lie in the tensor."""
        w0 = part.group * self.wide
        n0 = self.groups[0] * self.narrow
        return (part.wide[0] - w0, part.wide[1] - w0), (part.narrow[0] + n0, part.narrow[1] + n0)


@dataclass(frozen=True, slots=True)
class Tensors:
    """One pack's share of the kernel's tensors; None where no requested gradient needs it."""

    dy: Activation
    x: Activation | None
    dx: Activation | None
    filters: FilterTensor | None
    dw: FilterTensor | None
    db: Buffer | None
    first_out_channel: int
