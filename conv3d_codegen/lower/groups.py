# SPDX-License-Identifier: Apache-2.0
"""Several groups in one matmul: filters spread to block-diagonal form, and diagonal blocks gathered.

A row belongs to one group and has the numbers of that group alone. Spread, it has numbers for the
channels of every group, zero but for its own: the product with a mask of ones where row and column
are of one group. Gathering multiplies with the same mask and adds the groups up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from conv3d_codegen.program.instructions import (
    affine_select,
    dma_copy,
    memset,
    reduce_last,
    tensor_multiply,
)

if TYPE_CHECKING:
    from conv3d_codegen.lower.builder import Builder
    from conv3d_codegen.program.views import Buffer


def group_mask(builder: Builder, rows: int, groups: int, dtype: str, times: int = 1) -> Buffer:
    """Give `times` copies, one below the other, of [rows, groups]: 1 where a row is one of a group's.

    Groups follow each other evenly. Built once per kernel.
    """
    if times == 1:
        return builder.once(
            ("mask", rows, groups, dtype), lambda: _mask(builder, rows, groups, dtype)
        )
    mask = group_mask(builder, rows, groups, dtype)
    return builder.once(
        ("masks", rows, groups, dtype, times), lambda: _repeated(builder, mask, times)
    )


def _mask(builder: Builder, rows: int, groups: int, dtype: str) -> Buffer:
    size = rows // groups
    mask = builder.allocate("own_group", (rows, groups), dtype, "sbuf")
    whole = mask.whole()
    builder.add(memset(whole, 1.0, "gpsimd"))
    # row - size·group >= 0, and size·group + size - 1 - row >= 0
    builder.add(affine_select(whole, whole, ((-size, groups),), row_step=1, offset=0))
    builder.add(affine_select(whole, whole, ((size, groups),), row_step=-1, offset=size - 1))
    return mask


def _repeated(builder: Builder, mask: Buffer, times: int) -> Buffer:
    """Stack copies of a mask on partitions; only DMA writes to any of them."""
    rows, groups = mask.shape
    stack = builder.allocate("own_groups", (times * rows, groups), mask.dtype, "sbuf")
    for number in range(times):
        part = stack[number * rows : (number + 1) * rows, :]
        builder.add(dma_copy(part, mask.whole()))
    return stack


def spread(builder: Builder, compact: Buffer, groups: int, *, taps_last: bool) -> Buffer:
    """[rows, taps, channels] → [rows, taps, groups · channels], or with the taps last."""
    rows, first, second = compact.shape
    mask = group_mask(builder, rows, groups, compact.dtype)
    taps, channels = (1, first * second) if taps_last else (first, second)
    shape = (rows, groups * first, second) if taps_last else (rows, first, groups * second)
    wide = builder.allocate("w_groups", shape, compact.dtype, "sbuf")
    row, pitch = taps * channels, groups * channels
    dst = wide.pattern(((taps * pitch, rows), (pitch, taps), (channels, groups), (1, channels)), 0)
    own = compact.pattern(((row, rows), (channels, taps), (0, groups), (1, channels)), 0)
    select = mask.pattern(((groups, rows), (0, taps), (1, groups), (0, channels)), 0)
    builder.add(tensor_multiply(dst, own, select, "vector"))
    return wide


def gather(builder: Builder, total: Buffer, groups: int, taps_beside: int, dtype: str) -> Buffer:
    """[taps · rows, cells, cells, groups · channels] → [taps · rows, cells, cells, channels]."""
    rows, first, second, columns = total.shape
    cells, channels = first * second, columns // groups
    mask = group_mask(builder, rows // taps_beside, groups, "fp32", taps_beside)
    masked = builder.allocate("dw_masked", (rows, cells, groups, channels), "fp32", "sbuf")
    row = cells * columns
    every = total.pattern(((row, rows), (columns, cells), (channels, groups), (1, channels)), 0)
    select = mask.pattern(((groups, rows), (0, cells), (1, groups), (0, channels)), 0)
    builder.add(tensor_multiply(masked.whole(), every, select, "vector"))
    compact = builder.allocate("dw_own", (rows, first, second, channels), dtype, "sbuf")
    dst = compact.pattern(((cells * channels, rows), (channels, cells), (1, channels)), 0)
    src = masked.pattern(((row, rows), (columns, cells), (1, channels), (channels, groups)), 0)
    builder.add(reduce_last(dst, src))
    return compact
