# SPDX-License-Identifier: Apache-2.0
"""dw: positions on partitions, every tap an offset of the halo tensor, sums kept in PSUM for a whole slab.

One matmul contracts up to 128 positions: stationary is the owner tensor's channels at one entry, moving the halo
tensor's channels at the entries of several taps. The result region of a chain of such matmuls is
[owner channels, taps, taps, halo channels] in one PSUM bank; a slab's chains are evicted once and, over several slabs,
added up in SBUF in fp32. The sum is rounded once, when it is complete.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING

from conv3d_codegen.lower.turned import Spread, turn
from conv3d_codegen.lower.windows import Box
from conv3d_codegen.plan.blocks import ceil_div, channel_blocks, split_even, split_upto
from conv3d_codegen.dtypes import dtype
from conv3d_codegen.program.instructions import dma_copy, matmul, tensor_add, transpose
from conv3d_codegen.program.program import PSUM_BANK_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from conv3d_codegen.lower.builder import Builder
    from conv3d_codegen.lower.turned import Turned
    from conv3d_codegen.lower.windows import Window
    from conv3d_codegen.plan.correlation import CorrelationAxis
    from conv3d_codegen.plan.schedule import WgradPlan
    from conv3d_codegen.program.views import Buffer

Range = tuple[int, int]
Spreads = tuple[Spread, Spread, Spread, Spread]

CHAIN_COLUMNS = 512  # fp32 columns of one PSUM bank, and the widest moving operand of trn2
OPEN_CHAINS = 4  # PSUM banks for chains; the others serve transposes and dx tiles


@dataclass(frozen=True, slots=True)
class Chain:
    """One PSUM accumulation: owner channels × (taps of D, H, W) × halo channels."""

    owner: Range
    halo: Range
    taps: tuple[Range, Range, Range]

    @property
    def fixed(self) -> int:
        """The axis of which the chain has a single tap; W where there is a choice."""
        return next(axis for axis in (2, 0, 1) if self.taps[axis][1] - self.taps[axis][0] == 1)

    @property
    def running(self) -> tuple[int, int]:
        """The other two axes, in the order of the turned buffer's free dims."""
        first, second = (axis for axis in (2, 0, 1) if axis != self.fixed)
        return first, second

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """[owner channels, taps of the first running axis, of the second, halo channels]."""
        first, second = (self.taps[axis][1] - self.taps[axis][0] for axis in self.running)
        return self.owner[1] - self.owner[0], first, second, self.halo[1] - self.halo[0]


@dataclass(frozen=True, slots=True)
class Operands:
    """The turned tensors of one slab and the maths between their entries."""

    owner: Turned
    halo: Turned


