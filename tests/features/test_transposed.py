# SPDX-License-Identifier: Apache-2.0
"""Transposed convolutions: dx is a correlation of dy, dw the filter gradient with x and dy exchanged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conv3d_codegen.api import emit
from conv3d_codegen.geometry import ConvGeometry
from exactness import assert_exact

BASE = ConvGeometry(
    batch=2,
    in_channels=20,
    out_channels=12,
    input_size=(2, 3, 4),
    kernel_size=(2, 3, 2),
    transposed=True,
)


@pytest.mark.parametrize("stride", [(1, 1, 1), (2, 2, 2), (1, 3, 2)])
@pytest.mark.parametrize("padding", [(0,) * 6, (1, 0, 1, 2, 0, 1)])
def test_strides_and_padding_are_exact(
    stride: tuple[int, int, int], padding: tuple[int, int, int, int, int, int]
) -> None:
    assert_exact(replace(BASE, stride=stride, padding=padding))


def test_output_padding_reaches_past_the_last_window() -> None:
    assert_exact(replace(BASE, stride=(2, 3, 4), output_padding=(1, 2, 3)))
    assert_exact(replace(BASE, dilation=(3, 1, 2), output_padding=(2, 0, 1)))


def test_kernels_smaller_than_the_stride_leave_positions_that_only_db_sees() -> None:
    assert_exact(replace(BASE, kernel_size=(1, 1, 1), stride=(2, 2, 2)))


@pytest.mark.parametrize("gradients", [("dx",), ("dw",), ("db",), ("dx", "db"), ("dw", "db")])
def test_every_subset_of_gradients_is_exact(gradients: tuple[str, ...]) -> None:
    assert_exact(replace(BASE, stride=(1, 2, 2), gradients=gradients))


@pytest.mark.parametrize("groups", [2, 4])
def test_groups_are_exact(groups: int) -> None:
    assert_exact(replace(BASE, groups=groups, stride=(2, 1, 2)))


def test_channels_beyond_the_partitions_are_exact() -> None:
    assert_exact(replace(BASE, in_channels=140, out_channels=260, stride=(2, 2, 2)))


@pytest.mark.parametrize("filter_layout", ["DHWCN", "OIDHW", "ODHWI"])
def test_filter_orders_are_exact(filter_layout: str) -> None:
    assert_exact(replace(BASE, stride=(2, 2, 2), filter_layout=filter_layout))


def test_filters_in_default_order_are_not_turned() -> None:
    """Dy's channels are the rows of [.., wide, narrow]: they go on partitions as they are."""
    source = emit(replace(BASE, stride=(2, 2, 2), gradients=("dx",))).source
    assert "nc_transpose" not in source
