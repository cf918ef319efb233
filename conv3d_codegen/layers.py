# SPDX-License-Identifier: Apache-2.0
"""LAYERS files: lists of a model's convolution layers, as JSON or TOML.

A JSON file is an array of objects; a TOML file (by its suffix) has one `[[layers]]` table each. An
entry has

    model, layer           its name; `MODEL/LAYER` is how it is asked for
    n, cin, cout           batch and channels
    in, kernel             input and kernel extents, one number per axis (1 to 3 of them)

and, where it differs from the default, any of

    stride, dilation, padding, output_padding   one number, one per axis, two per axis for padding
    groups, transposed, gradients, dtype, dy_dtype, filter_dtype, out_dtype, math, layout,
    filter_layout, target, lnc
    rank                   when unit axes in front of `in` are not the user's
    out                    output extents, which are then checked
    source, note           where the layer was read, and what to know about it
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import MISSING, dataclass, fields, replace
from importlib import resources
from typing import TYPE_CHECKING, Any

from conv3d_codegen import keys
from conv3d_codegen.errors import MalformedLayers, RuleError, UnknownLayer
from conv3d_codegen.geometry import ConvGeometry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

_REQUIRED = ("model", "layer", "n", "cin", "cout", "in", "kernel")
_SPATIAL = ("stride", "dilation", "padding", "output_padding")
_INPUT_TYPES = ("dtype", "dy_dtype", "filter_dtype")
_TEXTS = (*_INPUT_TYPES, "out_dtype", "math", "layout", "filter_layout", "target")
_CHOICES = ("groups", "transposed", "gradients", *_TEXTS, "lnc")
_ABOUT = ("source", "note")

_Types = tuple[type, ...]
_TYPES: dict[str, _Types] = {
    **dict.fromkeys(("model", "layer", *_TEXTS, *_ABOUT), (str,)),
    **dict.fromkeys(("n", "cin", "cout", "groups", "lnc", "rank"), (int,)),
    **dict.fromkeys(("in", "kernel", "gradients", "out"), (list,)),
    **dict.fromkeys(_SPATIAL, (int, list)),
    "transposed": (bool,),
}
_TYPE_NAMES = {str: "text", int: "an integer", list: "a list", bool: "true or false"}

_DEFAULTS = {f.name: f.default for f in fields(ConvGeometry) if f.default is not MISSING}


@dataclass(frozen=True, slots=True)
class Layer:
    """One convolution of a model."""

    model: str
    layer: str
    geometry: ConvGeometry
    source: str = ""
    note: str = ""

    @property
    def name(self) -> str:
        """MODEL/LAYER."""
        return f"{self.model}/{self.layer}"


def read_layers(path: Path) -> tuple[Layer, ...]:
    """Read a LAYERS file."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise _malformed(str(path), "not UTF-8 text") from None
    return parse_layers(text, str(path))


def bench_layers() -> tuple[Layer, ...]:
    """Read the suite of real layers that ships with the package."""
    file = resources.files("conv3d_codegen") / "data" / "bench_layers.json"
    return parse_layers(file.read_text(encoding="utf-8"), "bench_layers.json")


def parse_layers(text: str, filename: str) -> tuple[Layer, ...]:
    """Read a LAYERS file's text; the name tells TOML from JSON and stands in error messages."""
    try:
        entries = tomllib.loads(text)["layers"] if _is_toml(filename) else json.loads(text)
    except (json.JSONDecodeError, tomllib.TOMLDecodeError) as error:
        raise _malformed(filename, str(error)) from None
    except KeyError:
        raise _malformed(filename, "there is no [[layers]] table") from None
    if not isinstance(entries, list):
        raise _malformed(filename, "the top level is not a list")
    return tuple(_layer(entry, f"{filename}, entry {i}") for i, entry in enumerate(entries, 1))


def select_layer(layers: Sequence[Layer], name: str, filename: str) -> Layer:
    """Find a layer by MODEL/LAYER, or by LAYER where that is unique."""
    found = [layer for layer in layers if name in {layer.name, layer.layer}]
    if len(found) == 1:
        return found[0]
    problem = f"{len(found)} layers have that name" if found else "there is no such layer"
    candidates = [layer.name for layer in found or layers]
    raise UnknownLayer(f"{filename}: {name}", problem, _some(candidates))


