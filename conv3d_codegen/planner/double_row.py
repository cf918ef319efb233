# SPDX-License-Identifier: Apache-2.0
"""Double-row matmuls: two blocks of dy's channels, or two positions, contract at once, in 8 bits.

With perf_mode double_row, nc_matmul contracts [K, 2, M] with [K, 2, N] in the time that it takes for K rows of 16 bits
(Trainium2 architecture guide). Both operands are documented with these axes and no more, so that N is a single run.

For dx, the two are blocks of dy's channels. The rows of a dy window lie one after the other, far enough apart that a
tap which reaches beyond a row reads zeros, and a tile of dx has the same pitch. What lies between its rows is never
read.

For dw, the two are neighbouring positions of every partition, along an axis of which a chain has one tap. The other
taps of a matmul run along H alone, beside all channels of the moving tensor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from conv3d_codegen.dtypes import dtype
from conv3d_codegen.planner.blocks import BANK_COLUMNS, ceil_div, split_even
from conv3d_codegen.planner.estimate import dx_cuts
from conv3d_codegen.targets import target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conv3d_codegen.geometry import ConvGeometry
    from conv3d_codegen.planner.axes import DgradAxis
    from conv3d_codegen.planner.schedule import WgradPlan

Range = tuple[int, int]

HALVES = 2  # blocks of channels that one matmul contracts: nc_matmul's axis of that length


@dataclass(frozen=True, slots=True)
class RowLayout:
    """Where a row of dy lies: `lead` zeros, its columns, zeros up to `pitch`, where those of the next row begin."""

    lead: int
    pitch: int


def row_layout(axis: DgradAxis, low: int, high: int) -> RowLayout:
    """Lay out the row of dy that dx columns [low, high) read; its zeros serve the end of the row before too."""
    first, stop = axis.reach(low, high)
    held_first, held_stop = axis.held(low, high)
    lead, trail = held_first - first, stop - held_stop
    columns = max(
        stop - first for phase in axis.phases for first, stop in [axis.blocks_for(phase, low, high)]
    )
    return RowLayout(lead, max(lead + held_stop - held_first + max(0, trail - lead), columns))


def most_pitch(axis: DgradAxis, slab: int) -> int:
    """Largest pitch of the rows of any slab."""
    return max((row_layout(axis, *cut).pitch for cut in dx_cuts(axis, slab)), default=1)


def tile_of_rows(
    axes: Sequence[DgradAxis], slab: Sequence[int], blocks: Sequence[int]
) -> tuple[int, int, int]:
    """Largest PSUM tile of rows of one plane, with the zeros between them; or of a part of one row."""
    _, height, width = blocks
    w = split_even(width, BANK_COLUMNS)
    if w < width:
        return 1, 1, w
    return 1, split_even(height, BANK_COLUMNS // most_pitch(axes[2], slab[2])), w


def paired_block(channels: int, most: int) -> int | None:
    """Channels of each of an even number of equal blocks of at most `most`; None if channels do not divide so."""
    blocks = HALVES * ceil_div(channels, HALVES * most)
    return channels // blocks if channels % blocks == 0 else None


def _are_8_bits(geometry: ConvGeometry, *names: str) -> bool:
    """Whether inputs are 8-bit floats on a target that pairs them."""
    types = (geometry.input_dtypes[name] for name in names)
    return target(geometry.target).double_row and all(dtype(name).bytes == 1 for name in types)


def may_pair_positions(geometry: ConvGeometry, plan: WgradPlan) -> bool:
    """Whether matmuls of dw may contract two positions of a partition: no taps or rows lie beside channels."""
    is_plain = plan.stationary_axis is None and plan.rows == 1
    return is_plain and _are_8_bits(geometry, "dy", "x")


def may_double(geometry: ConvGeometry, axes: Sequence[DgradAxis]) -> bool:
    """Whether dx's operands are 8-bit floats on a target that pairs them, and its rows read dy's densely."""
    return (
        _are_8_bits(geometry, "dy", "filters")
        and not any(axis.blocked for axis in axes)
        and axes[1].step == axes[2].step == 1
    )


def rows_read(axis: DgradAxis, slab: int) -> int:
    """Rows of dy that dx reads, over all slabs."""
    return sum(stop - first for cut in dx_cuts(axis, slab) for first, stop in [axis.held(*cut)])


def most_rows(axis: DgradAxis, slab: int) -> int:
    """Rows of dy that the largest slab of dx reads."""
    held = (axis.held(*cut) for cut in dx_cuts(axis, slab))
    return max((stop - first for first, stop in held), default=0)
