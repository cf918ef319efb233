# SPDX-License-Identifier: Apache-2.0
"""Chains of dw with several rows of H beside the stationary channels, for tensors of few channels.

One matmul multiplies neighbouring rows of the stationary tensor with all rows of the moving one that any of their taps
reach, so that a column serves several positions:

    [(row, channel), tap of W, tap of D, (reached row, channel)]

Row r meets tap t of H in the reached row (r · stride + t · dilation) / unit. dw is the sum over r of these products;
those of rows that no tap connects are never read. The sums of different rows lie on different partitions, where only
DMA can bring them together.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from conv3d_codegen.lower.opening import open_with_zeros
from conv3d_codegen.planner.blocks import split_upto
from conv3d_codegen.program.instructions import dma_copy, matmul, tensor_add

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conv3d_codegen.lower.builder import Builder
    from conv3d_codegen.lower.tap_chains import Chain
    from conv3d_codegen.lower.turned import Turned
    from conv3d_codegen.planner.correlation import CorrelationAxis
    from conv3d_codegen.program.views import Buffer, SliceView

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Product:
    """One matmul: entries of (N, D, H, W), rows of H from there on, and the taps and reached rows that exist."""

    entry: tuple[int, int, int, int]
    rows: int
    depth: Range
    width: Range
    reached: Range

    def covers(self, chain: Chain) -> bool:
        """Whether it writes the chain's whole region."""
        whole = chain.rows, chain.taps[0], chain.taps[2], (0, chain.reach)
        return (self.rows, self.depth, self.width, self.reached) == whole


@dataclass(frozen=True, slots=True)
class RowPairs:
    """Contracts chains of rows, and takes dw out of their sums."""

    builder: Builder
    axes: tuple[CorrelationAxis, CorrelationAxis, CorrelationAxis]

    def contract(self, stationary: Turned, moving: Turned, chain: Chain, landing: Buffer) -> None:
        """All matmuls of one chain over one slab."""
        products = list(self._products(stationary, moving, chain))
        first = next((found for found in products if found.covers(chain)), None)
        if first is None:
            open_with_zeros(self.builder, landing)
        else:
            products.remove(first)
            products.insert(0, first)
        for found in products:
            self._multiply(stationary, moving, chain, landing, found, accumulate=found is not first)

    def _products(self, stationary: Turned, moving: Turned, chain: Chain) -> Iterator[_Product]:
        """Yield the matmuls that add anything."""
        n, d, h, w = (
            range(min(s.entries, m.entries))
            for s, m in zip(stationary.spreads, moving.spreads, strict=True)
        )
        depth, height, width = self.axes
        _, d_rows, h_rows, w_rows = moving.spreads
        for sample, plane, (row, stop), column in product(
            n, d, list(split_upto((0, len(h)), chain.rows)), w
        ):
            rows = stop - row
            taps_d = d_rows.existing(
                chain.taps[0], d_rows.low + plane * depth.stride, depth.dilation
            )
            taps_w = w_rows.existing(
                chain.taps[2], w_rows.low + column * width.stride, width.dilation
            )
            reach = 0, height.reach(rows)
            reached = h_rows.existing(reach, h_rows.low + row * height.stride, h_rows.unit)
            if all(low < high for low, high in (taps_d, taps_w, reached)):
                yield _Product((sample, plane, row, column), rows, taps_d, taps_w, reached)

    def _multiply(
        self,
        stationary: Turned,
        moving: Turned,
        chain: Chain,
        landing: Buffer,
        found: _Product,
        *,
        accumulate: bool,
    ) -> None:
        depth, height, width = self.axes
        sample, plane, row, column = found.entry
        still = stationary.columns(
            self.builder, (sample, plane, slice(row, row + found.rows), column), chain.stationary
        )
        first = row * height.stride // moving.spreads[2].unit
        streamed = moving.row_columns(
            self.builder,
            sample,
            depth.entries(plane, found.depth, moving.spreads[1].unit),
            slice(first + found.reached[0], first + found.reached[1]),
            width.entries(column, found.width, moving.spreads[3].unit),
        )
        channels = chain.moving[1] - chain.moving[0]
        columns = found.rows * (chain.stationary[1] - chain.stationary[0])
        low, high = found.reached
        dst = landing[
            0:columns,
            slice(found.width[0] - chain.taps[2][0], found.width[1] - chain.taps[2][0]),
            slice(found.depth[0] - chain.taps[0][0], found.depth[1] - chain.taps[0][0]),
            low * channels : high * channels,
        ]
        self.builder.add(matmul(dst, still, streamed, accumulate=accumulate))

    def results(self, chain: Chain, total: Buffer) -> Iterator[tuple[Chain, Buffer]]:
        """Add up what the rows have of each tap: (chain of one tap of D, its sums in SBUF)."""
        rows = self._side_by_side(chain, total)
        height = self.axes[1]
        unit, step = height.unit(chain.rows), height.dilation
        for number, part in enumerate(chain.by_depth()):
            sums = self.builder.allocate("dw_sum", part.shape, "fp32", "sbuf")
            read: list[SliceView] = []
            for row, buffer in enumerate(rows):
                first = row * height.stride // unit
                last = first + (height.kernel - 1) * step // unit
                taps = slice(first, last + 1, max(1, step // unit))
                read.append(buffer[: part.shape[0], :, number, taps, :])
            self.builder.add(tensor_add(sums.whole(), read[0], read[1], "vector"))
            for more in read[2:]:
                self.builder.add(tensor_add(sums.whole(), sums.whole(), more, "vector"))
            yield part, sums

    def _side_by_side(self, chain: Chain, total: Buffer) -> list[Buffer]:
        """[rows · channels, …] → from each row on [channels, taps of W, taps of D, reached rows, channels]."""
        width, moving = (high - low for low, high in (chain.stationary, chain.moving))
        if total.space == "psum":
            held = self.builder.allocate("dw_sum", total.shape, "fp32", "sbuf")
            self.builder.copy(held.whole(), total.whole())
            total = held
        _, k_w, k_d, _ = total.shape
        self.builder.comment("the sums of different rows, side by side")
        shape = k_w, k_d, chain.reach, moving
        found = [self.builder.alias(total, (total.shape[0], *shape))]  # begins with the first row
        for row in range(1, chain.rows):
            part = self.builder.allocate("dw_row", (width, *total.shape[1:]), "fp32", "sbuf")
            src = total[row * width : (row + 1) * width]
            self.builder.add(dma_copy(part.whole(), src))
            found.append(self.builder.alias(part, (width, *shape)))
        return found
