# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given, settings

from conv3d_codegen.maps import useful_macs
from conv3d_codegen.reference import conv_backward_reference
from strategies import geometries

if TYPE_CHECKING:
    from conv3d_codegen.geometry import ConvGeometry


@settings(max_examples=50, deadline=None)
@given(geometries(features=["ranks", "groups", "transposed", "gradients"], max_channels=6))
def test_ones_count_their_products(geometry: ConvGeometry) -> None:
    shapes = (geometry.dy_shape, geometry.x_shape, geometry.filter_shape)
    gradients = conv_backward_reference(geometry, *(np.ones(shape, int) for shape in shapes))
    products = sum(int(values.sum()) for name, values in gradients.items() if name != "db")
    assert useful_macs(geometry) == products
