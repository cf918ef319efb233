# SPDX-License-Identifier: Apache-2.0
"""Kernels of the layers of public models, at reduced extents and, for six of them, in full."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from conv3d_codegen.layers import Layer, read_layers, select_layer
from conv3d_codegen.verify import verify_geometry

if TYPE_CHECKING:
    from conv3d_codegen.geometry import ConvGeometry

LAYERS = read_layers(Path(__file__).parents[1] / "data" / "model_layers.json")
ORDINARY = [
    layer for layer in LAYERS if layer.geometry.groups == 1 and not layer.geometry.transposed
]

FULL_SIZE = (
    "C3D/conv3b",
    "R3D-18/layer.conv3",
    "R3D-18/stem",
    "nnU-Net-3d_fullres/enc4.conv0",
    "Wan2.1-VAE/mid.res384",
    "VideoMAE/ViT-B.patch_embed",
)

pytestmark = pytest.mark.sweep


def reduced(geometry: ConvGeometry) -> ConvGeometry:
    """Cut the batch to 2 and each extent to four strides and a window; channels stay."""
    extents = (min(axis.size, 4 * axis.stride + axis.extent) for axis in geometry.axes)
    depth, height, width = extents
    return replace(geometry, batch=min(2, geometry.batch), input_size=(depth, height, width))


def check(geometry: ConvGeometry) -> None:
    report = verify_geometry(geometry)
    assert not report.violations
    assert all(result.exact for result in report.gradients)


@pytest.mark.parametrize("layer", ORDINARY, ids=lambda layer: layer.name)
def test_reduced_layer(layer: Layer) -> None:
    check(reduced(layer.geometry))


@pytest.mark.parametrize("name", FULL_SIZE)
def test_full_size_layer(name: str) -> None:
    check(replace(select_layer(LAYERS, name, "model_layers.json").geometry, batch=1))
