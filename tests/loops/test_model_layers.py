# SPDX-License-Identifier: Apache-2.0
"""Every layer of the model table, at its full batch and extents, stays within the instruction budget."""

from __future__ import annotations

from pathlib import Path

import pytest

from conv3d_codegen.api import EmitOptions, plan
from conv3d_codegen.layers import Layer, read_layers

LAYERS = read_layers(Path(__file__).parents[1] / "data" / "model_layers.json")

# 768 and 1024 channels on either side: the filters exceed SBUF, so every kind of slab turns them again.
LONGER = {"Mochi-VAE/res768": 14_500, "Wan2.2-VAE/1024x1024_2x60x104": 19_000}


@pytest.mark.sweep
@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.name)
def test_text_is_within_the_budget(layer: Layer) -> None:
    limit = LONGER.get(layer.name, EmitOptions().max_instructions)
    assert plan(layer.geometry).counts.instructions <= limit
