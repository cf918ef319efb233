# SPDX-License-Identifier: Apache-2.0
"""The digest of everything that shapes a kernel's text: equal recipes mean equal bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from conv3d_codegen.sources import generator_digest
from conv3d_codegen.targets import target

if TYPE_CHECKING:
    from conv3d_codegen.geometry import ConvGeometry
    from conv3d_codegen.planner.options import EmitOptions
    from conv3d_codegen.targets import TargetSpec


def recipe(geometry: ConvGeometry, options: EmitOptions) -> str:
    """Return the recipe of a kernel that this installation would emit."""
    return digest(geometry, options, target(geometry.target), generator_digest())


def digest(geometry: ConvGeometry, options: EmitOptions, spec: TargetSpec, generator: str) -> str:
    """SHA-256 over every field of the problem, the options and the hardware table."""
    ingredients = {
        "geometry": plain(geometry),
        "options": plain(options),
        "target": plain(spec),
        "generator": generator,
    }
    text = json.dumps(ingredients, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def plain(value: Any) -> Any:
    """Write a value as JSON data, the same for equal values.

    Raises:
        TypeError: the value is of a kind that has no such form, so it must not be left out either.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    raise TypeError(f"{value!r} has no plain form")
