# SPDX-License-Identifier: Apache-2.0
"""Modelled figures of AWS's own kernel, nkilib's conv3d_bwd, to compare with."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

BATCH = 1  # of all figures


@dataclass(frozen=True, slots=True)
class NkilibFigures:
    """One layer: text length, makespan, and its busiest engine alone, as if all else hid behind it."""

    instructions: int
    makespan_us: float
    busiest_us: float


@cache
def nkilib_figures() -> Mapping[str, NkilibFigures]:
    """Read the figures by layer; layers that do not fit nkilib's allocator have none."""
    file = resources.files("conv3d_codegen") / "data" / "nkilib_figures.json"
    layers = json.loads(file.read_text(encoding="utf-8"))["layers"]
    return {
        layer["layer"]: NkilibFigures(
            layer["instructions"], layer["makespan_us"], layer["busiest_us"]
        )
        for layer in layers
        if "makespan_us" in layer
    }
