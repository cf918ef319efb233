# SPDX-License-Identifier: Apache-2.0
"""Geometries are canonical, and their shapes are those of the kernel's interface."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given

from conv3d_codegen.geometry import ConvGeometry
from conv3d_codegen.geometry.numbers import spread_over_axes
from strategies import FEATURES, geometries

CONV2D = {"shape": (2, 8, 14, 15), "filters": (12, 3, 4)}


def test_equal_problems_are_equal_objects_however_they_are_spelled() -> None:
    plain = ConvGeometry.from_shapes(
        (2, 8, 14, 15), (12, 3, 4), layout="NDHWC", filter_layout="OIDHW"
    )
    spelled = ConvGeometry.from_shapes(
        [np.int64(2), 8, 14, 15],
        [12, 3, 4],
        stride=[1, 1],
        padding=(0, 0, 0, 0),
        gradients=["db", "dw", "dx"],
        out_dtype="bf16",
        layout="nhwc",
        filter_layout="OIHW",
    )
    assert spelled == plain
    assert hash(spelled) == hash(plain)
    assert type(spelled.batch) is int


def test_lower_ranks_get_unit_axes_in_front() -> None:
    geometry = ConvGeometry.from_shapes((2, 8, 15), (12, 4), stride=2, padding=(1, 2))
    assert geometry.rank == 1
    assert geometry.input_size == (1, 1, 15)
    assert geometry.kernel_size == (1, 1, 4)
    assert geometry.stride == (1, 1, 2)
    assert geometry.padding == (0, 0, 0, 0, 1, 2)
    assert geometry.output_size == (1, 1, 8)


@pytest.mark.parametrize(
    ("layout", "x_shape", "dy_shape"),
    [("NCHW", (2, 8, 14, 15), (2, 12, 12, 12)), ("NHWC", (2, 14, 15, 8), (2, 12, 12, 12))],
)
def test_activations_have_the_users_rank_and_layout(
    layout: str, x_shape: tuple[int, ...], dy_shape: tuple[int, ...]
) -> None:
    geometry = ConvGeometry.from_shapes(**CONV2D, layout=layout)
    assert geometry.x_shape == geometry.dx_shape == x_shape
    assert geometry.dy_shape == dy_shape
    assert geometry.db_shape == (12,)


@pytest.mark.parametrize(
    ("layout", "ordinary", "transposed"),
    [
        ("HWCN", (3, 4, 4, 12), (3, 4, 6, 8)),
        ("OIHW", (12, 4, 3, 4), (8, 6, 3, 4)),
        ("OHWI", (12, 3, 4, 4), (8, 3, 4, 6)),
    ],
)
def test_filters_have_the_users_layout_and_pytorchs_channel_axes(
    layout: str, ordinary: tuple[int, ...], transposed: tuple[int, ...]
) -> None:
    geometry = ConvGeometry.from_shapes(
        **CONV2D, groups=2, filter_layout=layout.replace("HW", "DHW")
    )
    assert geometry.filter_shape == geometry.dw_shape == ordinary
    other = ConvGeometry.from_shapes(**CONV2D, groups=2, filter_layout=layout, transposed=True)
    assert other.filter_shape == transposed


def test_rank_1_may_call_its_axis_l() -> None:
    geometry = ConvGeometry.from_shapes((2, 8, 15), (12, 4), layout="NLC", filter_layout="OIL")
    assert (geometry.layout, geometry.filter_layout) == ("NDHWC", "OIDHW")
    assert (geometry.x_shape, geometry.filter_shape) == ((2, 15, 8), (12, 8, 4))


def test_a_transposed_convolution_swaps_the_roles_of_x_and_dy() -> None:
    geometry = ConvGeometry.from_shapes(
        (1, 8, 7), (12, 3), stride=2, padding=1, transposed=True, output_padding=1
    )
    assert geometry.output_size == (1, 1, 14)
    contraction = geometry.as_correlation()
    assert (contraction.wide, contraction.narrow) == ("dy", "x")
    assert (contraction.wide_channels, contraction.narrow_channels) == (12, 8)


@given(geometries(FEATURES))
def test_the_contraction_has_the_extents_of_its_tensors(geometry: ConvGeometry) -> None:
    extents = {"x": geometry.input_size, "dy": geometry.output_size}
    contraction = geometry.as_correlation()
    assert tuple(axis.size for axis in contraction.axes) == extents[contraction.wide]
    assert tuple(axis.out for axis in contraction.axes) == extents[contraction.narrow]
    assert contraction.axes == geometry.axes


@given(geometries(FEATURES))
def test_geometries_survive_pickling(geometry: ConvGeometry) -> None:
    assert pickle.loads(pickle.dumps(geometry)) == geometry


@pytest.mark.parametrize(
    ("name", "value", "spread"),
    [
        ("stride", 2, (2, 2, 2)),
        ("stride", (1, 2, 3), (1, 2, 3)),
        ("padding", 1, (1, 1, 1, 1, 1, 1)),
        ("padding", (0, 1, 2), (0, 0, 1, 1, 2, 2)),
        ("padding", (0, 1, 2, 3, 4, 5), (0, 1, 2, 3, 4, 5)),
    ],
)
def test_spatial_values_are_one_number_one_per_axis_or_two_for_padding(
    name: str, value: int | tuple[int, ...], spread: tuple[int, ...]
) -> None:
    assert spread_over_axes(name, value, 3) == spread
