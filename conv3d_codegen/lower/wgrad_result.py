# SPDX-License-Identifier: Apache-2.0
"""Rounds complete sums of dw and stores them in the order of the filters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from conv3d_codegen.dtypes import dtype
from conv3d_codegen.lower.channels_last import MIN_TURNED_BYTES
from conv3d_codegen.lower.cores import add_other_core
from conv3d_codegen.lower.groups import gather
from conv3d_codegen.lower.tensors import Block, TapRun
from conv3d_codegen.planner.blocks import split_upto
from conv3d_codegen.program.instructions import dma_copy, transpose
from conv3d_codegen.program.program import PSUM_BANK_BYTES
from conv3d_codegen.program.views import SliceView, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from conv3d_codegen.lower.builder import Builder
    from conv3d_codegen.lower.tap_chains import Chain
    from conv3d_codegen.lower.tap_rows import TapRows
    from conv3d_codegen.lower.tensors import FilterTensor
    from conv3d_codegen.planner.correlation import CorrelationAxis
    from conv3d_codegen.planner.schedule import Side
    from conv3d_codegen.program.views import Buffer

T = TypeVar("T")
Range = tuple[int, int]
Cell = tuple[tuple[int, int, int], tuple[int, int, int]]
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
        rounded = self.builder.allocate("dw_out", chain.shape, to_dtype, "sbuf")
        self.builder.copy(rounded.whole(), total.whole())
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
            own = self._rounded(chain, total, self.out_dtype)
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
        width = chain.stationary[1] - chain.stationary[0]
        block = self._block(chain.stationary, chain.moving)
        for taps, (packed, first, second) in chain.cells():
            dst = self.dw.tap(block, self._filter_tap(taps))
            rows = slice(packed * width, (packed + 1) * width)
            self.builder.add(dma_copy(dst, rounded[rows, first, second, :]))

    def _store_turned(self, chain: Chain, rounded: Buffer, channels: Range) -> None:
        """[taps · c_out, taps, c_in] → [taps · c_in, taps · c_out]: few channels leave room for several taps."""
        width = channels[1] - channels[0]
        columns, first_run, second_run, moving = chain.shape
        flat = self.builder.alias(rounded, (columns, first_run * second_run * moving))
        by_cell: dict[tuple[int, int], list[Cell]] = {}
        for taps, cell in chain.cells():
            by_cell.setdefault(cell[1:], []).append((taps, cell))
        together = 128 // width if width == moving else 1
        groups = batched(sorted(by_cell.items(), key=itemgetter(0)), together)
        per_bank = PSUM_BANK_BYTES // (columns * dtype(rounded.dtype).bytes)
        for _, alike in groupby(groups, len):
            for batch in batched(alike, per_bank):
                rows = len(batch[0]) * width
                shape = (rows, len(batch), columns)
                landing = self.builder.allocate("t_ps", shape, rounded.dtype, "psum")
                for position, group in enumerate(batch):
                    first, second = group[0][0]
                    start = (first * second_run + second) * moving + channels[0] - chain.moving[0]
                    data = flat[:, start : start + rows]
                    self.builder.add(transpose(landing[:, position, :], data))
                turned = self.builder.allocate("dw_turned", shape, self.out_dtype, "sbuf")
                self.builder.copy(turned.whole(), landing.whole())
                for position, group in enumerate(batch):
                    for number, (_, members) in enumerate(group):
                        rows_of_tap = slice(number * width, (number + 1) * width)
                        source = turned[rows_of_tap, position, :]
                        self._store_columns(chain, channels, source, members)

    def _store_columns(
        self, chain: Chain, channels: Range, turned: SliceView, members: Sequence[Cell]
    ) -> None:
        """Store the taps that lie beside each other in one turned cell: [c_in, taps · c_out]."""
        width = chain.stationary[1] - chain.stationary[0]
        block = self._block(chain.stationary, channels)
        rows, position, _ = turned.index
        for taps, (packed, _, _) in members:
            dst = self.dw.tap(block, self._filter_tap(taps))
            columns = Span(packed * width, (packed + 1) * width)
            self.builder.add(dma_copy(dst, SliceView(turned.buffer, (rows, position, columns))))


def batched(items: Iterable[T], size: int) -> Iterator[tuple[T, ...]]:
    """Cut a sequence into tuples of `size`; the last one may be shorter."""
    iterator = iter(items)
    while batch := tuple(islice(iterator, size)):
        yield batch
