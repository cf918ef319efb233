# SPDX-License-Identifier: Apache-2.0
"""Cutting ranges into pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PARTITIONS = 128  # of SBUF, and rows and columns of the PE array: AWS NKI architecture guides
BANK_COLUMNS = 512  # fp32 columns of a PSUM bank, and the widest moving operand of trn2

# Bytes of a transfer that is not worth cutting further: 0.35 us of trn2's whole DMA rate, less than its latency.
PIECE_BYTES = 128 * 1024
MOST_PIECES = 4  # per slab: more of them would make text longer, and hide little more


def ceil_div(value: int, divisor: int) -> int:
    """Round the quotient up."""
    return -(-value // divisor)


def split_even(extent: int, limit: int) -> int:
    """Size of the pieces when extent is cut into as few, as equal pieces of at most limit as possible."""
    return ceil_div(extent, ceil_div(extent, max(1, min(limit, extent))))


def cut_count(windows: int, reached: int, size: int) -> int:
    """How many slabs of so many windows an axis has; the last one also takes the few rows that lie beyond.

    reached: windows that there would be if every row had one. Where many rows lie beyond, they are slabs of their own.
    """
    whole = max(1, ceil_div(windows, size))
    beyond = reached - whole * size
    return whole if 2 * beyond <= size else ceil_div(reached, size)


def split_upto(extent: tuple[int, int], size: int) -> Iterator[tuple[int, int]]:
    """Cut [low, high) into pieces of size; the last one may be shorter."""
    low, high = extent
    for start in range(low, high, size):
        yield start, min(start + size, high)


def row_cuts(taps: tuple[int, int], columns: int) -> tuple[int, int]:
    """How many taps of D and of W fit one bank together, each with so many columns of rows and channels."""
    depth, width = taps
    w = split_even(width, BANK_COLUMNS // columns)
    return split_even(depth, BANK_COLUMNS // (columns * w)) if w == width else 1, w


def channel_blocks(channels: int, limit: int) -> tuple[tuple[int, int], ...]:
    """Cut channels into pieces of at most limit, full ones first."""
    return tuple(split_upto((0, channels), min(limit, channels)))


def even_pieces(extent: int, unit: int, unit_bytes: int) -> int:
    """Size of the pieces, in multiples of unit, that an extent is moved in: few, and none of them short.

    unit_bytes: of one unit in all partitions of a transfer.
    """
    units = ceil_div(extent, unit)
    return max(ceil_div(PIECE_BYTES, max(1, unit_bytes)), ceil_div(units, MOST_PIECES)) * unit


def piece_count(transfer_bytes: float) -> int:
    """Into about how many pieces `even_pieces` cuts what one transfer could move."""
    return max(1, min(MOST_PIECES, int(transfer_bytes // PIECE_BYTES)))
