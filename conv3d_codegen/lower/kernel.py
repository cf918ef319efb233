# SPDX-License-Identifier: Apache-2.0
"""From schedule to program: the order of sections, and which slab loads what for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conv3d_codegen.lower.bgrad import BgradLowering
from conv3d_codegen.lower.builder import Builder
from conv3d_codegen.lower.dgrad import DgradLowering
from conv3d_codegen.lower.filters import FilterSource
from conv3d_codegen.lower.slabs import NOTHING, cut_slabs
from conv3d_codegen.lower.wgrad import WgradLowering
from conv3d_codegen.lower.wgrad_result import ResultWriter
from conv3d_codegen.lower.windows import Source, load_window
from conv3d_codegen.plan.blocks import channel_blocks
from conv3d_codegen.plan.correlation import correlation_axis
from conv3d_codegen.program.program import Program
from conv3d_codegen.program.views import Buffer
from conv3d_codegen.targets import target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conv3d_codegen.geometry import ConvGeometry
    from conv3d_codegen.lower.slabs import Slab
    from conv3d_codegen.lower.tap_chains import Chain
    from conv3d_codegen.lower.windows import Box, Window
    from conv3d_codegen.plan.problem import Problem
    from conv3d_codegen.plan.schedule import Schedule


def lower(geometry: ConvGeometry, problem: Problem, schedule: Schedule) -> Program:
    """Build the program that carries a schedule out."""
    return _KernelLowering(geometry, problem, schedule).run()


class _KernelLowering:
    """State of one kernel while its sections are being written."""

    def __init__(self, geometry: ConvGeometry, problem: Problem, schedule: Schedule) -> None:
        self.geometry, self.problem, self.schedule = geometry, problem, schedule
        dtype, out_dtype = geometry.dtype, geometry.out_dtype
        self.builder = Builder(target(geometry.target), dtype)
        self.parameters = (
            Buffer("dy", geometry.dy_shape, dtype, "hbm"),
            Buffer("x_in", geometry.x_shape, dtype, "hbm"),
            Buffer("filters", geometry.filter_shape, dtype, "hbm"),
        )
        shapes = {
            "dx": geometry.x_shape,
            "dw": geometry.filter_shape,
            "db": (geometry.out_channels,),
        }
        self.outputs = {
            name: Buffer(name, shapes[name], out_dtype, "hbm") for name in geometry.gradients
        }
        self.slabs = tuple(cut_slabs(problem, schedule.slabs))
        self.out_blocks = channel_blocks(problem.out_channels, schedule.dy_block)
        self.in_blocks = channel_blocks(problem.in_channels, schedule.x_block)
        self.dgrad: DgradLowering | None = None
        self.wgrad: WgradLowering | None = None
        self.bgrad: BgradLowering | None = None

    def run(self) -> Program:
        """Emit all sections."""
        builder = self.builder
        builder.section("views", "HBM tensors in the shape that the schedule works on.")
        self._sources()
        self._lowerings()
        if self.dgrad is not None:
            builder.section("filters", "Stationary matrices of dx: loaded c_in first, turned.")
            self.dgrad.prepare()
        for number, chains in enumerate(self._passes()):
            self._pass(number, chains)
        outputs = tuple(self.outputs.values())
        sections = tuple(section for section in builder.sections if section.items)
        return Program(self.geometry.module_name(), self.parameters, outputs, sections)

    def _sources(self) -> None:
        """Reshape the interface tensors where the problem's axes were merged."""
        problem, builder = self.problem, self.builder

        def shaped(buffer: Buffer, shape: tuple[int, ...]) -> Buffer:
            return buffer if buffer.shape == shape else builder.alias(buffer, shape)

        dy, x_in, filters = self.parameters
        filter_shape = (*problem.kernel, problem.in_channels, problem.out_channels)
        self.dy = Source(shaped(dy, problem.dy_shape), "dy")
        self.x = Source(shaped(x_in, problem.x_shape), "x") if "dw" in self.outputs else None
        self.filters = shaped(filters, filter_shape) if "dx" in self.outputs else None
        self.targets = {
            name: shaped(self.outputs[name], shape)
            for name, shape in (("dx", problem.x_shape), ("dw", filter_shape))
            if name in self.outputs
        }

    def _lowerings(self) -> None:
        """Set up one lowering per requested gradient."""
        schedule, problem, out_dtype = self.schedule, self.problem, self.geometry.out_dtype
        if (dgrad := schedule.dgrad) is not None and self.filters is not None:
            source = FilterSource(self.filters, dgrad.axes[0], dgrad.axes[1])
            blocks = channel_blocks(problem.in_channels, dgrad.in_block)
            self.dgrad = DgradLowering(
                self.builder, dgrad, source, self.targets["dx"], out_dtype, blocks, self.out_blocks
            )
        if (wgrad := schedule.wgrad) is not None:
            depth, height, width = (
                correlation_axis(axis, wgrad.shifted(number))
                for number, axis in enumerate(problem.axes)
            )
            axes = (depth, height, width)
            channels = (problem.out_channels, problem.in_channels)
            ordered = channels if wgrad.moving == "wide" else channels[::-1]
            writer = ResultWriter(
                self.builder, axes, self.targets["dw"], out_dtype, wgrad.moving == "narrow"
            )
            self.wgrad = WgradLowering(self.builder, wgrad, axes, ordered, writer)
        if schedule.bgrad:
            columns = sum(slab.narrow.extents[0] for slab in self.slabs if not slab.narrow.is_empty)
            self.bgrad = BgradLowering(self.builder, self.outputs["db"], out_dtype, columns)

    def _passes(self) -> Sequence[Sequence[Chain]]:
        """Chains of each pass over the slabs; the first pass also serves dx and db."""
        if self.wgrad is None:
            return [()]
        per_pass = self.schedule.chains_per_pass
        chains = self.wgrad.chains()
        return [chains[i : i + per_pass] for i in range(0, len(chains), per_pass)]

    def _pass(self, number: int, chains: Sequence[Chain]) -> None:
        dgrad, bgrad = (self.dgrad, self.bgrad) if number == 0 else (None, None)
        owners = {
            position: self._owner(slab)
            for position, slab in enumerate(self.slabs)
            if self.wgrad is not None and self.wgrad.contracts(self._owner(slab))
        }
        if self.wgrad is not None and not owners:
            self.builder.section("dw", "No tap ever reads an existing row of x: dw is zero.")
            self.wgrad.store_zeros(chains)
        windows: tuple[Window, ...] = ()
        for position, slab in enumerate(self.slabs):
            label = f"slab {position + 1} of {len(self.slabs)}"
            if number:
                label = f"pass {number + 1}, {label}"
            owner = owners.get(position)
            dy_need, x_need = self._needs(slab, owner, dgrad, bgrad)
            self.builder.section(f"{label}: load")
            dy_windows = self._load(self.dy, dy_need)
            windows = dy_windows or windows
            if dgrad is not None and not slab.wide.is_empty:
                self.builder.section(f"{label}: dx")
                dgrad.slab(slab.wide, dy_windows)
            if bgrad is not None and not slab.narrow.is_empty:
                self.builder.section(f"{label}: db")
                bgrad.slab(slab.narrow, dy_windows)
            if self.wgrad is not None and owner is not None:
                self.builder.section(f"{label}: dw")
                assert self.x is not None
                pair = (dy_windows, self._load(self.x, x_need))
                ordered = pair if self.wgrad.plan.moving == "wide" else pair[::-1]
                self.wgrad.slab(owner, ordered, chains, last=position == max(owners))
        if bgrad is not None:
            self.builder.section("db", "Add the partial sums of all slabs up, round once, store.")
            bgrad.finish(windows)

    def _owner(self, slab: Slab) -> Box:
        assert self.wgrad is not None
        return self.wgrad.positions(slab)

    def _needs(
        self,
        slab: Slab,
        owner: Box | None,
        dgrad: DgradLowering | None,
        bgrad: BgradLowering | None,
    ) -> tuple[Box, Box]:
        """Dy and x rows that a slab reads for everything it does."""
        dy_need, x_need = NOTHING, NOTHING
        if bgrad is not None:
            dy_need = dy_need.union(slab.narrow)
        if dgrad is not None and not slab.wide.is_empty:
            dy_need = dy_need.union(dgrad.dy_box(slab.wide))
        if self.wgrad is not None and owner is not None:
            own_box, halo_box = self.wgrad.boxes(owner)
            if self.wgrad.plan.moving == "narrow":
                own_box, halo_box = halo_box, own_box
            dy_need, x_need = dy_need.union(own_box), x_need.union(halo_box)
        return dy_need, x_need

    def _load(self, source: Source, box: Box) -> tuple[Window, ...]:
        if box.is_empty:
            return ()
        of_dy = source is self.dy
        blocks = self.out_blocks if of_dy else self.in_blocks
        fold = self.schedule.dy_fold if of_dy else self.schedule.x_fold
        return tuple(load_window(self.builder, source, box, block, fold) for block in blocks)
