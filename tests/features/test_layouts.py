# SPDX-License-Identifier: Apache-2.0
"""Orders of activations and filters, every one with every other."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from conv3d_codegen.api import emit, plan
from conv3d_codegen.geometry import ConvGeometry
from conv3d_codegen.geometry.layouts import ACTIVATION_LAYOUTS, FILTER_LAYOUTS
from exactness import assert_exact

BASE = ConvGeometry(
    batch=2,
    in_channels=24,
    out_channels=40,
    input_size=(3, 6, 7),
    kernel_size=(2, 3, 3),
    padding=(0, 1, 1, 1, 2, 0),
)


@pytest.mark.parametrize(
    ("layout", "filter_layout"), list(product(ACTIVATION_LAYOUTS, FILTER_LAYOUTS))
)
def test_every_pair_is_exact(layout: str, filter_layout: str) -> None:
    assert_exact(replace(BASE, layout=layout, filter_layout=filter_layout))


@pytest.mark.parametrize("filter_layout", FILTER_LAYOUTS)
def test_channels_last_with_strides_and_dilation_is_exact(filter_layout: str) -> None:
    geometry = replace(BASE, layout="NDHWC", filter_layout=filter_layout)
    assert_exact(replace(geometry, stride=(1, 2, 3)))
    assert_exact(replace(geometry, dilation=(1, 2, 3)))


@pytest.mark.parametrize("layout", ACTIVATION_LAYOUTS)
def test_many_channels_are_exact(layout: str) -> None:
    assert_exact(replace(BASE, in_channels=150, out_channels=130, layout=layout))


@pytest.mark.parametrize("filter_layout", ["OIDHW", "ODHWI"])
def test_filters_with_their_output_channels_first_are_not_turned(filter_layout: str) -> None:
    """Dy's channels are the rows of these orders: they go on partitions as they are."""
    geometry = replace(BASE, filter_layout=filter_layout, gradients=("dx",))
    assert "nc_transpose" not in emit(geometry).source


WIDE = replace(BASE, batch=1, in_channels=128, out_channels=128, padding=(0,) * 6)


def test_channels_last_costs_little_more_transfer_time() -> None:
    """Elements are not moved one by one: transfers take runs of whole channel blocks."""
    busy = [
        dict(plan(replace(WIDE, layout=layout)).times.by_engine)["dma"]
        for layout in ACTIVATION_LAYOUTS
    ]
    assert busy[1] < 2 * busy[0]


@pytest.mark.parametrize("filter_layout", ["OIDHW", "ODHWI"])
def test_other_filter_orders_cost_no_more_transfer_time(filter_layout: str) -> None:
    """Neither filters nor dw are moved one by one either."""
    busy = [
        dict(plan(replace(WIDE, filter_layout=name)).times.by_engine)["dma"]
        for name in ("DHWCN", filter_layout)
    ]
    assert busy[1] < 1.2 * busy[0]


def test_taps_beside_channels_that_engines_cannot_address_are_stored_one_by_one() -> None:
    geometry = ConvGeometry.from_shapes(
        (1, 1, 7, 4), (44, 3, 2), stride=(1, 3), padding=(1, 2, 2, 1), filter_layout="OIHW"
    )
    assert_exact(geometry)


@pytest.mark.parametrize("stride", [(1, 1, 1), (1, 2, 2)])
def test_dw_reads_channels_last_tensors_as_they_are(stride: tuple[int, int, int]) -> None:
    """Positions lie on partitions already: no window with channels on partitions is made to be turned."""
    geometry = replace(BASE, layout="NDHWC", stride=stride, gradients=("dw",))
    assert "_win_" not in emit(geometry).source
    assert "_win_" in emit(replace(geometry, layout="NCDHW")).source
    assert_exact(geometry)
    assert_exact(replace(geometry, transposed=True, padding=(0,) * 6))
