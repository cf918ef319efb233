# SPDX-License-Identifier: Apache-2.0
"""dw: positions on partitions, every tap an offset in the free dims, sums kept in PSUM for a whole slab.

One matmul contracts up to 128 positions. The moving operand is one tensor's channels at the entries of several taps,
the stationary operand the other tensor's channels at one entry, or at the entries of several taps of one axis where
its channels alone would leave columns idle. A chain of such matmuls fills one PSUM bank,

    [stationary taps · channels, moving taps, moving taps, moving channels];

it is evicted once per slab and, over several slabs, added up in SBUF in fp32. The sum is rounded once, when complete.

Operands of 8 bits may contract two neighbouring positions of every partition at once, see planner.double_row.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

from conv3d_codegen.lower.direct import load_spread
from conv3d_codegen.lower.row_pairs import RowPairs
from conv3d_codegen.lower.tap_chains import Chain, cut_chains
from conv3d_codegen.lower.turned import Held, Spread, turn
from conv3d_codegen.lower.windows import Box
from conv3d_codegen.planner.blocks import ceil_div
from conv3d_codegen.program.instructions import matmul, tensor_add

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conv3d_codegen.lower.builder import Builder
    from conv3d_codegen.lower.slabs import Slab
    from conv3d_codegen.lower.tensors import Activation
    from conv3d_codegen.lower.turned import Entry, Turned
    from conv3d_codegen.lower.wgrad_result import Finish, ResultWriter
    from conv3d_codegen.lower.windows import Window
    from conv3d_codegen.planner.correlation import CorrelationAxis
    from conv3d_codegen.planner.schedule import Side, WgradPlan
    from conv3d_codegen.program.views import Buffer, SliceView

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


@dataclass(frozen=True, slots=True)
class Step:
    """What one matmul contracts: a position of every partition or two neighbours, with the taps valid there."""

    positions: tuple[Position, ...]
    taps: Ranges


@dataclass(slots=True)
class WgradLowering:
    """Emits dw: partial sums slab by slab, then the result.

    channels: of the stationary and of the moving tensor.
    direct: tensors with channels last that are loaded as they are contracted, by side.
    dtypes: of the tensors in HBM, by side.
    """

    builder: Builder
    plan: WgradPlan
    axes: tuple[CorrelationAxis, CorrelationAxis, CorrelationAxis]
    channels: tuple[int, int]
    writer: ResultWriter
    direct: dict[Side, Activation]
    dtypes: dict[Side, str]
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
        held = self._held("stat_t", self.plan.stationary)
        source = self.direct.get(self.plan.stationary)
        if source is not None:
            channels = (0, self.channels[0])
            return load_spread(
                self.builder, held, source, channels, spreads[0], zero_outside=zero_outside
            )
        return turn(self.builder, held, windows, spreads[0], zero_outside=zero_outside)

    def turn_moving(
        self, positions: Box, windows: Sequence[Window], chains: Sequence[Chain]
    ) -> Turned:
        """Turn the moving channels that a block of chains shares."""
        spreads = self.spreads(positions)
        first, stop = chains[0].moving_block
        zero_outside = self._reads_zeros(spreads, chains)
        held = self._held("mov_t", self.plan.moving)
        source = self.direct.get(self.plan.moving)
        if source is not None:
            return load_spread(
                self.builder, held, source, (first, stop), spreads[1], zero_outside=zero_outside
            )
        own = [window for window in windows if first <= window.channels[0] < stop]
        return turn(self.builder, held, own, spreads[1], zero_outside=zero_outside)

    def _held(self, stem: str, side: Side) -> Held:
        """Hold a turned tensor as it is computed with: in its own 8 bits where positions are paired."""
        is_paired = self.plan.pair_axis is not None
        return Held(stem, self.dtypes[side] if is_paired else self.builder.dtype)

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
        steps = self._steps(chain, (operands.stationary.spreads, operands.moving.spreads))
        full = next((step for step in steps if step.taps == chain.taps), None)
        if full is not None:
            steps.remove(full)
            steps.insert(0, full)
        opened = False
        for step in steps:
            taps = step.taps if opened else chain.taps
            if _reads(taps):
                self._multiply(
                    operands, chain, landing, replace(step, taps=taps), accumulate=opened
                )
                opened = True

    def _steps(self, chain: Chain, spreads: tuple[Spreads, Spreads]) -> list[Step]:
        """Take one position after the other, or two neighbours at once where the same taps are valid at both."""
        n, d, h, w = (range(min(s.entries, m.entries)) for s, m in zip(*spreads, strict=True))
        valid = {at: self._valid(chain, at, spreads) for at in product(n, d, h, w)}
        axis = self.plan.pair_axis if self._may_pair(chain, spreads) else None
        steps, taken = [], set()
        for position, taps in valid.items():
            if position in taken:
                continue
            positions = [position]
            if axis is not None and _reads(taps):
                neighbour = _next(position, axis)
                if valid.get(neighbour) == taps:
                    positions.append(neighbour)
            taken.update(positions)
            steps.append(Step(tuple(positions), taps))
        return steps

    def _may_pair(self, chain: Chain, spreads: tuple[Spreads, Spreads]) -> bool:
        """Whether a matmul's columns are one run: one tap, or taps of H with all the channels that lie beside them."""
        first, stop = chain.taps[1]
        is_run = self.axes[1].dilation <= spreads[1][2].unit and chain.moving == chain.moving_block
        return is_run or stop - first == 1

    def _multiply(
        self, operands: Operands, chain: Chain, landing: Buffer, step: Step, *, accumulate: bool
    ) -> None:
        still, moving = zip(
            *(self._entries(operands, chain, at, step.taps) for at in step.positions), strict=True
        )
        cells = tuple(
            slice(*(tap - chain.taps[axis][0] for tap in step.taps[axis])) for axis in chain.running
        )
        is_pair = len(step.positions) > 1
        if is_pair:
            dst = self._run(landing, cells)
            columns = operands.stationary.pair(self.builder, still, chain.stationary)
            rows = operands.moving.pair(self.builder, moving, chain.moving)
        else:
            dst = landing[(slice(None), *cells, slice(None))]
            columns = operands.stationary.columns(self.builder, still[0], chain.stationary)
            sample, d, h, w = moving[0]
            rows = operands.moving.view(sample, d, h, w, chain.moving)
        self.builder.add(matmul(dst, columns, rows, accumulate=accumulate, double_row=is_pair))

    def _run(self, landing: Buffer, cells: tuple[slice, ...]) -> SliceView:
        """Address cells of a chain's region, of which only the second axis has several, as one run of columns."""
        columns, outer, inner, channels = landing.shape
        run = self.builder.alias(landing, (columns, outer * inner * channels))
        first = cells[0].start * inner + cells[1].start
        count = cells[1].stop - cells[1].start
        return run[:, first * channels : (first + count) * channels]

    def _entries(
        self, operands: Operands, chain: Chain, position: Position, taps: Ranges
    ) -> tuple[Entry, Entry]:
        """Give the entries of the stationary and of the moving tensor that meet at a position."""
        sample, *entries = position
        spreads = operands.stationary.spreads, operands.moving.spreads
        stationary_index: list[int | slice] = []
        moving_index: list[int | slice] = []
        for number, (axis, (first, stop), entry) in enumerate(
            zip(self.axes, taps, entries, strict=True)
        ):
            moves = axis.shifted == self.plan.moving
            unit = spreads[moves][number + 1].unit
            reach = axis.entries(entry, (first, stop), unit)
            start = reach.start
            fixed = number == chain.fixed
            if moves:
                stationary_index.append(entry)
                moving_index.append(start if fixed else reach)
            else:
                stationary_index.append(reach if stop - first > 1 else start)
                moving_index.append(entry)
        still_d, still_h, still_w = stationary_index
        moving_d, moving_h, moving_w = moving_index
        return (sample, still_d, still_h, still_w), (sample, moving_d, moving_h, moving_w)

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


def _next(position: Position, axis: int) -> Position:
    n, d, h, w = (index + (number == axis) for number, index in enumerate(position))
    return n, d, h, w


def _reads(taps: Ranges) -> bool:
    return all(first < stop for first, stop in taps)
