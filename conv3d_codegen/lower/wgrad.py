# SPDX-License-Identifier: Apache-2.0
"""dw: positions on partitions, every tap an offset in the free dims, sums kept in PSUM for a whole slab.

One matmul contracts up to 128 positions. The moving operand is one tensor's channels at the entries of several taps,
the stationary operand the other tensor's channels at one entry, or at the entries of several taps of one axis where
its channels alone would leave columns idle. A chain of such matmuls fills one PSUM bank,

    [stationary taps · channels, moving taps, moving taps, moving channels];

it is evicted once per slab and, over several slabs, added up in SBUF in fp32. The sum is rounded once, when complete.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

from conv3d_codegen.lower.direct import load_spread
from conv3d_codegen.lower.row_pairs import RowPairs
from conv3d_codegen.lower.tap_chains import Chain, cut_chains
from conv3d_codegen.lower.turned import Spread, turn
from conv3d_codegen.lower.windows import Box
from conv3d_codegen.planner.blocks import ceil_div
from conv3d_codegen.program.instructions import matmul, tensor_add

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conv3d_codegen.lower.builder import Builder
    from conv3d_codegen.lower.slabs import Slab
    from conv3d_codegen.lower.tensors import Activation
    from conv3d_codegen.lower.turned import Turned
    from conv3d_codegen.lower.wgrad_result import Finish, ResultWriter
    from conv3d_codegen.lower.windows import Window
    from conv3d_codegen.planner.correlation import CorrelationAxis
    from conv3d_codegen.planner.schedule import Side, WgradPlan
    from conv3d_codegen.program.views import Buffer

Range = tuple[int, int]
Ranges = tuple[Range, Range, Range]
Position = tuple[int, int, int, int]
Spreads = tuple[Spread, Spread, Spread, Spread]

OPEN_CHAINS = 4  # PSUM banks for chains; the others serve transposes and dx tiles


@dataclass(frozen=True, slots=True)
class Operands:
    """The turned tensors of one slab."""

    stationary: Turned
    moving: Turned


@dataclass(slots=True)
class WgradLowering:
    """Emits dw: partial sums slab by slab, then the result.

    channels: of the stationary and of the moving tensor.
    direct: tensors with channels last that are loaded as they are contracted, by side.
    """

    builder: Builder
    plan: WgradPlan
    axes: tuple[CorrelationAxis, CorrelationAxis, CorrelationAxis]
    channels: tuple[int, int]
    writer: ResultWriter
    direct: dict[Side, Activation]
    sums: dict[Chain, Buffer] = field(default_factory=dict)

    def positions(self, slab: Slab) -> Box:
        """Positions that a slab contracts: on each axis rows of the tensor that is read without shifts."""
        depth, height, width = (
            narrow if axis.shifted == "wide" else wide
            for axis, narrow, wide in zip(
                self.axes, slab.narrow.ranges[1:], slab.wide.ranges[1:], strict=True
            )
        )
        return Box(slab.narrow.n, depth, height, width)

    def spreads(self, positions: Box) -> tuple[Spreads, Spreads]:
        """How a slab lies on partitions: (stationary, moving) spreads of N, D, H, W."""
        pairs = [self._sample_spreads(positions.n)]
        for axis, (low, high), length in zip(
            self.axes, positions.ranges[1:], self.plan.lengths[1:], strict=True
        ):
            entries = min(length or high - low, high - low)
            groups = ceil_div(high - low, entries)
            plain = Spread(low, groups, entries, 1, entries, axis.owner_size)
            shifted = Spread(
                low * axis.stride - axis.pad,
                groups,
                entries * axis.stride,
                axis.unit(entries),
                axis.reach(entries),
                axis.halo_size,
            )
            moves = axis.shifted == self.plan.moving
            pairs.append((plain, shifted) if moves else (shifted, plain))
        stationary, moving = zip(*pairs, strict=True)
        return stationary, moving

    def _sample_spreads(self, samples: Range) -> tuple[Spread, Spread]:
        extent = samples[1] - samples[0]
        entries = self.plan.lengths[0] or extent
        spread = Spread(samples[0], ceil_div(extent, entries), entries, 1, entries, samples[1])
        return spread, spread

    def boxes(self, positions: Box) -> tuple[Box, Box]:
        """Rows of the stationary and of the moving tensor to load for one slab."""
        stationary, moving = self.spreads(positions)
        return Box(*(s.window for s in stationary)), Box(*(s.window for s in moving))

    def contracts(self, positions: Box) -> bool:
        """Whether a slab adds anything to dw."""
        return not positions.is_empty and not any(box.is_empty for box in self.boxes(positions))

    def store_zeros(self, chains: Sequence[Chain]) -> None:
        """Store dw where no tap reads any row."""
        for chain in chains:
            total = self.builder.allocate("dw_zero", chain.shape, "fp32", "sbuf")
            self.builder.zero(total.whole())
            self._finish([self._write(chain, total)])

    def open_sums(self, chains: Sequence[Chain]) -> None:
        """Declare sums that iterations of loops can add to."""
        for chain in chains:
            self.sums[chain] = self.builder.allocate("dw_sum", chain.shape, "fp32", "sbuf")
            self.builder.zero(self.sums[chain].whole())

    def write_sums(self, chains: Sequence[Chain]) -> None:
        """Round and store sums that are complete."""
        self._finish([self._write(chain, self.sums[chain]) for chain in chains])

    def chains(self) -> tuple[Chain, ...]:
        """All accumulations of dw, by block of moving channels that are turned together."""
        return tuple(cut_chains(self.plan, self.axes, self.channels))

    def turn_stationary(
        self, positions: Box, windows: Sequence[Window], chains: Sequence[Chain]
    ) -> Turned:
        """Turn the stationary tensor of one slab."""
        spreads = self.spreads(positions)
        zero_outside = self._reads_zeros(spreads, chains)
        source = self.direct.get(self.plan.stationary)
        if source is not None:
            channels = (0, self.channels[0])
            return load_spread(
                self.builder, "stat_t", source, channels, spreads[0], zero_outside=zero_outside
            )
        return turn(self.builder, "stat_t", windows, spreads[0], zero_outside=zero_outside)

    def turn_moving(
        self, positions: Box, windows: Sequence[Window], chains: Sequence[Chain]
    ) -> Turned:
        """Turn the moving channels that a block of chains shares."""
        spreads = self.spreads(positions)
        first, stop = chains[0].moving_block
        zero_outside = self._reads_zeros(spreads, chains)
        source = self.direct.get(self.plan.moving)
        if source is not None:
            return load_spread(
                self.builder, "mov_t", source, (first, stop), spreads[1], zero_outside=zero_outside
            )
        held = [window for window in windows if first <= window.channels[0] < stop]
        return turn(self.builder, "mov_t", held, spreads[1], zero_outside=zero_outside)

    def _reads_zeros(self, spreads: tuple[Spreads, Spreads], chains: Sequence[Chain]) -> bool:
        """Whether any chain reads rows that do not exist: packed taps do, and chains that no position covers."""
        if self.plan.stationary_axis is not None:
            return True
        if self.plan.rows > 1:
            return False
        return any(self._full_position(chain, spreads) is None for chain in chains)

    def contract(self, operands: Operands, chains: Sequence[Chain], *, last: bool) -> None:
        """Contract a block of chains over one slab; the last slab also writes the results."""
        rounded: list[Finish | None] = []
        for start in range(0, len(chains), OPEN_CHAINS):
            group = chains[start : start + OPEN_CHAINS]
            landings = [
                self.builder.allocate("dw_ps", chain.shape, "fp32", "psum") for chain in group
            ]
            for chain, landing in zip(group, landings, strict=True):
                self._contract(operands, chain, landing)
            finished, rounded = (
                rounded,
                [
                    self._add_up(chain, landing, last=last)
                    for chain, landing in zip(group, landings, strict=True)
                ],
            )
            self._finish(finished)
        self._finish(rounded)

    def _finish(self, rounded: Sequence[Finish | None]) -> None:
        """Store results that only had to be rounded first; meanwhile the tensor engine had other work."""
        for finish in rounded:
            if finish is not None:
                finish()

    def _contract(self, operands: Operands, chain: Chain, landing: Buffer) -> None:
        """All matmuls of one chain; the first one writes the whole region."""
        self.builder.comment(f"{landing.name}: {chain.describe(self.axes)}")
        if chain.rows > 1:
            row_pairs = RowPairs(self.builder, self.axes)
            row_pairs.contract(operands.stationary, operands.moving, chain, landing)
            return
        spreads = operands.stationary.spreads, operands.moving.spreads
        n, d, h, w = (range(min(s.entries, m.entries)) for s, m in zip(*spreads, strict=True))
        positions = list(product(n, d, h, w))
        full = self._full_position(chain, spreads)
        if full is not None:
            positions.remove(full)
            positions.insert(0, full)
        opened = False
        for position in positions:
            taps = self._valid(chain, position, spreads) if opened else chain.taps
            if all(first < stop for first, stop in taps):
                self._multiply(operands, chain, landing, (position, taps), accumulate=opened)
                opened = True

    def _multiply(
        self,
        operands: Operands,
        chain: Chain,
        landing: Buffer,
        where: tuple[Position, Ranges],
        *,
        accumulate: bool,
    ) -> None:
        (sample, *entries), taps = where
        stationary_index: list[int | slice] = []
        moving_index: list[int | slice] = []
        for number, (axis, (first, stop), entry) in enumerate(
            zip(self.axes, taps, entries, strict=True)
        ):
            spreads = operands.stationary.spreads, operands.moving.spreads
            moves = axis.shifted == self.plan.moving
            unit = spreads[moves][number + 1].unit
            start = (entry * axis.stride + first * axis.dilation) // unit
            step = max(1, axis.dilation // unit)
            reach = slice(start, start + (stop - 1 - first) * step + 1, step)
            fixed = number == chain.fixed
            if moves:
                stationary_index.append(entry)
                moving_index.append(start if fixed else reach)
            else:
                stationary_index.append(reach if stop - first > 1 else start)
                moving_index.append(entry)
        d, h, w = stationary_index
        stationary = operands.stationary.columns(self.builder, (sample, d, h, w), chain.stationary)
        d, h, w = moving_index
        moving = operands.moving.view(sample, d, h, w, chain.moving)
        cells = (
            slice(taps[axis][0] - chain.taps[axis][0], taps[axis][1] - chain.taps[axis][0])
            for axis in chain.running
        )
        dst = landing[(slice(None), *cells, slice(None))]
        self.builder.add(matmul(dst, stationary, moving, accumulate=accumulate))

    def _valid(self, chain: Chain, position: Position, spreads: tuple[Spreads, Spreads]) -> Ranges:
        """Taps of the chain that read existing rows at one position; packed taps go all or none."""
        found = []
        for number, (axis, (first, stop), entry) in enumerate(
            zip(self.axes, chain.taps, position[1:], strict=True)
        ):
            moves = axis.shifted == self.plan.moving
            spread = spreads[moves][number + 1]
            low, high = spread.existing(
                (first, stop), spread.low + entry * axis.stride, axis.dilation
            )
            packed = chain.packs and number == chain.fixed
            found.append((first, stop) if packed and low < high else (low, high))
        return found[0], found[1], found[2]

    def _full_position(self, chain: Chain, spreads: tuple[Spreads, Spreads]) -> Position | None:
        """Find a position at which every tap of the chain reads existing rows."""
        found = [0]
        for number in range(3):
            entries = min(spread[number + 1].entries for spread in spreads)
            for entry in range(entries):
                position = [0, 0, 0, 0]
                position[number + 1] = entry
                n, d, h, w = position
                if self._valid(chain, (n, d, h, w), spreads)[number] == chain.taps[number]:
                    found.append(entry)
                    break
            else:
                return None
        n, d, h, w = found
        return n, d, h, w

    def _add_up(self, chain: Chain, landing: Buffer, *, last: bool) -> Finish | None:
        """Evict a finished chain: keep, add to, or complete its sum."""
        total = self.sums.get(chain)
        if last and total is None:
            return self._write(chain, landing)
        if total is None:
            total = self.builder.allocate("dw_sum", chain.shape, "fp32", "sbuf")
            self.sums[chain] = total
            self.builder.copy(total.whole(), landing.whole())
            return None
        self.builder.add(tensor_add(total.whole(), total.whole(), landing.whole(), "vector"))
        return self._write(chain, total) if last else None

    def _write(self, chain: Chain, total: Buffer) -> Finish | None:
        """Round a complete sum and store it, or leave storing to the caller."""
        if chain.rows == 1:
            return self.writer.write(chain, total)
        parts = RowPairs(self.builder, self.axes).results(chain, total)
        return partial(self._finish, [self.writer.write(part, sums) for part, sums in parts])
