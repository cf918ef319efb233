# SPDX-License-Identifier: Apache-2.0
"""Cutting ranges into pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def ceil_div(value: int, divisor: int) -> int:
    """Round the quotient up."""
    return -(-value // divisor)


def split_even(extent: int, limit: int) -> int:
    """Size of the pieces when extent is cut into as few, as equal pieces of at most limit as possible."""
    return ceil_div(extent, ceil_div(extent, max(1, min(limit, extent))))


def split_upto(extent: tuple[int, int], size: int) -> Iterator[tuple[int, int]]:
    """Cut [low, high) into pieces of size; the last one may be shorter."""
    low, high = extent
    for start in range(low, high, size):
        yield start, min(start + size, high)


def channel_blocks(channels: int, limit: int) -> tuple[tuple[int, int], ...]:
    """Cut channels into pieces of at most limit, full ones first."""
    return tuple(split_upto((0, channels), min(limit, channels)))
