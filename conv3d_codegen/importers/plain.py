# SPDX-License-Identifier: Apache-2.0
"""Plain lists: JSON or TOML by people and scripts, with more freedom than a LAYERS file has.

An entry is a geometry key, or an object with the fields of a LAYERS file or with the names that
`ConvGeometry` has for them. Model and layer may be missing: the file's name and the entry's number
stand in.
"""

from __future__ import annotations

import json
import tomllib
from typing import Any

from conv3d_codegen.errors import MalformedLayers, RequestError
from conv3d_codegen.geometry import ConvGeometry
from conv3d_codegen.importers.collect import Imported, Skipped
from conv3d_codegen.layers import Layer, parse_layers

_SYNONYMS = {
    "batch": "n",
    "in_channels": "cin",
    "out_channels": "cout",
    "input_size": "in",
    "kernel_size": "kernel",
    "output_size": "out",
    "name": "layer",
}


def read_plain(text: str, model: str, *, is_toml: bool) -> Imported:
    """Read a list of problems; entries that are no valid problem are skipped.

    Raises:
        RequestError: the text is no list of entries.
    """
    layers, skipped = [], []
    for number, entry in enumerate(_entries(text, model, is_toml=is_toml), 1):
        try:
            layers.append(_layer(entry, model, number))
        except RequestError as error:
            skipped.append(Skipped(f"entry {number}", str(error)))
    return Imported(tuple(layers), tuple(skipped))


def _entries(text: str, model: str, *, is_toml: bool) -> list[Any]:
    try:
        content = tomllib.loads(text) if is_toml else json.loads(text)
    except (json.JSONDecodeError, tomllib.TOMLDecodeError) as error:
        raise MalformedLayers(model, str(error), "a list of entries as JSON or TOML") from None
    if isinstance(content, dict):
        content = content.get("layers")
    if not isinstance(content, list):
        raise MalformedLayers(model, "no list of entries", "a list, or one under the name layers")
    return content


def _layer(entry: Any, model: str, number: int) -> Layer:
    if isinstance(entry, str):
        return Layer(model, f"entry{number}", ConvGeometry.parse(entry))
    if not isinstance(entry, dict):
        raise MalformedLayers(f"{entry!r}", "neither key nor object", "geometry keys and objects")
    renamed: dict[str, Any] = {"model": model, "layer": f"entry{number}"}
    stated: dict[str, Any] = entry
    for name, value in stated.items():
        renamed[_SYNONYMS.get(name, name)] = value
    (layer,) = parse_layers(json.dumps([renamed]), model)
    return layer
