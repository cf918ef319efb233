# SPDX-License-Identifier: Apache-2.0
"""Kernels of the layers of public models, at reduced extents and, for six of them, in full."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from conv3d_codegen.layers import Layer, read_layers, select_layer
from exactness import assert_exact

if TYPE_CHECKING:
    from conv3d_codegen.geometry import ConvGeometry

LAYERS = read_layers(Path(__file__).parents[1] / "data" / "model_layers.json")
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
    """Cut the batch to 2 and each extent to some four windows beside each other; channels stay."""
    most = [5 if geometry.transposed else 4 * axis.stride + axis.extent for axis in geometry.axes]
    depth, height, width = map(min, geometry.input_size, most)
    return replace(geometry, batch=min(2, geometry.batch), input_size=(depth, height, width))


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.name)
def test_reduced_layer(layer: Layer) -> None:
    assert_exact(reduced(layer.geometry))


@pytest.mark.parametrize("name", FULL_SIZE)
def test_full_size_layer(name: str) -> None:
    assert_exact(replace(select_layer(LAYERS, name, "model_layers.json").geometry, batch=1))
