# SPDX-License-Identifier: Apache-2.0
"""Groups from one to one per channel, with any number of channels in a group."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from conv3d_codegen.api import emit, plan
from conv3d_codegen.geometry import ConvGeometry
from exactness import assert_exact

BASE = ConvGeometry(
    batch=2,
    in_channels=12,
    out_channels=24,
    input_size=(4, 5, 6),
    kernel_size=(2, 3, 3),
    padding=(1, 0, 1, 1, 1, 1),
)

CHANNELS = [
    (12, 24, 2),  # few channels per group: several groups share the array
    (12, 24, 4),
    (24, 24, 24),  # depthwise
    (10, 30, 10),  # depthwise with multiplier 3
    (30, 10, 10),  # the other way round
    (260, 260, 2),  # a group alone exceeds the partitions
    (7 * 40, 7 * 40, 7),  # packs of unequal size
    (150, 150, 150),  # more groups than partitions
    (3, 3 * 140, 3),  # wide multiplier
]


@pytest.mark.parametrize(("in_channels", "out_channels", "groups"), CHANNELS)
def test_groups_are_exact(in_channels: int, out_channels: int, groups: int) -> None:
    assert_exact(replace(BASE, in_channels=in_channels, out_channels=out_channels, groups=groups))


@pytest.mark.parametrize("stride", [(1, 2, 2), (2, 2, 2), (3, 1, 4)])
def test_strided_depthwise_is_exact(stride: tuple[int, int, int]) -> None:
    assert_exact(replace(BASE, in_channels=40, out_channels=40, groups=40, stride=stride))


@pytest.mark.parametrize("filter_layout", ["OIDHW", "ODHWI"])
def test_grouped_filters_in_other_orders_are_exact(filter_layout: str) -> None:
    assert_exact(replace(BASE, groups=4, filter_layout=filter_layout, layout="NDHWC"))


def test_transfers_of_depthwise_filters_do_not_grow_with_the_groups() -> None:
    few = replace(BASE, in_channels=16, out_channels=16, groups=16)
    many = replace(BASE, in_channels=32, out_channels=32, groups=32)
    counts = [dict(plan(geometry).counts.by_name)["dma_copy"] for geometry in (few, many)]
    assert counts[1] <= counts[0] + BASE.batch


def test_every_group_is_stored_once() -> None:
    geometry = replace(BASE, in_channels=150, out_channels=150, groups=150)
    stored = emit(geometry).plan.counts.dma_bytes_out
    elements = sum(math.prod(shape) for shape in plan(geometry).output_shapes.values())
    assert stored == 2 * elements


def test_groups_with_more_filters_than_are_staged_stay_together() -> None:
    """125 taps of 110 channels exceed what is staged at once; cut channels would not match whole packs."""
    geometry = ConvGeometry.from_shapes(
        (1, 110, 5, 5, 6), (55, 5, 5, 5), groups=55, stride=(4, 4, 1)
    )
    assert_exact(geometry)
