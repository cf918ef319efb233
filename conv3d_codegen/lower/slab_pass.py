# SPDX-License-Identifier: Apache-2.0
"""One pass over the slabs, software-pipelined: a slab is prepared while the one before is contracted.

Preparing is loading windows, computing dx and turning the operands of dw; contracting is what dw then needs the tensor
engine for. Turning waits for evictions and contracting does not, so the two are woven into one stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from conv3d_codegen.lower.wgrad import Operands
from conv3d_codegen.lower.windows import narrowed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from conv3d_codegen.lower.pack import PackLowering
    from conv3d_codegen.lower.slabs import Slab
    from conv3d_codegen.lower.tap_chains import Chain
    from conv3d_codegen.lower.turned import Turned
    from conv3d_codegen.lower.windows import Box, Window
    from conv3d_codegen.planner.grid import Index, SlabGroup
    from conv3d_codegen.planner.schedule import Side
    from conv3d_codegen.program.program import Item


Range = tuple[int, int]

FIRST_LEAD = 0.5  # of the first slab's dx: what dw alone reads is still on its way
# Until the operands of a slab that were turned last are evicted: a bank takes about 1 us, and others may be before it.
LAST_EVICTION_NS = 2000.0


@dataclass(frozen=True, slots=True)
class Contraction:
    """A slab whose stationary tensor and first moving channels are turned, and whose dw is still to be contracted."""

    owner: SlabPass
    label: str
    positions: Box
    moving_windows: tuple[Window, ...]
    stationary: Turned
    moving: Turned
    last: bool

    @property
    def title(self) -> str:
        """Its label, with that of its pack."""
        return self.owner.pack.label + self.label


class Loaded(NamedTuple):
    """A slab whose windows are loaded: of dy as db sums them, and of each side in the type that is computed with."""

    label: str
    slab: Slab
    positions: Box | None
    summed: tuple[Window, ...]
    by_side: dict[Side, tuple[Window, ...]]


class SlabPass:
    """Emits one pass: the chains of dw that it serves, and in the first pass dx and db too."""

    def __init__(self, pack: PackLowering, chains: Sequence[Chain], number: int) -> None:
        self.pack, self.builder, self.number = pack, pack.builder, number
        self.dgrad, self.bgrad = (pack.dgrad, pack.bgrad) if number == 0 else (None, None)
        self.blocks = [list(group) for _, group in groupby(chains, lambda c: c.moving_block)]
        self.chains = chains
        self.windows: tuple[Window, ...] = ()
        self._started = 0
        self._late_dx: Callable[[], None] | None = None

    def run(self, pending: Contraction | None, *, hands_on: bool) -> Contraction | None:
        """Emit all slabs, and the results of what they complete.

        pending: what the pack before has left to contract; hands_on: whether this one may leave its own to the next.
        """
        pack = self.pack
        slabs = [index for group in pack.groups for index in group.slabs]
        contracting = [index for index in slabs if self._contracts(index)]
        if pack.wgrad is not None and not contracting:
            pack.section("dw", "No tap ever reads an existing row of x: dw is zero.")
            pack.wgrad.store_zeros(self.chains)
        sums_up = bool(pack.schedule.rolled and contracting)
        last = None if sums_up or not contracting else contracting[-1]
        if self.dgrad is not None and pending is None and not pack.schedule.dx_last:
            pack.section("filters", "Stationary matrices of dx, dy's channels on partitions.")
            if pack.schedule.filters_late and pack.groups[0].iterations == 1:
                self.dgrad.prepare_first()
            else:
                self.dgrad.prepare()
        if sums_up and pack.wgrad is not None:
            pack.section(f"{self._label}sums of dw", "Every slab adds to them.")
            pack.wgrad.open_sums(self.chains)
        for group in pack.groups:
            if self.dgrad is not None and group.iterations > 1:
                self.dgrad.prepare()  # once: what is still missing must not be prepared in every iteration
            with pack.iterations(group):
                pending = self._group(group, len(slabs), last, pending)
                if pack.schedule.dx_last:
                    self._finish_with_dx(pending)
                    pending = None
                if pending is not None and (sums_up or not hands_on):
                    pack.section(f"{pending.label}: dw")
                    self.contract(pending)
                    pending = None
        if sums_up and pack.wgrad is not None:
            pack.section(f"{self._label}dw", "Round and store the sums.")
            pack.wgrad.write_sums(self.chains)
        if self.bgrad is not None and pending is None:
            pack.section("db", "Add the partial sums of all slabs up, round once, store.")
            self.bgrad.gather(self.windows)
        return pending

    def _finish_with_dx(self, pending: Contraction | None) -> None:
        """Contract the only slab while filters of dx are turned, then compute dx."""
        pack, builder = self.pack, self.builder
        assert self.dgrad is not None
        names = "filters" if pending is None else "dw, filters"
        pack.section(
            f"slab 1 of 1: {names}", "Stationary matrices of dx, dy's channels on partitions."
        )
        contracted: list[Item] = []
        if pending is not None:
            with builder.captured() as contracted:
                self.contract(pending)
        with builder.captured() as filters:
            self.dgrad.prepare()
        builder.weave(contracted, filters)
        if self._late_dx is not None:
            pack.section("slab 1 of 1: dx")
            self._late_dx()

    @property
    def _label(self) -> str:
        return f"pass {self.number + 1}, " if self.number else ""

    def _contracts(self, index: Index) -> bool:
        """Whether a slab adds anything to dw."""
        wgrad = self.pack.wgrad
        return wgrad is not None and wgrad.contracts(wgrad.positions(self.pack.slab(index)))

    def _group(
        self, group: SlabGroup, count: int, last: Index | None, pending: Contraction | None
    ) -> Contraction | None:
        """Emit the slabs of one iteration of a loop, or those that stand once."""
        loaded: Loaded | None = None
        for index, following in zip(group.slabs, [*group.slabs[1:], None], strict=True):
            now = loaded or self._load(index, group, count)
            loaded = None
            if following is not None and self.pack.schedule.loads_ahead:
                loaded = self._load(following, group, count)
            pending = self._prepare(now, pending, last=index == last)
        return pending

    def _load(self, index: Index, group: SlabGroup, count: int) -> Loaded:
        """Load the windows of a slab."""
        pack, wgrad = self.pack, self.pack.wgrad
        label = f"{self._label}slab {self._started + 1} of {count}"
        if group.iterations > 1:
            label += " kinds"
        self._started += 1
        slab = pack.slab(index)
        positions = wgrad.positions(slab) if wgrad is not None and self._contracts(index) else None
        pack.section(f"{label}: load")
        return Loaded(label, slab, positions, *self._windows(slab, positions))

    def _prepare(
        self, loaded: Loaded, pending: Contraction | None, *, last: bool
    ) -> Contraction | None:
        """Prepare a slab, while the pending one is contracted."""
        pack, builder = self.pack, self.builder
        label, slab, positions, summed, by_side = loaded
        self._open(label, pending, positions)
        dy_box, dx_box = pack.box(slab, pack.dy_side), pack.box(slab, pack.x_side)
        with builder.captured() as sums:
            if self.bgrad is not None and not dy_box.is_empty:
                self.bgrad.slab(dy_box, summed)
        with builder.captured() as filters:
            if self.dgrad is not None and pending is not None and pending.owner is not self:
                self.dgrad.prepare()
        with builder.captured() as dx:
            if self.dgrad is not None and not dx_box.is_empty:
                compute = partial(self.dgrad.slab, dx_box, by_side[pack.dy_side])
                if pack.schedule.dx_last:
                    self._late_dx = compute
                else:
                    compute()
        with builder.captured() as turning:
            prepared = self._turn(label, positions, by_side, last=last)
        if not pack.schedule.woven:
            builder.sections[-1].items += [*dx, *turning]
            builder.spread(sums)
            if prepared is not None:
                pack.section(f"{label}: dw")
                self.contract(prepared)
            return None
        with builder.captured() as preparing:
            builder.sections[-1].items += filters
            builder.weave(dx, turning, lead=FIRST_LEAD if pending is None else 0.0)
        contracted: list[Item] = []
        if pending is not None:
            with builder.captured() as contracted:
                self._complete(pending)
        builder.weave(preparing, contracted, lead=builder.share_of(preparing, LAST_EVICTION_NS))
        builder.spread(sums)
        return prepared

    def _windows(
        self, slab: Slab, positions: Box | None
    ) -> tuple[tuple[Window, ...], dict[Side, tuple[Window, ...]]]:
        """Load a slab's windows: (of dy as db sums them, of each side in the type that is computed with)."""
        pack, schedule = self.pack, self.pack.schedule
        dy_need, x_need = pack.needs(slab, positions, self.dgrad, self.bgrad)
        x_windows: tuple[Window, ...] = ()
        x_comes_first = schedule.dx_last and pack.turns_first(pack.x_side)
        if x_comes_first:
            x_windows = pack.load(pack.x_side, x_need, self._channels(pack.x_side))
        dy_channels = self._channels(pack.dy_side)
        summed = pack.load(pack.dy_side, dy_need, dy_channels, exact=self.bgrad is not None)
        self.windows = summed or self.windows
        multiplies = self.dgrad is not None or positions is not None
        dy_windows = tuple(narrowed(self.builder, w) for w in summed if multiplies)
        if self.dgrad is not None and schedule.filters_late:
            self.dgrad.load_ahead(schedule.filters_ahead)
        if not x_comes_first:
            x_windows = pack.load(pack.x_side, x_need, self._channels(pack.x_side))
        if self.dgrad is not None and schedule.dx_last:
            self.dgrad.load_ahead(schedule.filters_ahead)
        return summed, {pack.dy_side: dy_windows, pack.x_side: x_windows}

    def _channels(self, side: Side) -> list[Range]:
        """Channels of a side that this pass reads: all, or those that its chains stream."""
        pack = self.pack
        serves_all = side == pack.dy_side and (self.dgrad or self.bgrad) is not None
        if pack.wgrad is None or side != pack.wgrad.plan.moving or serves_all:
            return [(0, pack.blocks[side][-1][1])]
        return [block[0].moving_block for block in self.blocks]

    def _open(self, label: str, pending: Contraction | None, positions: Box | None) -> None:
        """Open the section in which a slab is prepared."""
        dgrad = None if self.pack.schedule.dx_last else self.dgrad
        work = {"db": self.bgrad, "dx": dgrad, "operands of dw": positions}
        names = [name for name, needed in work.items() if needed is not None]
        notes = []
        if pending is not None:
            notes.append(f"Woven: {pending.title} is contracted meanwhile.")
        self.pack.section(f"{label}: {', '.join(names) or 'no work of its own'}", *notes)

    def _complete(self, pending: Contraction) -> None:
        """Contract a slab, and gather db if it was the last one of the pack before."""
        owner = pending.owner
        owner.contract(pending)
        if owner is not self and owner.bgrad is not None:
            owner.bgrad.gather(owner.windows)

    def _turn(
        self,
        label: str,
        positions: Box | None,
        by_side: dict[Side, tuple[Window, ...]],
        *,
        last: bool,
    ) -> Contraction | None:
        """Turn a slab's stationary tensor and the first block of its moving channels."""
        wgrad = self.pack.wgrad
        if wgrad is None or positions is None:
            return None
        still, moving = by_side[wgrad.plan.stationary], by_side[wgrad.plan.moving]
        return Contraction(
            self,
            label,
            positions,
            moving,
            wgrad.turn_stationary(positions, still, self.chains),
            wgrad.turn_moving(positions, moving, self.blocks[0]),
            last,
        )

    def contract(self, slab: Contraction) -> None:
        """Contract all blocks of chains; the next block's moving channels are turned meanwhile."""
        wgrad, builder = self.pack.wgrad, self.builder
        assert wgrad is not None
        moving = slab.moving
        for block, following in zip(self.blocks, [*self.blocks[1:], None], strict=True):
            with builder.captured() as contracting:
                wgrad.contract(Operands(slab.stationary, moving), block, last=slab.last)
            with builder.captured() as turning:
                if following is not None:
                    moving = wgrad.turn_moving(slab.positions, slab.moving_windows, following)
            builder.weave(contracting, turning)
