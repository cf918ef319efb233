# SPDX-License-Identifier: Apache-2.0
"""Rounds complete sums of dw and stores them, c_out innermost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from conv3d_codegen.dtypes import dtype
from conv3d_codegen.plan.blocks import split_upto
from conv3d_codegen.program.instructions import dma_copy, transpose
from conv3d_codegen.program.program import PSUM_BANK_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conv3d_codegen.lower.builder import Builder
    from conv3d_codegen.lower.tap_chains import Chain
    from conv3d_codegen.plan.correlation import CorrelationAxis
    from conv3d_codegen.program.views import Buffer

Range = tuple[int, int]
Cell = tuple[tuple[int, int, int], tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class ResultWriter:
    """Writes chains to dw [K_d, K_h, K_w, C_in, C_out].

    stationary_is_in: whether the chains' partitions are input channels, the order that dw has.
    """

    builder: Builder
    axes: tuple[CorrelationAxis, CorrelationAxis, CorrelationAxis]
    dw: Buffer
    out_dtype: str
    stationary_is_in: bool

    def write(self, chain: Chain, total: Buffer) -> None:
        """Round a complete chain, in PSUM or SBUF, and store it."""
        rounded = self.builder.allocate("dw_out", chain.shape, self.out_dtype, "sbuf")
        self.builder.copy(rounded.whole(), total.whole())
        if self.stationary_is_in:
            self._store_rows(chain, rounded)
            return
        for channels in split_upto(chain.moving, 128):
            self._store_turned(chain, rounded, channels)

    def _filter_tap(self, taps: tuple[int, int, int]) -> tuple[int, int, int]:
        d, h, w = (axis.filter_tap(tap) for axis, tap in zip(self.axes, taps, strict=True))
        return d, h, w

    def _store_rows(self, chain: Chain, rounded: Buffer) -> None:
        width = chain.stationary[1] - chain.stationary[0]
        for taps, (packed, first, second) in chain.cells():
            dst = self.dw[
                (*self._filter_tap(taps), slice(*chain.stationary), slice(*chain.moving))
            ]
            rows = slice(packed * width, (packed + 1) * width)
            self.builder.add(dma_copy(dst, rounded[rows, first, second, :]))

    def _store_turned(self, chain: Chain, rounded: Buffer, channels: Range) -> None:
        """[taps · c_out, taps, c_in] → [c_in, taps, taps · c_out], as many taps per PSUM bank as fit."""
        columns = chain.shape[0]
        span = slice(channels[0] - chain.moving[0], channels[1] - chain.moving[0])
        per_bank = PSUM_BANK_BYTES // (columns * dtype(self.out_dtype).bytes)
        by_cell: dict[tuple[int, int], list[Cell]] = {}
        for taps, cell in chain.cells():
            by_cell.setdefault(cell[1:], []).append((taps, cell))
        cells = list(by_cell.items())
        for start in range(0, len(cells), per_bank):
            batch = cells[start : start + per_bank]
            shape = (channels[1] - channels[0], len(batch), columns)
            landing = self.builder.allocate("t_ps", shape, self.out_dtype, "psum")
            for position, ((first, second), _) in enumerate(batch):
                data = rounded[:, first, second, span]
                self.builder.add(transpose(landing[:, position, :], data))
            turned = self.builder.allocate("dw_turned", shape, self.out_dtype, "sbuf")
            self.builder.copy(turned.whole(), landing.whole())
            for position, (_, members) in enumerate(batch):
                self._store_columns(chain, channels, turned, (position, members))

    def _store_columns(
        self, chain: Chain, channels: Range, turned: Buffer, placed: tuple[int, Sequence[Cell]]
    ) -> None:
        position, members = placed
        width = chain.stationary[1] - chain.stationary[0]
        for taps, (packed, _, _) in members:
            dst = self.dw[(*self._filter_tap(taps), slice(*channels), slice(*chain.stationary))]
            columns = slice(packed * width, (packed + 1) * width)
            self.builder.add(dma_copy(dst, turned[:, position, columns]))
