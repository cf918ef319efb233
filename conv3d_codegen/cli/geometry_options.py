# SPDX-License-Identifier: Apache-2.0
"""The options that state a geometry: number by number, as a key, or as a layer of a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from conv3d_codegen.errors import ConflictingOptions, NotAnInteger, UnknownLayer
from conv3d_codegen.geometry import ConvGeometry
from conv3d_codegen.layers import read_layers, select_layer

if TYPE_CHECKING:
    from collections.abc import Iterable

Command = Callable[..., Any]


def _numbers(context: click.Context, option: click.Parameter, text: str | None) -> Any:
    """Read a comma-separated list of integers."""
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise NotAnInteger(
            f"{option.opts[0]} {text}", "not integers between commas", str(option.metavar)
        ) from None


def _words(context: click.Context, option: click.Parameter, text: str | None) -> Any:
    """Read a comma-separated list of names."""
    return None if text is None else tuple(filter(None, text.split(",")))


def _option(*names: str, help: str, default: str = "", **more: Any) -> Any:
    """Make an option that is absent (None) unless given; the geometry has the defaults."""
    shown = f"{help} [default: {default}]" if default else help
    return click.option(*names, help=shown, default=None, **more)


# The problem itself, then how it is stored and run: the latter may also change a layer of a file.
_PROBLEM = {
    "shape": _option(
        "--shape", metavar="N,C,[D,[H,]]W", callback=_numbers, help="Of x; the rank follows."
    ),
    "filters": _option(
        "--filter",
        "filters",
        metavar="C_OUT,[K_D,[K_H,]]K_W",
        callback=_numbers,
        help="Output channels and kernel extents.",
    ),
    "stride": _option(
        "--stride", metavar="S|S,S,S", callback=_numbers, default="1", help="One, or one per axis."
    ),
    "padding": _option(
        "--padding",
        metavar="P|P,P,P|P,P,P,P,P,P",
        callback=_numbers,
        default="0",
        help="One, one per axis, or before,after of each axis.",
    ),
    "dilation": _option(
        "--dilation", metavar="D|D,D,D", callback=_numbers, default="1", help="Likewise."
    ),
    "groups": _option("--groups", metavar="G", type=int, default="1", help="Channel groups."),
    "transposed": click.option(
        "--transposed", is_flag=True, default=None, help="Backward of a transposed convolution."
    ),
    "output_padding": _option(
        "--output-padding",
        metavar="P|P,P,P",
        callback=_numbers,
        default="0",
        help="Extra output positions of a transposed convolution.",
    ),
}
_CHOICES = {
    "gradients": _option(
        "--grads",
        "gradients",
        metavar="dx,dw,db",
        callback=_words,
        default="dx,dw,db",
        help="Gradients to compute.",
    ),
    "dtype": _option(
        "--dtype",
        metavar="bf16|fp16|fp32|fp8_e4m3|fp8_e5m2",
        default="bf16",
        help="Element type of the inputs.",
    ),
    "dy_dtype": _option(
        "--dy-dtype", metavar="fp8_e4m3|fp8_e5m2", help="Of dy, if another 8-bit float."
    ),
    "filter_dtype": _option(
        "--filter-dtype", metavar="fp8_e4m3|fp8_e5m2", help="Of the filters, likewise."
    ),
    "out_dtype": _option("--out-dtype", metavar="DTYPE", help="Of the gradients, if another."),
    "math": _option(
        "--math", metavar="full|tf32|bf16", default="full", help="Matmul precision for fp32."
    ),
    "layout": _option("--layout", metavar="NCDHW|NDHWC", default="NCDHW", help="Of x, dy and dx."),
    "filter_layout": _option(
        "--filter-layout", metavar="DHWCN|OIDHW|ODHWI", default="DHWCN", help="Of filters and dw."
    ),
    "target": _option("--target", metavar="trn2|trn3", default="trn2", help="Hardware."),
    "lnc": _option(
        "--lnc", metavar="1|2", type=int, default="1", help="Physical cores that share the work."
    ),
}
_ELSEWHERE = {
    "key": _option("--key", metavar="KEY", help="The whole geometry, as every command prints it."),
    "layers": _option(
        "--from", "layers", metavar="LAYERS[:MODEL/LAYER]", help="A layer of a LAYERS file."
    ),
}
_OPTIONS = {**_PROBLEM, **_CHOICES, **_ELSEWHERE}


def geometry_options(*, required: bool = True) -> Callable[[Command], Command]:
    """Add the options to a command, which receives them as one `geometry` argument.

    If the geometry is not required, it is None when none of the options is given.
    """

    def decorate(function: Command) -> Command:
        @wraps(function)
        def with_geometry(**values: Any) -> Any:
            given = {name: values.pop(name) for name in _OPTIONS}
            given = {name: value for name, value in given.items() if value is not None}
            geometry = read_geometry(given) if given or required else None
            return function(geometry=geometry, **values)

        command: Command = with_geometry
        for option in reversed(_OPTIONS.values()):
            command = option(command)
        return command

    return decorate


def choice_options(function: Command) -> Command:
    """Add the options that change how a layer is stored and run.

    The command receives those that were given as one `choices` argument, for `with_choices`.
    """

    @wraps(function)
    def with_options(**values: Any) -> Any:
        given = {name: values.pop(name) for name in _CHOICES}
        choices = {name: value for name, value in given.items() if value is not None}
        return function(choices=choices, **values)

    command: Command = with_options
    for option in reversed(_CHOICES.values()):
        command = option(command)
    return command


def read_geometry(given: Mapping[str, Any]) -> ConvGeometry:
    """Make the geometry of the given options, by the names of their arguments."""
    if "key" in given:
        _refuse("--key", given.keys() - {"key"}, "--key alone: it states the whole geometry")
        return ConvGeometry.parse(given["key"])
    if "layers" in given:
        _refuse(
            "--from", given.keys() - {"layers"} - _CHOICES.keys(), f"with {_flags(_CHOICES)} only"
        )
        return with_choices(_layer_of(given["layers"]), {**given})
    if not {"shape", "filters"} <= given.keys():
        present = _flags(given) or "no geometry"
        raise ConflictingOptions(
            present, "this is not a whole geometry", "--shape with --filter, --key, or --from"
        )
    return ConvGeometry.from_shapes(**given)


def _layer_of(place: str) -> ConvGeometry:
    """Read LAYERS or LAYERS:MODEL/LAYER."""
    path, colon, name = place.rpartition(":")
    if not colon or Path(place).exists():
        path, name = place, ""
    layers = read_layers(Path(path))
    if name:
        return select_layer(layers, name, path).geometry
    if len(layers) != 1:
        raise UnknownLayer(
            f"--from {place}", f"the file has {len(layers)} layers", f"{path}:MODEL/LAYER"
        )
    return layers[0].geometry


def with_choices(geometry: ConvGeometry, given: Mapping[str, Any]) -> ConvGeometry:
    """Apply the choices made on the command line to a layer."""
    choices = {name: value for name, value in given.items() if name in _CHOICES}
    if "dtype" in choices and geometry.out_dtype == geometry.dtype:
        choices.setdefault("out_dtype", "")  # goes on following dtype
    return replace(geometry, **choices)


def _refuse(flag: str, others: Iterable[str], accepted: str) -> None:
    if names := _flags(others):
        raise ConflictingOptions(f"{flag} with {names}", "the geometry is stated twice", accepted)


def _flags(names: Iterable[str]) -> str:
    """Write options as they are typed, in the order of the help text."""
    spelled = {"filters": "--filter", "gradients": "--grads", "layers": "--from"}
    ordered = [name for name in _OPTIONS if name in set(names)]
    return ", ".join(spelled.get(name, f"--{name.replace('_', '-')}") for name in ordered)
