# SPDX-License-Identifier: Apache-2.0
"""Shapes, strides and offsets of views; each rule broken is reported and execution goes on.

A view is `(shape, strides, offset)` in elements of the storage. On chip, axis 0 is the partition
axis and its stride is the number of elements per partition.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from conv3d_codegen.simulator.registers import Register

if TYPE_CHECKING:
    from conv3d_codegen.simulator.core import Core
    from conv3d_codegen.simulator.tensors import NkiTensor

Geometry = tuple[tuple[int, ...], tuple[int, ...], int]


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a contiguous tensor, in elements."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)


def is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether elements follow each other without gaps, unit axes aside."""
    expected = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


def merged_axes(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[tuple[int, int]]:
    """(extent, stride) pairs with unit axes dropped and contiguous neighbours merged."""
    merged: list[tuple[int, int]] = []
    for extent, stride in zip(shape, strides, strict=True):
        if extent == 1:
            continue
        if merged and merged[-1][1] == extent * stride:
            merged[-1] = (merged[-1][0] * extent, stride)
        else:
            merged.append((extent, stride))
    return merged


def index_view(tensor: NkiTensor, key: Any, core: Core) -> Geometry:
    """`tensor[key]` with integers, slices and `...`."""
    keys = _complete_keys(key, len(tensor.shape), core)
    on_chip = tensor.storage.memory.is_on_chip
    shape: list[int] = []
    strides: list[int] = []
    offset = tensor.offset
    for axis, item in enumerate(keys):
        size, stride = tensor.shape[axis], tensor.strides[axis]
        if isinstance(item, slice):
            start, count, step = _resolve_slice(item, size, axis, core)
            if axis == 0 and on_chip and step != 1:
                core.report("partition-step", f"step {step} on the partition axis")
            shape.append(count)
            strides.append(stride * step)
        else:
            start = _resolve_integer(item, size, axis, core)
            if axis == 0 and on_chip:  # an integer keeps the partition axis
                shape.append(1)
                strides.append(stride)
        offset += start * stride
    if len(shape) < (2 if on_chip else 1):
        shape.append(1)
        strides.append(1)
    return tuple(shape), tuple(strides), offset


def reshape_view(tensor: NkiTensor, shape: tuple[int, ...], core: Core) -> Geometry:
    """`tensor.reshape(shape)`."""
    on_chip = tensor.storage.memory.is_on_chip
    given = f"reshape of {tensor.name} {tensor.shape} to {shape}"
    if prod(shape) != prod(tensor.shape):
        raise core.stop("reshape", f"{given}: element counts differ")
    if on_chip and shape[0] != tensor.shape[0]:
        core.report("reshape", f"{given}: the partition axis cannot change")
    contiguous = tensor.is_whole if on_chip else tensor.is_contiguous()
    if not contiguous:
        raise core.stop("reshape", f"{given}: only whole contiguous tensors can be reshaped")
    return shape, row_major(shape), tensor.offset


def ap_view(tensor: NkiTensor, pattern: list[tuple[int, ...]], offset: int, core: Core) -> Geometry:
    """`tensor.ap(pattern, offset)`."""
    storage = tensor.storage
    given = f"ap on {tensor.name}"
    if not tensor.is_whole:
        core.report("ap-base", f"{given}: call it on the tensor that nl.ndarray returned")
    steps = tuple(step for step, _ in pattern)
    counts = tuple(count for _, count in pattern)
    if any(step < 0 for step in steps) or any(count < 1 for count in counts):
        raise core.stop("ap-pattern", f"{given}: steps must not be negative, counts at least 1")
    if storage.memory.is_on_chip and steps[0] != storage.free:
        raise core.stop(
            "ap-pattern",
            f"{given}: the first pair must step {storage.free} elements, one partition",
        )
    first = 1 if storage.memory.is_on_chip else 0
    span = sum(s * (c - 1) for s, c in zip(steps[first:], counts[first:], strict=True))
    start = offset % storage.free if first else offset
    last_partition = offset // storage.free + counts[0] if first else 0
    if start + span >= storage.free or offset < 0 or last_partition > storage.partitions:
        raise core.stop("ap-pattern", f"{given}: offset {offset} and {pattern} leave the tensor")
    return counts, steps, offset


def _complete_keys(key: Any, rank: int, core: Core) -> list[Any]:
    """One key per axis: the ellipsis and missing trailing axes become full slices."""
    keys = list(key) if isinstance(key, tuple) else [key]
    ellipses = [position for position, item in enumerate(keys) if item is Ellipsis]
    missing = rank - len(keys) + len(ellipses)
    if missing < 0 or len(ellipses) > 1:
        raise core.stop("slice-range", f"{len(keys)} indices for a tensor of rank {rank}")
    position = ellipses[0] if ellipses else len(keys)
    return keys[:position] + [slice(None)] * missing + keys[position + len(ellipses) :]


def _resolve_slice(item: slice, size: int, axis: int, core: Core) -> tuple[int, int, int]:
    """(start, count, step); a slice out of range is moved back inside, keeping its extent."""
    start, stop, step = item.start, item.stop, item.step
    if start is None:
        start = 0
    if stop is None:
        stop = size
    if step is None:
        step = 1
    if start < 0:
        start += size
    if stop < 0:
        stop += size
    if 0 <= start < stop <= size and step >= 1:
        return start, -(-(stop - start) // step), step
    text = f"{item.start}:{item.stop}" + (f":{item.step}" if item.step is not None else "")
    message = f"[{text}] on axis {axis} of extent {size}"
    if step < 1 or stop <= start or stop - start > size:
        raise core.stop("slice-range", message)
    core.report("slice-range", message)
    return max(0, min(start, size - (stop - start))), -(-(stop - start) // step), step


def _resolve_integer(item: Any, size: int, axis: int, core: Core) -> int:
    if isinstance(item, Register):
        raise core.stop("loop-register", "a register does not index: use ap(scalar_offset=)")
    if isinstance(item, bool) or not isinstance(item, int):
        raise core.stop("operand-type", f"axis {axis} is indexed with {type(item).__name__}")
    position = item + size if item < 0 else item
    if not 0 <= position < size:
        core.report("slice-range", f"[{item}] on axis {axis} of extent {size}")
        return size - 1
    return position
