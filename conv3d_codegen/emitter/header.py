# SPDX-License-Identifier: Apache-2.0
"""What the docstring of a kernel file says: problem, maths, index maps, tiling, memory, cost, pseudocode."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from conv3d_codegen.geometry.layouts import at_rank
from conv3d_codegen.maps import describe_maps
from conv3d_codegen.planner.grid import slab_groups
from conv3d_codegen.planner.options import EmitOptions
from conv3d_codegen.targets import target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conv3d_codegen.planner.model import KernelPlan
    from conv3d_codegen.planner.schedule import Side

_MATHS = {
    "dx": "dx[n, ci, i] = sum over t, co of w[t, ci, co] * dy[n, co, o]   where i + p = o*s + t*d",
    "dw": "dw[t, ci, co] = sum over n, o of x[n, ci, o*s + t*d - p] * dy[n, co, o]",
    "db": "db[co] = sum over n, o of dy[n, co, o]",
}
_TRANSPOSED_MATHS = {
    "dx": "dx[n, ci, o] = sum over t, co of w[t, co, ci] * dy[n, co, o*s + t*d - p]",
    "dw": "dw[t, co, ci] = sum over n, o of dy[n, co, o*s + t*d - p] * x[n, ci, o]",
    "db": "db[co] = sum over n, i of dy[n, co, i]",
}


class Header:
    """Lines of the docstring, section by section."""

    def __init__(self, plan: KernelPlan) -> None:
        self.plan = plan
        self.geometry = plan.geometry
        self.spec = target(plan.geometry.target)

    @property
    def key(self) -> str:
        """Readable key of the geometry."""
        return self.geometry.key()

    @property
    def options(self) -> str:
        """Command-line options, beside the geometry's, that give this text."""
        options, usual = self.plan.options, EmitOptions()
        return "".join(
            f" --{name.replace('_', '-')} {getattr(options, name)}"
            for name in ("unroll", "max_instructions", "nki")
            if getattr(options, name) != getattr(usual, name)
        )

    @property
    def plan_digest(self) -> str:
        """Identity of the decisions behind the text."""
        text = json.dumps(self.plan.to_dict()["schedule"], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def summary(self) -> str:
        """One line: which gradients of which convolution, on what."""
        geometry = self.geometry
        kind = "transposed " if geometry.transposed else ""
        types = geometry.dtype
        for name, given in geometry.input_dtypes.items():
            if given != geometry.dtype:
                types += f" with {name} in {given}"
        if geometry.math != "full":
            types += f" multiplied as {geometry.math}"
        if geometry.out_dtype != geometry.dtype:
            types += f" to {geometry.out_dtype}"
        return (
            f"{', '.join(geometry.gradients)} of a {kind}{geometry.rank}-D convolution, "
            f"{types}, for {geometry.target}."
        )

    @property
    def problem(self) -> list[str]:
        """Tensors and attributes."""
        geometry = self.geometry
        rank = geometry.rank
        layout, filter_layout = (
            at_rank(name, rank) for name in (geometry.layout, geometry.filter_layout)
        )
        rows = [
            ("x", f"{_shape(geometry.x_shape)} {layout}"),
            ("w", f"{_shape(geometry.filter_shape)} {filter_layout}"),
            ("dy", f"{_shape(geometry.dy_shape)} {layout}"),
            ("stride", _shape(geometry.stride[-rank:])),
            ("padding", f"{_shape(geometry.padding[-2 * rank :])} before and after per axis"),
            ("dilation", _shape(geometry.dilation[-rank:])),
        ]
        if geometry.transposed:
            rows.append(("output padding", _shape(geometry.output_padding[-rank:])))
        problem = self.plan.problem
        if geometry.groups > 1:
            rows.append(("groups", f"{geometry.groups}, {problem.groups} at a time"))
        if problem.cores > 1:
            halves = f"each has half of the {problem.share}"
            both = "both compute everything" if problem.share == "nothing" else halves
            rows.append(("cores", f"{problem.cores}, {both}; all counts below are one core's"))
        whole = problem.of_both_cores(problem.in_size)
        if whole != tuple(axis.size for axis in geometry.axes):
            wide = self._sides()["wide"]
            merged = f"{wide} scheduled as {_shape(whole)}: neighbours merged"
            rows.append(("axes", merged))
        return _table(rows)

    @property
    def maths(self) -> list[str]:
        """The sums that the kernel computes, with t, i, o, s, d, p standing for all spatial axes."""
        maths = _TRANSPOSED_MATHS if self.geometry.transposed else _MATHS
        lines = [maths[name] for name in self.geometry.gradients]
        return [*lines, "ci and co of one group"] if self.geometry.groups > 1 else lines

    @property
    def maps(self) -> Sequence[str]:
        """Index maps, in symbols and in numbers."""
        return describe_maps(self.geometry)

    @property
    def tiling(self) -> list[str]:
        """What was cut how."""
        schedule, problem = self.plan.schedule, self.plan.problem
        names = self._sides()
        n, d, h, w = schedule.slabs.sizes
        rows = [("what", "extent", "piece", "pieces")]
        for axis, extent, piece in zip(
            ("N", "D", "H", "W"), (problem.batch, *problem.out_size), (n, d, h, w), strict=True
        ):
            rows.append(
                (f"slab {axis}", str(extent), str(min(piece, extent)), _pieces(extent, piece))
            )
        channels = (
            (f"{names['narrow']} channels", problem.out_channels, schedule.dy_block),
            (f"{names['wide']} channels", problem.in_channels, schedule.x_block),
        )
        rows += [(what, str(c), str(block), _pieces(c, block)) for what, c, block in channels]
        lines = _table(rows)
        if schedule.dgrad is not None:
            lines += schedule.dgrad.describe()
        if schedule.wgrad is not None:
            lines += schedule.wgrad.describe(self._sides())
        return lines

    def _sides(self) -> dict[Side, str]:
        """Which tensor is read through windows, and which has a position per window."""
        contraction = self.geometry.as_correlation()
        return {"wide": contraction.wide, "narrow": contraction.narrow}

    @property
    def memory(self) -> list[str]:
        """Footprints by liveness, then one row per role."""
        counts = self.plan.counts
        rows = [("role", "memory", "buffers", "largest", "dtype", "B/partition")]
        rows += [
            (b.role, b.space, str(b.count), _shape(b.shape), b.dtype, str(b.bytes_per_partition))
            for b in self.plan.buffers
        ]
        return [
            f"SBUF peak {counts.sbuf_peak_bytes} of {self.spec.sbuf_bytes_per_partition} bytes per "
            f"partition, PSUM peak {counts.psum_peak_banks} of {self.spec.psum_banks} banks",
            *_table(rows),
        ]

    @property
    def cost(self) -> list[str]:
        """Instructions and engine times by the hardware tables."""
        plan = self.plan
        busy = ", ".join(f"{name} {ns / 1000:.1f}" for name, ns in plan.times.by_engine)
        return [
            f"{plan.counts.instructions} instructions: "
            + ", ".join(f"{number} {name}" for name, number in plan.counts.by_name),
            *self._text_notes(),
            f"{plan.counts.dma_bytes_in} bytes read, {plan.counts.dma_bytes_out} bytes written; "
            f"compulsory {plan.compulsory_bytes}",
            f"busy us: {busy}; bound by {plan.times.bound}",
            f"makespan {plan.estimate_us:.1f} us expected; floor {plan.floor_us:.1f} us",
        ]

    def _text_notes(self) -> list[str]:
        """Say what loops, or their absence, mean for running and compiling the text."""
        plan = self.plan
        notes = []
        if plan.schedule.rolled:
            notes.append(f"executed with loops: {plan.counts.executed} instructions")
        if plan.warning:
            notes.append(plan.warning)
        notes.append(f"needs NKI {plan.oldest_nki} or newer")
        return notes

    @property
    def pseudocode(self) -> list[str]:
        """The order of work in a few lines."""
        schedule, problem = self.plan.schedule, self.plan.problem
        lines = []
        if problem.groups < problem.all_groups:
            lines.append(f"for each {problem.groups} groups, all of the following:")
        filters = "filters: one matrix [dy channels, dx channels] per tap"
        if schedule.filters_late:
            filters += "; those of later dx channels when their turn comes"
        is_early = schedule.dgrad is not None and schedule.dgrad.filters_resident
        if is_early and not schedule.dx_last:
            lines.append(filters)
        rolled = ", ".join("NDHW"[axis] for axis in schedule.rolled)
        together = f", {schedule.together} at a time" if schedule.together > 1 else ""
        loops = f", in loops along {rolled}{together}" if rolled else ""
        lines += [f"for each slab{loops}{self._ahead}:", "    load dy, channels on partitions"]
        if not schedule.dx_last:
            lines += self._dx_lines()
        if schedule.bgrad:
            lines.append("    db partial = sum of dy over positions")
        if schedule.wgrad is not None:
            lines += self._dw_lines(in_loops=bool(rolled))
        if schedule.dx_last:
            lines += [f"    meanwhile {filters}", *self._dx_lines()]
        if schedule.wgrad is not None and rolled:
            lines.append("dw = the sums, rounded once")
        if schedule.bgrad:
            lines.append("db = sum of partial sums, rounded once")
        return lines

    def _dx_lines(self) -> list[str]:
        dgrad = self.plan.schedule.dgrad
        if dgrad is None:
            return []
        lines = ["    for each tile of dx:", *(_SIDE_BY_SIDE if dgrad.beside > 1 else _TAP_BY_TAP)]
        if dgrad.tail is not None:
            last = f"    for each tile of dx, last {dgrad.tail.in_block} channels:"
            lines += [last, *_SIDE_BY_SIDE]
        return lines

    @property
    def _ahead(self) -> str:
        schedule = self.plan.schedule
        groups = slab_groups(self.plan.problem, schedule)
        if not schedule.loads_ahead or all(len(group.slabs) == 1 for group in groups):
            return ""
        return "; loads run a slab ahead" + " within an iteration" * bool(schedule.rolled)

    def _dw_lines(self, *, in_loops: bool) -> list[str]:
        wgrad = self.plan.schedule.wgrad
        assert wgrad is not None
        names = self._sides()
        still, moving = names[wgrad.stationary], names[wgrad.moving]
        return [
            f"    load x; turn {still} and {moving}: positions on partitions",
            f"    for each block of {still} channels, for each run of taps:",
            f"        for each entry: psum += {still}.T @ {moving}, shifted by the taps",
            "        add psum to its sum in SBUF"
            if in_loops
            else "        add psum to the sum of earlier slabs, or round and store it",
        ]


_TAP_BY_TAP = (
    "        for each tap: psum += filter.T @ shifted dy",
    "        evict psum, rounded, to its rows of dx; then store the rows",
)
_SIDE_BY_SIDE = (
    "        for each tap of D and H: psum += [filters of several taps of W].T @ shifted dy",
    "        add the parts of psum up, each shifted by its tap of W",
    "        round the sums to their rows of dx; then store the rows",
)


def _shape(extents: Sequence[int]) -> str:
    return f"[{', '.join(str(extent) for extent in extents)}]"


def _pieces(extent: int, piece: int) -> str:
    whole, rest = divmod(extent, min(piece, extent))
    return f"{whole} + rest {rest}" if rest else str(whole)


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align rows of text in columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
