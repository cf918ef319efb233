# SPDX-License-Identifier: Apache-2.0
"""Operands of dw straight from channels-last tensors: positions go on partitions as they are, nothing is turned.

An entry's positions are evenly apart in HBM along each axis, so transfers fill the same buffers that
turning would, in runs of whole channel blocks. Rows beyond the tensor stay zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby, product
from typing import TYPE_CHECKING

from conv3d_codegen.lower.turned import Turned
from conv3d_codegen.program.instructions import dma_copy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conv3d_codegen.lower.builder import Builder
    from conv3d_codegen.lower.tensors import Activation
    from conv3d_codegen.lower.turned import Held, Spread

Range = tuple[int, int]
Spreads = tuple["Spread", "Spread", "Spread", "Spread"]


@dataclass(frozen=True, slots=True)
class _Piece:
    """Groups and entries of one axis, all of whose rows exist."""

    groups: Range
    entries: Range


def load_spread(
    builder: Builder,
    held: Held,
    source: Activation,
    channels: Range,
    spreads: Spreads,
    *,
    zero_outside: bool,
) -> Turned:
    """Load a tensor as `turned.turn` would give it."""
    n, d, h, w = spreads
    positions = math.prod(spread.groups for spread in spreads)
    shape = (positions, n.entries * w.entries, d.entries, h.entries, channels[1] - channels[0])
    buffer = builder.allocate(held.stem, shape, held.dtype, "sbuf")
    turned = Turned(buffer, spreads, (0, 0), channels[0])
    if any(_reaches_out(spread) and (zero_outside or spread.groups > 1) for spread in spreads[1:]):
        builder.zero(buffer.whole())
    inner = max((axis for axis in range(4) if spreads[axis].groups > 1), default=3)
    pieces = [list(_pieces(spread, joined=axis == inner)) for axis, spread in enumerate(spreads)]
    for parts in product(*pieces):
        for lane in range(*parts[0].entries):
            _load(builder, source, turned, parts, (lane, inner))
    return turned


def _reaches_out(spread: Spread) -> bool:
    """Whether an axis has rows beyond the tensor."""
    first, stop = spread.reach
    return first < 0 or stop > spread.size


def _pieces(spread: Spread, *, joined: bool) -> Iterator[_Piece]:
    """Cut an axis into pieces; joined: neighbouring groups whose entries exist alike make one."""

    def inside(group: int) -> Range:
        low = spread.low + group * spread.pitch
        first = min(spread.entries, max(0, -(low // spread.unit)))
        stop = min(spread.entries, max(first, (spread.size - 1 - low) // spread.unit + 1))
        return first, stop

    for entries, alike in groupby(range(spread.groups), key=inside):
        groups = list(alike)
        if entries[0] == entries[1]:
            continue
        if joined:
            yield _Piece((groups[0], groups[-1] + 1), entries)
        else:
            yield from (_Piece((group, group + 1), entries) for group in groups)


def _load(
    builder: Builder,
    source: Activation,
    turned: Turned,
    parts: tuple[_Piece, ...],
    where: tuple[int, int],
) -> None:
    """Load the pieces of all axes for one sample entry; the groups of `inner` lie on partitions."""
    lane, inner = where
    spreads, pitches = turned.spreads, source.pitches
    partition = 0
    for spread, part in zip(spreads, parts, strict=True):
        partition = partition * spread.groups + part.groups[0]
    firsts = (lane, *(part.entries[0] for part in parts[1:]))
    n, d, h, w = (
        spread.low + part.groups[0] * spread.pitch + first * spread.unit
        for spread, part, first in zip(spreads, parts, firsts, strict=True)
    )
    _, depth, height, width = parts
    count = parts[inner].groups[1] - parts[inner].groups[0]
    pairs = [(spreads[inner].pitch * pitches[inner], count)]
    for axis in (3, 1, 2):
        first, stop = parts[axis].entries
        pairs.append((spreads[axis].unit * pitches[axis], stop - first))
    c0 = turned.first_channel
    channels = c0, c0 + turned.buffer.shape[4]
    lanes = lane * spreads[3].entries
    dst = turned.buffer[
        partition : partition + count,
        lanes + width.entries[0] : lanes + width.entries[1],
        slice(*depth.entries),
        slice(*height.entries),
        :,
    ]
    builder.add(dma_copy(dst, source.positions((n, d, h, w), 0, pairs, channels)))
