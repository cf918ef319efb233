# SPDX-License-Identifier: Apache-2.0
"""Per-element state of a tensor, kept once for all partitions that share it.

All partitions of an operand follow one free pattern, so that a state such as "written" is nearly
always the same for a whole range of partitions. A `CellMap` keeps one row per such range and splits
a row when an access covers part of it: checks cost what one partition costs.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from conv3d_codegen.simulator.element_types import Cells


class Region(NamedTuple):
    """Elements of a tensor: a range of partitions and a strided pattern along the free axis."""

    first_partition: int
    end_partition: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def elements(self) -> int:
        """How many elements it names."""
        count = self.end_partition - self.first_partition
        for extent in self.shape:
            count *= extent
        return count


class CellMap:
    """A table of one value per (partition range, free element)."""

    __slots__ = ("_bounds", "_dtype", "_table", "free")

    def __init__(self, partitions: int, free: int, dtype: Any, fill: Any = 0) -> None:
        self._bounds = [0, partitions]
        self._dtype = np.dtype(dtype)
        self._table = np.full((1, free), fill, self._dtype)
        self.free = free

    def view(self, region: Region) -> Cells:
        """Return the region's cells, one leading index per partition range; not a copy."""
        first, end, offset, shape, strides = region
        bounds = self._bounds
        row = 0 if first == 0 else self._row(first)
        end_row = len(bounds) - 1 if end == bounds[-1] else self._row(end)
        size = self._dtype.itemsize
        return np.ndarray(
            (end_row - row, *shape),
            self._dtype,
            self._table,
            (row * self.free + offset) * size,
            (self.free * size, *[stride * size for stride in strides]),
        )

    def fill(self, value: Any) -> None:
        """Set every cell."""
        self._table.fill(value)

    def rows(self) -> list[tuple[int, int, Cells]]:
        """All partition ranges with their cells."""
        return [
            (self._bounds[i], self._bounds[i + 1], self._table[i])
            for i in range(len(self._bounds) - 1)
        ]

    def count(self, value: Any) -> int:
        """How many elements, over all partitions, hold the value."""
        return sum(
            (end - first) * int(np.count_nonzero(cells == value))
            for first, end, cells in self.rows()
        )

    def merge(self, other: CellMap) -> None:
        """Set what is set in the other map, which has one partition range as this one has."""
        np.logical_or(self._table, other._table, out=self._table)

    def _row(self, partition: int) -> int:
        """Find the row that starts at this partition, splitting the one it lies in."""
        row = bisect_left(self._bounds, partition)
        if self._bounds[row] != partition:
            self._table = np.insert(self._table, row, self._table[row - 1], axis=0)
            self._bounds.insert(row, partition)
        return row
