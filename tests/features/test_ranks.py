# SPDX-License-Identifier: Apache-2.0
"""Problems of rank 1 and 2: the kernel keeps the user's rank in its interface."""

from __future__ import annotations

from typing import Any

import pytest

from conv3d_codegen.api import plan
from conv3d_codegen.geometry import ConvGeometry
from exactness import assert_exact

PROBLEMS = [
    ((2, 5, 9), (7, 3), {"stride": 2, "padding": (1, 0)}),
    ((1, 130, 20), (3, 4), {"dilation": 3, "layout": "NLC", "filter_layout": "OIL"}),
    ((3, 6, 4), (6, 2), {"transposed": True, "stride": 3, "output_padding": 2, "groups": 3}),
    ((2, 5, 6, 7), (4, 3, 2), {"stride": (2, 1), "padding": (1, 1, 0, 2)}),
    ((1, 4, 6, 7), (8, 3, 3), {"layout": "NHWC", "filter_layout": "OHWI", "groups": 2}),
    ((2, 8, 3, 3), (4, 2, 2), {"transposed": True, "stride": 2}),
]


@pytest.mark.parametrize(("shape", "filters", "more"), PROBLEMS)
def test_lower_ranks_are_exact(
    shape: tuple[int, ...], filters: tuple[int, ...], more: dict[str, Any]
) -> None:
    geometry = ConvGeometry.from_shapes(shape, filters, **more)
    assert_exact(geometry)
    shapes = plan(geometry).output_shapes
    assert len(shapes["dx"]) == len(shape)
    assert len(shapes["dw"]) == len(filters) + 1