@dataclass(slots=True)
class WgradLowering:
    """Emits dw: partial sums slab by slab, then the result."""

    builder: Builder
    plan: WgradPlan
    axes: tuple[CorrelationAxis, CorrelationAxis, CorrelationAxis]
    dw: Buffer
    out_dtype: str
    channels: tuple[int, int]
    sums: dict[Chain, Buffer] = field(default_factory=dict)

    def spreads(self, owner: Box) -> tuple[Spreads, Spreads]:
        """How a slab of owner positions lies on partitions: (owner, halo) spreads of N, D, H, W."""
        own, halo = [], []
        for (low, high), length, axis in zip(
            owner.ranges, self.plan.lengths, (None, *self.axes), strict=True
        ):
            extent = high - low
            entries = min(length or extent, extent)
            groups = ceil_div(extent, entries)
            size = high if axis is None else axis.owner_size
            own.append(Spread(low, groups, entries, 1, entries, size))
            if axis is None:
                halo.append(own[-1])
                continue
            unit = halo_unit(axis, entries)
            reach = (entries - 1) * axis.stride + (axis.kernel - 1) * axis.dilation
            halo.append(
                Spread(
                    low * axis.stride - axis.pad,
                    groups,
                    entries * axis.stride,
                    unit,
                    reach // unit + 1,
                    axis.halo_size,
                )
            )
        return (own[0], own[1], own[2], own[3]), (halo[0], halo[1], halo[2], halo[3])

    def boxes(self, owner: Box) -> tuple[Box, Box]:
        """Rows of the owner and of the halo tensor to load for one slab."""
        own, halo = self.spreads(owner)
        return Box(*(spread.window for spread in own)), Box(*(spread.window for spread in halo))

    def contracts(self, owner: Box) -> bool:
        """Whether a slab adds anything to dw."""
        return not owner.is_empty and not self.boxes(owner)[1].is_empty

    def store_zeros(self, chains: Sequence[Chain]) -> None:
        """Store dw where no tap reads any row."""
        for chain in chains:
            total = self.builder.allocate("dw_zero", chain.shape, "fp32", "sbuf")
            self.builder.zero(total.whole())
            self._finish(chain, total)

    def chains(self) -> tuple[Chain, ...]:
        """All accumulations of dw, chains that share a stationary operand next to each other."""
        found = []
        owner_channels, halo_channels = self.channels
        halos = channel_blocks(halo_channels, split_even(halo_channels, CHAIN_COLUMNS))
        for owner in channel_blocks(owner_channels, 128):
            for halo in halos:
                for taps in tap_runs(self.axes, halo[1] - halo[0]):
                    found.append(Chain(owner, halo, taps))
        return tuple(found)

    def slab(
        self,
        owner: Box,
        windows: tuple[Sequence[Window], Sequence[Window]],
        chains: Sequence[Chain],
        *,
        last: bool,
    ) -> None:
        """Contract one slab: windows are (owner, halo) windows per channel block."""
        own_spreads, halo_spreads = self.spreads(owner)
        needs_zero = any(
            self._full_position(chain, own_spreads, halo_spreads) is None for chain in chains
        )
        operands = Operands(
            turn(self.builder, "own_t", windows[0], own_spreads, zero_outside=False),
            turn(self.builder, "halo_t", windows[1], halo_spreads, zero_outside=needs_zero),
        )
        for start in range(0, len(chains), OPEN_CHAINS):
            group = chains[start : start + OPEN_CHAINS]
            landings = [
                self.builder.allocate("dw_ps", chain.shape, "fp32", "psum") for chain in group
            ]
            for chain, landing in zip(group, landings, strict=True):
                self._contract(operands, chain, landing)
            for chain, landing in zip(group, landings, strict=True):
                self._add_up(chain, landing, last=last)

    def _contract(self, operands: Operands, chain: Chain, landing: Buffer) -> None:
        """All matmuls of one chain; the first one writes the whole region."""
        spreads = operands.owner.spreads, operands.halo.spreads
        positions = list(product(*(range(spread.entries) for spread in spreads[0])))
        full = self._full_position(chain, *spreads)
        if full is not None:
            positions.remove(full)
            positions.insert(0, full)
        opened = False
        for position in positions:
            taps = chain.taps if not opened else self._valid(chain, position, spreads[1])
            if all(first < stop for first, stop in taps):
                self._multiply(operands, chain, landing, position, taps, accumulate=opened)
                opened = True

    def _multiply(
        self,
        operands: Operands,
        chain: Chain,
        landing: Buffer,
        position: tuple[int, ...],
        taps: tuple[Range, Range, Range],
        *,
        accumulate: bool,
    ) -> None:
        n, d, h, w = position
        stationary = operands.owner.view(n, d, h, w, chain.owner)
        runs: list[int | slice] = []
        for number, (axis, (first, stop), entry, spread) in enumerate(
            zip(self.axes, taps, (d, h, w), operands.halo.spreads[1:], strict=True)
        ):
            start = (entry * axis.stride + first * axis.dilation) // spread.unit
            if number == chain.fixed:
                runs.append(start)
                continue
            step = max(1, axis.dilation // spread.unit)
            runs.append(slice(start, start + (stop - 1 - first) * step + 1, step))
        moving = operands.halo.view(n, runs[0], runs[1], runs[2], chain.halo)
        cells = (
            slice(taps[axis][0] - chain.taps[axis][0], taps[axis][1] - chain.taps[axis][0])
            for axis in chain.running
        )
        dst = landing[(slice(None), *cells, slice(None))]
        self.builder.add(matmul(dst, stationary, moving, accumulate=accumulate))

    def _valid(
        self, chain: Chain, position: tuple[int, ...], halo: Spreads
    ) -> tuple[Range, Range, Range]:
        """Taps of the chain that read existing rows at one position."""
        found = []
        for axis, (first, stop), entry, spread in zip(
            self.axes, chain.taps, position[1:], halo[1:], strict=True
        ):
            if spread.groups == 1:
                row = spread.low + entry * axis.stride
                first = max(first, ceil_div(-row, axis.dilation))
                stop = min(stop, (axis.halo_size - 1 - row) // axis.dilation + 1)
            found.append((first, stop))
        return found[0], found[1], found[2]

    def _full_position(
        self, chain: Chain, own: Spreads, halo: Spreads
    ) -> tuple[int, int, int, int] | None:
        """A position at which every tap of the chain reads existing rows."""
        found = [0]
        for axis_index in range(3):
            for entry in range(own[axis_index + 1].entries):
                position = [0, 0, 0, 0]
                position[axis_index + 1] = entry
                if self._valid(chain, tuple(position), halo)[axis_index] == chain.taps[axis_index]:
                    found.append(entry)
                    break
            else:
                return None
        return found[0], found[1], found[2], found[3]

    def _add_up(self, chain: Chain, landing: Buffer, *, last: bool) -> None:
        """Evict a finished chain: keep, add to, or complete its sum."""
        total = self.sums.get(chain)
        if last and total is None:
            self._finish(chain, landing)
            return
        if total is None:
            total = self.builder.allocate("dw_sum", chain.shape, "fp32", "sbuf")
            self.sums[chain] = total
            self.builder.copy(total.whole(), landing.whole())
            return
        self.builder.add(tensor_add(total.whole(), total.whole(), landing.whole(), "vector"))
        if last:
            self._finish(chain, total)

    def _finish(self, chain: Chain, total: Buffer) -> None:
        """Round a complete chain and store it; filters want c_out innermost."""
        rounded = self.builder.allocate("dw_out", chain.shape, self.out_dtype, "sbuf")
        self.builder.copy(rounded.whole(), total.whole())
        if self.plan.halo == "dy":
            for tap, (i, j) in self._tap_cells(chain):
                dst = self.dw[(*tap, slice(*chain.owner), slice(*chain.halo))]
                self.builder.add(dma_copy(dst, rounded[:, i, j, :]))
            return
        cells = list(self._tap_cells(chain))
        for c_in in split_upto(chain.halo, 128):
            self._store_turned(chain, rounded, c_in, cells)

    def _store_turned(
        self,
        chain: Chain,
        rounded: Buffer,
        c_in: Range,
        cells: list[tuple[tuple[int, int, int], tuple[int, int]]],
    ) -> None:
        """[c_out, taps, c_in] → [c_in, taps, c_out], as many taps per PSUM bank as fit."""
        c_out = chain.owner[1] - chain.owner[0]
        width = c_in[1] - c_in[0]
        span = slice(c_in[0] - chain.halo[0], c_in[1] - chain.halo[0])
        per_bank = PSUM_BANK_BYTES // (c_out * dtype(self.out_dtype).bytes)
        for start in range(0, len(cells), per_bank):
            batch = cells[start : start + per_bank]
            shape = (width, len(batch), c_out)
            landing = self.builder.allocate("t_ps", shape, self.out_dtype, "psum")
            for position, (_, (i, j)) in enumerate(batch):
                self.builder.add(transpose(landing[:, position, :], rounded[:, i, j, span]))
            turned = self.builder.allocate("dw_turned", shape, self.out_dtype, "sbuf")
            self.builder.copy(turned.whole(), landing.whole())
            for position, (tap, _) in enumerate(batch):
                dst = self.dw[(*tap, slice(*c_in), slice(*chain.owner))]
                self.builder.add(dma_copy(dst, turned[:, position, :]))

    def _tap_cells(
        self, chain: Chain
    ) -> Iterator[tuple[tuple[int, int, int], tuple[int, int]]]:
        """Filter tap and cell of the chain's region, for every tap of the chain."""
        for taps in product(*(range(*run) for run in chain.taps)):
            cell = [taps[axis] - chain.taps[axis][0] for axis in chain.running]
            d, h, w = (
                axis.filter_tap(tap) for axis, tap in zip(self.axes, taps, strict=True)
            )
            yield (d, h, w), (cell[0], cell[1])


def halo_unit(axis: CorrelationAxis, entries: int) -> int:
    """Distance in rows between neighbouring entries of the halo tensor that any tap reads."""
    steps = [axis.stride] if entries > 1 else []
    if axis.kernel > 1:
        steps.append(axis.dilation)
    return math.gcd(*steps) or 1


def tap_runs(
    axes: tuple[CorrelationAxis, CorrelationAxis, CorrelationAxis], channels: int
) -> Iterator[tuple[Range, Range, Range]]:
    """Cut the taps so that each run times the channels fits a bank; one axis is fixed, two run."""
    fixed = min((2, 0, 1), key=lambda axis: axes[axis].kernel)
    limit = max(1, CHAIN_COLUMNS // channels)
    sizes = [1, 1, 1]
    for axis in (1, 0, 2):
        if axis != fixed:
            sizes[axis] = split_even(axes[axis].kernel, limit)
            if sizes[axis] < axes[axis].kernel:
                break
            limit = max(1, limit // sizes[axis])
    cuts = [split_upto((0, axis.kernel), size) for axis, size in zip(axes, sizes, strict=True)]
    for d, h, w in product(*(list(cut) for cut in cuts)):
        yield d, h, w
