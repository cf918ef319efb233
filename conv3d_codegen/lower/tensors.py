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
        run = (self.tap_pitch, count)
        pairs = (rows, others, run) if self.taps_last else (rows, run, others)
        offset = self._offset(part) + first * self.tap_pitch
        return self.buffer.pattern(pairs, offset, core_step=self.core_step)

    def tap(self, part: Diagonal, tap: Tap) -> View:
        """Give [rows, others] of one tap."""
        if self.core_step:
            return self.cells(part, self.rows, tap, ())
        wide, narrow = (slice(*channels) for channels in self._channels(part))
        if self.layout == "DHWCN":
            return self.buffer[(*tap, wide, narrow)]
        if self.layout == "ODHWI":
            return self.buffer[(narrow, *tap, wide)]
        return self.buffer[(narrow, wide, *tap)]

    def cells(self, part: Diagonal, rows: Side, tap: Tap, runs: Sequence[tuple[int, int]]) -> View:
        """Give [rows, taps along some axes, others] from a tap on; runs: (axis, taps) pairs."""
        _, k_h, k_w = self.kernel
        weights = (k_h * k_w, k_w, 1)
        sizes = self._pairs(part)
        steps = [(weights[axis] * self.tap_pitch, count) for axis, count in runs]
        first = sum(t * weight for t, weight in zip(tap, weights, strict=True))
        others = sizes["wide" if rows == "narrow" else "narrow"]
        offset = self._offset(part) + first * self.tap_pitch
        return self.buffer.pattern((sizes[rows], *steps, others), offset, core_step=self.core_step)

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

    def _pairs(self, part: Diagonal) -> dict[Side, tuple[int, int]]:
        """Steps and counts of a part's channels."""
        pitches = self.pitches
        return {
            "wide": (pitches["wide"], part.wide[1] - part.wide[0]),
            "narrow": (pitches["narrow"], part.narrow[1] - part.narrow[0]),
        }

    def _offset(self, part: Diagonal) -> int:
        pitches = self.pitches
        wide, narrow = self._channels(part)
        return wide[0] * pitches["wide"] + narrow[0] * pitches["narrow"]

    def _channels(self, part: Diagonal) -> tuple[Range, Range]:
        """Where a part's channels lie in the tensor."""
        w0 = part.group * self.wide
        n0 = self.groups[0] * self.narrow
        return (part.wide[0] - w0, part.wide[1] - w0), (part.narrow[0] + n0, part.narrow[1] + n0)


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
