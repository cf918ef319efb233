# SPDX-License-Identifier: Apache-2.0
"""One pack of groups: the order of its sections, and which slab loads what for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conv3d_codegen.lower.bgrad import BgradLowering
from conv3d_codegen.lower.dgrad import DgradLowering
from conv3d_codegen.lower.dgrad_parts import DgradParts
from conv3d_codegen.lower.dx_rows import DxTarget
from conv3d_codegen.lower.filters import FilterSource
from conv3d_codegen.lower.loops import iterations
from conv3d_codegen.lower.slab_pass import SlabPass
from conv3d_codegen.lower.slabs import NOTHING, cut_slab
from conv3d_codegen.lower.tap_rows import TapRows
from conv3d_codegen.lower.wgrad import WgradLowering
from conv3d_codegen.lower.wgrad_result import ResultWriter
from conv3d_codegen.lower.windows import load_window
from conv3d_codegen.planner.blocks import channel_blocks, split_upto
from conv3d_codegen.planner.correlation import correlation_axis
from conv3d_codegen.planner.grid import slab_groups

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from conv3d_codegen.lower.builder import Builder
    from conv3d_codegen.lower.slab_pass import Contraction
    from conv3d_codegen.lower.slabs import Slab
    from conv3d_codegen.lower.tap_chains import Chain
    from conv3d_codegen.lower.tensors import Activation, Tensors
    from conv3d_codegen.lower.windows import Box, Window
    from conv3d_codegen.planner.grid import Index, SlabGroup
    from conv3d_codegen.planner.problem import Problem
    from conv3d_codegen.planner.schedule import Schedule, Side

Range = tuple[int, int]


class PackLowering:
    """State of one pack while its sections are being written."""

    def __init__(
        self,
        builder: Builder,
        problem: Problem,
        schedule: Schedule,
        tensors: Tensors,
        out_dtype: str,
        label: str,
    ) -> None:
        self.builder, self.problem, self.schedule = builder, problem, schedule
        self.tensors, self.out_dtype, self.label = tensors, out_dtype, label
        self.groups = slab_groups(problem, schedule)
        self.dy_side: Side = "wide" if problem.transposed else "narrow"
        self.x_side: Side = "narrow" if problem.transposed else "wide"
        self.blocks: dict[Side, tuple[tuple[int, int], ...]] = {
            "narrow": channel_blocks(problem.out_channels, schedule.dy_block),
            "wide": channel_blocks(problem.in_channels, schedule.x_block),
        }
        self.folds: dict[Side, tuple[int, int]] = {
            "narrow": schedule.dy_fold,
            "wide": schedule.x_fold,
        }
        self.dgrad = self._dgrad()
        self.wgrad = self._wgrad()
        self.bgrad = self._bgrad()

    def run(
        self, pending: Contraction | None, following: PackLowering | None
    ) -> Contraction | None:
        """Emit all sections; what the pack before has left to contract is woven with the first slab.

        following: the next pack, which takes over the last contraction of this one.
        """
        if following is not None:
            self.section("load ahead", "Filters of these groups, if not yet there, and the next.")
            for pack in (self, following):
                if pack.dgrad is not None:
                    pack.dgrad.load_ahead()
        hands_on = following is not None
        passes = self._passes()
        for number, chains in enumerate(passes):
            is_last = number == len(passes) - 1
            pending = SlabPass(self, chains, number).run(pending, hands_on=hands_on and is_last)
        return pending

    def section(self, title: str, *notes: str) -> None:
        """Open a section under the pack's label."""
        self.builder.section(self.label + title, *notes)

    # --- one lowering per requested gradient ---------------------------------------------------

    def _dgrad(self) -> DgradParts | None:
        plan, tensors = self.schedule.dgrad, self.tensors
        if plan is None or tensors.filters is None or tensors.dx is None:
            return None
        channels = self.blocks[self.x_side][-1][1]
        return DgradParts(
            tuple(
                DgradLowering(
                    self.builder,
                    way,
                    FilterSource(tensors.filters, way, self.x_side),
                    DxTarget(tensors.dx, self.out_dtype, way.axes),
                    tuple(split_upto(span, way.in_block)),
                    self.blocks[self.dy_side],
                    tensors.dy.buffer.dtype,
                )
                for span, way in plan.parts(channels)
            )
        )

    def _wgrad(self) -> WgradLowering | None:
        plan, problem = self.schedule.wgrad, self.problem
        if plan is None or self.tensors.dw is None:
            return None
        depth, height, width = (
            correlation_axis(axis, plan.shifted(number)) for number, axis in enumerate(problem.axes)
        )
        axes = (depth, height, width)
        channels = (problem.out_channels, problem.in_channels)
        ordered = channels if plan.moving == "wide" else channels[::-1]
        writer = ResultWriter(
            self.builder,
            axes,
            self.tensors.dw,
            self.out_dtype,
            plan.stationary,
            problem.exchanges,
            TapRows(self.builder, self.tensors.dw, self.out_dtype),
        )
        inputs = {self.dy_side: self.tensors.dy, self.x_side: self.tensors.x}
        dtypes = {side: tensor.buffer.dtype for side, tensor in inputs.items() if tensor}
        return WgradLowering(self.builder, plan, axes, ordered, writer, self._direct(), dtypes)

    def _direct(self) -> dict[Side, Activation]:
        """Tensors that dw alone reads, where their channels are last: they are loaded without turning."""
        x, dy = self.tensors.x, self.tensors.dy
        found: dict[Side, Activation] = {}
        if x is not None and x.channels_last:
            found[self.x_side] = x
        if dy.channels_last and self.dgrad is None and not self.schedule.bgrad:
            found[self.dy_side] = dy
        return found

    def _bgrad(self) -> BgradLowering | None:
        tensors = self.tensors
        if not self.schedule.bgrad or tensors.db is None:
            return None
        slabs = (self.slab(index) for group in self.groups for index in group.slabs)
        boxes = tuple(self.box(slab, self.dy_side) for slab in slabs)
        return BgradLowering(
            self.builder,
            tensors.db,
            self.out_dtype,
            self.problem.exchanges,
            tuple(box for box in boxes if not box.is_empty),
            self.folds[self.dy_side],
            is_rolled=bool(self.schedule.rolled),
        )

    # --- passes over the slabs -----------------------------------------------------------------

    def _passes(self) -> Sequence[Sequence[Chain]]:
        """Chains of each pass over the slabs; the first pass also serves dx and db."""
        if self.wgrad is None:
            return [()]
        per_pass = self.schedule.chains_per_pass
        chains = self.wgrad.chains()
        return [chains[i : i + per_pass] for i in range(0, len(chains), per_pass)]

    def slab(self, index: Index) -> Slab:
        """Cut one slab."""
        return cut_slab(self.problem, self.schedule.slabs, index)

    def iterations(self, group: SlabGroup) -> AbstractContextManager[None]:
        """Open the loop over a group of slabs, if it is one."""
        return iterations(self.builder, self.tensors, self.problem, self.schedule, group)

    def box(self, slab: Slab, side: Side) -> Box:
        """Give a slab's rows of one side."""
        return slab.wide if side == "wide" else slab.narrow

    def needs(
        self,
        slab: Slab,
        contracted: Box | None,
        dgrad: DgradParts | None,
        bgrad: BgradLowering | None,
    ) -> tuple[Box, Box]:
        """Dy and x rows that a slab reads for everything it does."""
        dy_need, x_need = NOTHING, NOTHING
        if bgrad is not None:
            dy_need = dy_need.union(self.box(slab, self.dy_side))
        dx_box = self.box(slab, self.x_side)
        if dgrad is not None and not dx_box.is_empty:
            dy_need = dy_need.union(dgrad.dy_box(dx_box))
        if self.wgrad is not None and contracted is not None:
            stationary, moving = self.wgrad.boxes(contracted)
            plan = self.wgrad.plan
            by_side = {plan.stationary: stationary, plan.moving: moving}
            if self.dy_side not in self.wgrad.direct:
                dy_need = dy_need.union(by_side[self.dy_side])
            if self.x_side not in self.wgrad.direct:
                x_need = x_need.union(by_side[self.x_side])
        return dy_need, x_need

    def turns_first(self, side: Side) -> bool:
        """Whether dw turns a tensor before the other one."""
        return self.wgrad is not None and self.wgrad.plan.stationary == side

    def load(
        self, side: Side, box: Box, channels: Sequence[Range], *, exact: bool = False
    ) -> tuple[Window, ...]:
        """Load the channel blocks of a box that lie in some ranges; exact: in no narrower type than the tensor has."""
        source = self.tensors.dy if side == self.dy_side else self.tensors.x
        if box.is_empty or source is None:
            return ()
        to_dtype = "fp32" if exact and source.buffer.dtype == "fp32" else self.builder.dtype
        return tuple(
            load_window(self.builder, source, box, block, self.folds[side], to_dtype)
            for block in self.blocks[side]
            if any(first <= block[0] < stop for first, stop in channels)
        )
