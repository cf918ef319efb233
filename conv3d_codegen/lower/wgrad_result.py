# SPDX-License-Identifier: Apache-2.0
"""Rounds complete sums of dw and stores them in the order of the filters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from conv3d_codegen.dtypes import dtype
from conv3d_codegen.lower.channels_last import MIN_TURNED_BYTES
from conv3d_codegen.lower.cores import add_other_core
from conv3d_codegen.lower.groups import gather
from conv3d_codegen.lower.tensors import Block, TapRun
from conv3d_codegen.planner.blocks import split_upto
from conv3d_codegen.program.instructions import dma_copy, transpose
from conv3d_codegen.program.program import PSUM_BANK_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from conv3d_codegen.lower.builder import Builder
    from conv3d_codegen.lower.tap_chains import Chain
    from conv3d_codegen.lower.tap_rows import TapRows
    from conv3d_codegen.lower.tensors import FilterTensor
    from conv3d_codegen.planner.correlation import CorrelationAxis
    from conv3d_codegen.planner.schedule import Side
    from conv3d_codegen.program.views import Buffer, View

T = TypeVar("T")
Range = tuple[int, int]

WIDTH = 2  # number of the axis W
Finish: TypeAlias = "Callable[[], None]"


@dataclass(frozen=True, slots=True)
class ResultWriter:
    """Writes chains to dw.

    stationary: the side that lies on the chains' partitions.
    exchanges: whether the other core has the rest of each sum.
    tap_rows: gathers rows whose taps are innermost in HBM.
    """

    builder: Builder
    axes: tuple[CorrelationAxis, CorrelationAxis, CorrelationAxis]
    dw: FilterTensor
    out_dtype: str
    stationary: Side
    exchanges: bool
    tap_rows: TapRows

    def write(self, chain: Chain, total: Buffer) -> Finish | None:
        """Round a complete chain, in PSUM or SBUF, and store it.

        Where the tensor engine has to turn it first, that is left to the caller: rounding takes a while.
        """
        if self.exchanges:
            total = add_other_core(self.builder, total)
        if not self.dw.is_dense:
            self._write_groups(chain, total)
            return None
        if self.dw.taps_last and self.stationary == "narrow" and self.tap_rows.take(chain):
            cells = ((self._filter_tap(taps), cell) for taps, cell in chain.cells())
            self.tap_rows.add(chain, total, cells)
            return None
        if self.stationary == self.dw.rows:
            self._store_rows(chain, self._rounded(chain, total, self.out_dtype))
            return None
        # The tensor engine turns 16 and 32 bits; a narrower result is rounded on its way out.
        is_narrow = dtype(self.out_dtype).bytes < MIN_TURNED_BYTES
        rounded = self._rounded(chain, total, "fp32" if is_narrow else self.out_dtype)
        return partial(self._store_all_turned, chain, rounded)

    def _store_all_turned(self, chain: Chain, rounded: Buffer) -> None:
        for channels in split_upto(chain.moving, 128):
            self._store_turned(chain, rounded, channels)

    def _rounded(self, chain: Chain, total: Buffer, to_dtype: str) -> Buffer:
        """Round a chain's sums: [packed taps · channels, cells, others], cells in the order of dw's taps."""
        columns, first, second, moving = chain.shape
        shape = (columns, first * second, moving)
        rounded = self.builder.allocate("dw_out", shape, to_dtype, "sbuf")
        steps = (second * moving, moving)
        if chain.running[0] == WIDTH:  # outermost in the sums, innermost in dw
            steps = (moving, first * moving)
        pairs = ((math.prod(shape[1:]), columns), (steps[0], first), (steps[1], second))
        self.builder.copy(rounded.pattern((*pairs, (1, moving)), 0), total.whole())
        return rounded

    def _block(self, stationary: Range, moving: Range) -> Block:
        wide, narrow = (stationary, moving) if self.stationary == "wide" else (moving, stationary)
        return Block(wide, narrow)

    def _write_groups(self, chain: Chain, total: Buffer) -> None:
        """Store what rows and columns of one group have together.

        Where one transfer can store the rows of all groups, their columns are brought together first.
        """
        groups = self.dw.groups[1] - self.dw.groups[0]
        gathers = self.dw.are_even(self.stationary)
        if gathers:
            own = gather(self.builder, total, groups, chain.packed_taps, self.out_dtype)
        else:
            own = self.builder.allocate("dw_out", chain.shape, self.out_dtype, "sbuf")
            self.builder.copy(own.whole(), total.whole())
        width = own.shape[0] // chain.packed_taps
        columns = own.shape[3] if gathers else own.shape[3] // groups
        for taps, (packed, first, second), runs in self._runs(chain):
            cells = (
                slice(first, first + runs[0].taps),
                slice(second, second + runs[1].taps),
            )
            for (low, high), dst in self.dw.compact(self.stationary, self._filter_tap(taps), runs):
                rows = slice(packed * width + low, packed * width + high)
                column = 0 if gathers else low * groups // width * columns
                span = slice(column, column + columns)
                self.builder.add(dma_copy(dst, own[(rows, *cells, span)]))

    def _runs(
        self, chain: Chain
    ) -> Iterator[tuple[tuple[int, int, int], tuple[int, int, int], tuple[TapRun, TapRun]]]:
        """First taps, cells and (axis, taps) runs of what is uniform in dw: taps that are not in reverse."""
        lengths = [
            1 if self.axes[axis].shifted == "narrow" else chain.taps[axis][1] - chain.taps[axis][0]
            for axis in chain.running
        ]
        runs = TapRun(chain.running[0], lengths[0]), TapRun(chain.running[1], lengths[1])
        for taps, (packed, first, second) in chain.cells():
            if first % lengths[0] == 0 and second % lengths[1] == 0:
                yield taps, (packed, first, second), runs

    def _filter_tap(self, taps: tuple[int, int, int]) -> tuple[int, int, int]:
        d, h, w = (axis.filter_tap(tap) for axis, tap in zip(self.axes, taps, strict=True))
        return d, h, w

    def _store_rows(self, chain: Chain, rounded: Buffer) -> None:
        """Store neighbouring taps of dw together, [rows, taps, others]."""
        width = chain.stationary[1] - chain.stationary[0]
        block = self._block(chain.stationary, chain.moving)
        for packed, taps in enumerate(self._taps(chain)):
            rows = slice(packed * width, (packed + 1) * width)
            for start, stop in self._runs_of(taps):
                cells = start if stop - start == 1 else slice(start, stop)
                dst = self.dw.neighbours(block, taps[start], stop - start)
                self.builder.add(dma_copy(dst, rounded[rows, cells, :]))

    def _taps(self, chain: Chain) -> list[list[int]]:
        """List the numbers of the taps of dw that a chain's cells are, for each packed tap."""
        found: list[list[int]] = [[] for _ in range(chain.packed_taps)]
        for taps, (packed, _, _) in chain.cells():
            found[packed].append(self.dw.tap_number(self._filter_tap(taps)))
        return found

    def _runs_of(self, taps: Sequence[int]) -> Iterator[Range]:
        """Cut cells into runs that are neighbours in dw, unless its taps are innermost."""
        start = 0
        for stop in range(1, len(taps) + 1):
            if stop == len(taps) or self.dw.taps_last or taps[stop] != taps[stop - 1] + 1:
                yield start, stop
                start = stop

    def _store_turned(self, chain: Chain, rounded: Buffer, channels: Range) -> None:
        """[taps · c_out, cells, c_in] → [cells · c_in, taps · c_out]: few channels leave room for several cells."""
        width = channels[1] - channels[0]
        columns, cells, moving = rounded.shape
        flat = self.builder.alias(rounded, (columns, cells * moving))
        together = 128 // width if width == moving else 1
        groups = split_upto((0, cells), together)
        per_bank = PSUM_BANK_BYTES // (columns * dtype(rounded.dtype).bytes)
        for _, alike in groupby(groups, lambda group: group[1] - group[0]):
            for batch in batched(alike, per_bank):
                rows = (batch[0][1] - batch[0][0]) * width
                shape = (rows, len(batch), columns)
                landing = self.builder.allocate("t_ps", shape, rounded.dtype, "psum")
                for position, (first, _) in enumerate(batch):
                    start = first * moving + channels[0] - chain.moving[0]
                    data = flat[:, start : start + rows]
                    self.builder.add(transpose(landing[:, position, :], data))
                turned = self.builder.allocate("dw_turned", shape, self.out_dtype, "sbuf")
                self.builder.copy(turned.whole(), landing.whole())
                self._store_batch(chain, channels, turned, batch)

    def _store_batch(
        self, chain: Chain, channels: Range, turned: Buffer, batch: Sequence[Range]
    ) -> None:
        """Store groups of cells, each turned to [cells · c_in, taps · c_out]; neighbouring taps of dw together."""
        block = self._block(chain.stationary, channels)
        width = chain.stationary[1] - chain.stationary[0]
        height, first = channels[1] - channels[0], batch[0][0]
        for packed, taps in enumerate(self._taps(chain)):
            columns = slice(packed * width, (packed + 1) * width)
            if batch[0][1] - first == 1:
                for start, stop in self._runs_of(taps[first : batch[-1][1]]):
                    position = start if stop - start == 1 else slice(start, stop)
                    dst = self.dw.neighbours(block, taps[first + start], stop - start)
                    self.builder.add(dma_copy(dst, turned[:, position, columns]))
                continue
            for position, (low, high) in enumerate(batch):
                for dst, start, stop in self._joined(block, taps[low:high]):
                    rows = slice(start * height, stop * height)
                    self.builder.add(dma_copy(dst, turned[rows, position, columns]))

    def _joined(self, block: Block, taps: Sequence[int]) -> Iterator[tuple[View, int, int]]:
        """Give (dw, first cell, stop) of cells below each other: together where their rows follow each other in dw."""
        for start, stop in self._runs_of(taps):
            joined = self.dw.joined_taps(block, taps[start], stop - start)
            if joined is not None:
                yield joined, start, stop
                continue
            for cell in range(start, stop):
                yield self.dw.neighbours(block, taps[cell], 1), cell, cell + 1


def batched(items: Iterable[T], size: int) -> Iterator[tuple[T, ...]]:
    """Cut a sequence into tuples of `size`; the last one may be shorter."""
    iterator = iter(items)
    while batch := tuple(islice(iterator, size)):
        yield batch
