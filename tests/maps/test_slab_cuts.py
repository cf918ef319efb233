# SPDX-License-Identifier: Apache-2.0
"""Slabs: which sizes there are, and who takes the rows beyond the last window."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conv3d_codegen.geometry import AxisGeometry
from conv3d_codegen.planner.axes import dgrad_axis
from conv3d_codegen.planner.blocks import MOST_PIECES, PIECE_BYTES, even_pieces
from conv3d_codegen.planner.estimate import dx_cuts
from conv3d_codegen.planner.grid import AxisCuts
from conv3d_codegen.planner.slab_grid import SlabGrid


def test_padding_makes_no_slab_of_its_own() -> None:
    """128 rows and one of padding in front: the last slab takes the row that 8 times 16 windows leave."""
    cuts = AxisCuts(AxisGeometry(128, 3, 1, 1, 1, 1), 16)
    assert [cuts.wide(index) for index in range(cuts.count)] == [
        (0, 15),
        *((16 * n - 1, 16 * n + 15) for n in range(1, 7)),
        (111, 128),
    ]


def test_many_rows_beyond_the_last_window_are_slabs_of_their_own() -> None:
    assert AxisCuts(AxisGeometry(64, 33, 1, 1, 0, 0), 16).count == 4


@given(
    size=st.integers(1, 60),
    kernel=st.integers(1, 9),
    stride=st.integers(1, 4),
    dilation=st.integers(1, 3),
    pad=st.integers(0, 8),
    slab=st.integers(1, 60),
)
def test_slabs_cover_every_row_and_window_once(
    size: int, kernel: int, stride: int, dilation: int, pad: int, slab: int
) -> None:
    axis = AxisGeometry(size, kernel, stride, dilation, pad, pad)
    if axis.out < 1:
        return
    cuts = AxisCuts(axis, slab)
    for rows_of, extent in ((cuts.wide, size), (cuts.narrow, axis.out)):
        rows = [row for index in range(cuts.count) for row in range(*rows_of(index))]
        assert rows == list(range(extent))
    ends = [cuts.wide(index) for index in range(cuts.count)]
    assert list(dx_cuts(dgrad_axis(axis), slab)) == [end for end in ends if end[0] < end[1]]
    assert cuts.most_wide >= max(stop - first for first, stop in ends)


def test_neighbouring_sizes_differ_by_one_cut_or_an_exchange() -> None:
    grid = SlabGrid.of((2, 8, 8, 8), (1, 2))
    assert set(grid.neighbours((1, 4, 4, 8))) == {
        (1, 2, 4, 8),
        (1, 8, 4, 8),
        (1, 4, 2, 8),
        (1, 4, 8, 8),
        (1, 4, 4, 4),
        (1, 2, 8, 8),
        (1, 8, 2, 8),
    }
    assert next(iter(grid.largest_first())) == (2, 8, 8, 8)
    assert set(grid.largest_first()) <= set(grid.all())


@pytest.mark.parametrize("unit_bytes", [1, PIECE_BYTES // 3, PIECE_BYTES, 5 * PIECE_BYTES])
def test_pieces_are_few_and_not_short(unit_bytes: int) -> None:
    size = even_pieces(40, 2, unit_bytes)
    assert size % 2 == 0
    assert -(-40 // size) <= MOST_PIECES
    assert size >= 40 or size // 2 * unit_bytes >= PIECE_BYTES