def format_layers(layers: Iterable[Layer], filename: str) -> str:
    """Write a LAYERS file's text, an entry per line of JSON or per table of TOML."""
    entries = [_entry(layer) for layer in layers]
    if _is_toml(filename):
        tables = ("".join(f"{k} = {_toml(v)}\n" for k, v in entry.items()) for entry in entries)
        return "\n".join(f"[[layers]]\n{table}" for table in tables) or "layers = []\n"
    return "[\n" + ",\n".join(map(_json, entries)) + "\n]\n"


def _layer(entry: Any, where: str) -> Layer:
    if not isinstance(entry, dict):
        raise _malformed(where, "not an object")
    for name in _REQUIRED:
        if name not in entry:
            raise _malformed(where, f"{name} is missing")
    where += f" ({entry['model']}/{entry['layer']})"
    for name, value in entry.items():
        if name not in _TYPES:
            raise _malformed(where, f"{name} is not a field of a layer", ", ".join(_TYPES))
        if not isinstance(value, _TYPES[name]):
            accepted = " or ".join(_TYPE_NAMES[kind] for kind in _TYPES[name])
            raise _malformed(where, f"{name} is {value!r}", accepted)
    try:
        geometry = _geometry(entry)
    except RuleError as error:
        given, problem, accepted = error.args
        raise type(error)(f"{where}: {given}", problem, accepted) from None
    _check_output(geometry, entry.get("out"), where)
    about = {name: entry[name] for name in _ABOUT if name in entry}
    return Layer(entry["model"], entry["layer"], geometry, **about)


def _geometry(entry: Mapping[str, Any]) -> ConvGeometry:
    choices = {name: entry[name] for name in _CHOICES if name in entry}
    spatial = {name: entry[name] for name in _SPATIAL if name in entry}
    geometry = ConvGeometry.from_shapes(
        (entry["n"], entry["cin"], *entry["in"]),
        (entry["cout"], *entry["kernel"]),
        **spatial,
        **choices,
    )
    return replace(geometry, rank=entry["rank"]) if "rank" in entry else geometry


def _check_output(geometry: ConvGeometry, out: Any, where: str) -> None:
    if out is not None and tuple(out) != geometry.output_size[3 - len(out) :]:
        raise _malformed(
            where, f"out is {out}", f"{list(geometry.output_size)}, which follows from the rest"
        )


def _entry(layer: Layer) -> dict[str, Any]:
    """Write a layer as the fields that say something."""
    geometry = layer.geometry
    rank = geometry.rank
    entry: dict[str, Any] = {"model": layer.model, "layer": layer.layer}
    entry.update(n=geometry.batch, cin=geometry.in_channels, cout=geometry.out_channels)
    entry["in"] = list(keys.lower("input_size", rank, geometry.input_size))
    entry["kernel"] = list(keys.lower("kernel_size", rank, geometry.kernel_size))
    for name in _SPATIAL:
        if getattr(geometry, name) != _DEFAULTS[name]:
            entry[name] = _shortest(keys.lower(name, rank, getattr(geometry, name)))
    for name in _CHOICES:
        default = geometry.dtype if name == "out_dtype" else _DEFAULTS[name]
        if getattr(geometry, name) != default:
            entry[name] = getattr(geometry, name)
    entry.update({name: getattr(layer, name) for name in _ABOUT if getattr(layer, name)})
    return entry


def _shortest(values: Sequence[int]) -> int | list[int]:
    return values[0] if len(set(values)) == 1 else list(values)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _toml(value: Any) -> str:
    """Write a value as TOML, which is JSON here but for one character that has to be escaped."""
    return _json(value).replace("\x7f", "\\u007f")


def _is_toml(filename: str) -> bool:
    return filename.endswith(".toml")


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:8])
    return shown if len(names) <= 8 else f"{shown}, ... ({len(names)} layers)"


def _malformed(
    where: str, problem: str, accepted: str = "see the form of LAYERS files"
) -> MalformedLayers:
    return MalformedLayers(where, problem, accepted)
