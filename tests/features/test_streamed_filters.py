# SPDX-License-Identifier: Apache-2.0
"""Filters that do not all fit on chip are prepared again for each group of dx tiles."""

from __future__ import annotations

from conv3d_codegen.api import plan
from conv3d_codegen.geometry import ConvGeometry
from exactness import assert_exact


def test_several_blocks_of_channels_on_both_sides_are_exact() -> None:
    geometry = ConvGeometry.from_shapes(
        (1, 260, 8, 8), (390, 7, 7), stride=(1, 3), gradients=("dx",), dtype="fp32"
    )
    dgrad = plan(geometry).schedule.dgrad
    assert dgrad is not None
    assert not dgrad.filters_resident
    assert_exact(geometry)
