# SPDX-License-Identifier: Apache-2.0
"""Tensors and the views that instructions take of them.

A buffer is a named tensor in HBM, SBUF or PSUM. A view is what one operand of one instruction reads or writes: either
basic slicing of a buffer (`SliceView`) or an explicit access pattern over an HBM buffer (`PatternView`), the two forms
that every NKI version from 0.3 on accepts. In the body of a hardware loop a pattern may start where a run-time value
says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from conv3d_codegen.dtypes import dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

Space = Literal["hbm", "private_hbm", "sbuf", "psum"]


@dataclass(frozen=True, slots=True)
class Buffer:
    """A named tensor. Axis 0 of an on-chip buffer is the partition axis."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    space: Space
    alias_of: Buffer | None = None

    @property
    def storage(self) -> Buffer:
        """The buffer whose memory this one names: itself unless it is a reshaped alias."""
        return self.alias_of or self

    @property
    def bytes_per_partition(self) -> int:
        """Bytes that each partition holds (on-chip buffers)."""
        return math.prod(self.shape[1:]) * dtype(self.dtype).bytes

    @property
    def total_bytes(self) -> int:
        """Bytes of the whole tensor."""
        return math.prod(self.shape) * dtype(self.dtype).bytes

    def __getitem__(self, items: int | slice | tuple[int | slice, ...]) -> SliceView:
        """Slice like NKI does; every bound must be explicit enough to be inside the buffer."""
        given = items if isinstance(items, tuple) else (items,)
        padded = given + (slice(None),) * (len(self.shape) - len(given))
        index = tuple(
            _index_item(item, extent) for item, extent in zip(padded, self.shape, strict=True)
        )
        return SliceView(self, index)

    def whole(self) -> SliceView:
        """Give the view of the complete buffer."""
        return SliceView(self, tuple(Span(0, extent) for extent in self.shape))

    def pattern(
        self,
        pairs: Sequence[tuple[int, int]],
        offset: int,
        moved: RunTimeOffset | None = None,
        core_step: int = 0,
    ) -> PatternView:
        """Give an access pattern: (step, count) pairs in elements, outermost first."""
        return PatternView(self.storage, tuple(pairs), offset, moved, core_step)


@dataclass(frozen=True, slots=True)
class Span:
    """The positions start, start + step, … below stop on one axis."""

    start: int
    stop: int
    step: int = 1

    @property
    def count(self) -> int:
        """How many positions the span holds."""
        return -((self.start - self.stop) // self.step)


@dataclass(frozen=True)
class SliceView:
    """Basic slicing of a buffer; an integer drops its axis.

    Views are priced and printed several times: what they derive from their index is kept.
    """

    buffer: Buffer
    index: tuple[int | Span, ...]

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Extents of the view."""
        return tuple(item.count for item in self.index if isinstance(item, Span))

    @cached_property
    def steps(self) -> tuple[tuple[int, int, bool], ...]:
        """(elements, count, whether it is the partitions) of every axis, outermost first."""
        result = []
        pitch = 1
        on_chip = self.buffer.space in ("sbuf", "psum")
        for axis in reversed(range(len(self.index))):
            item = self.index[axis]
            if isinstance(item, Span):
                result.append((item.step * pitch, item.count, on_chip and axis == 0))
            pitch *= self.buffer.shape[axis]
        return tuple(result[::-1])

    @property
    def is_whole(self) -> bool:
        """Whether the view is the complete buffer, axis by axis."""
        return all(
            isinstance(item, Span) and (item.start, item.stop, item.step) == (0, extent, 1)
            for item, extent in zip(self.index, self.buffer.shape, strict=True)
        )


@dataclass(frozen=True, slots=True)
class RunTimeOffset:
    """A distance known at run time: value · (elements of one index of the tensor's axis `axis`).

    value: name of a loop's register, or a [1, 1] buffer in SBUF.
    """

    value: str | Buffer
    axis: int


@dataclass(frozen=True, slots=True)
class PatternView:
    """An explicit access pattern over a whole buffer.

    moved: how much further on it starts at run time; core_step: how much further the second core's starts.
    """

    buffer: Buffer
    pairs: tuple[tuple[int, int], ...]
    offset: int
    moved: RunTimeOffset | None = None
    core_step: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the view."""
        return tuple(count for _, count in self.pairs)


View = SliceView | PatternView


def _index_item(item: int | slice, extent: int) -> int | Span:
    if isinstance(item, int):
        if not 0 <= item < extent:
            raise IndexError(f"index {item} outside an axis of {extent}")
        return item
    start = 0 if item.start is None else item.start
    stop = extent if item.stop is None else item.stop
    step = 1 if item.step is None else item.step
    last = start + (stop - start - 1) // step * step if step > 0 else extent
    if not 0 <= start <= last < extent:
        raise IndexError(f"slice {start}:{stop}:{step} outside an axis of {extent}")
    # The canonical stop is one past the last position, so equal views print equally.
    return Span(start, last + 1, step if last > start else 1)


def move(view: View, by: RunTimeOffset) -> PatternView:
    """Let a view of an HBM tensor start further on."""
    if isinstance(view, PatternView):
        return replace(view, moved=by)
    offset, pitch = 0, 1
    for item, extent in reversed(list(zip(view.index, view.buffer.shape, strict=True))):
        offset += pitch * (item.start if isinstance(item, Span) else item)
        pitch *= extent
    pairs = tuple((step, count) for step, count, _ in view.steps)
    return PatternView(view.buffer.storage, pairs, offset, by)


def elements(view: View) -> int:
    """Count the elements of a view."""
    return math.prod(view.shape)


def elements_per_partition(view: View) -> int:
    """Count the elements that each partition of an on-chip view holds."""
    return math.prod(view.shape[1:])


def contiguous_run(view: View) -> int:
    """Length in elements of the longest runs that are contiguous in memory within one view.

    Axis 0 of an on-chip buffer is never contiguous with the others: each partition is its own memory.
    """
    run = 1
    for step, count, is_partition in reversed(_steps(view)):
        if count == 1:
            continue
        if is_partition or step != run:
            break
        run *= count
    return run


def inner_stride(view: View) -> int:
    """Distance in elements between neighbours along the innermost axis with more than one."""
    for step, count, is_partition in reversed(_steps(view)):
        if count > 1 and not is_partition:
            return step
    return 1


def _steps(view: View) -> Sequence[tuple[int, int, bool]]:
    if isinstance(view, PatternView):
        return [(step, count, False) for step, count in view.pairs]
    return view.steps
