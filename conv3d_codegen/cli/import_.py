# SPDX-License-Identifier: Apache-2.0
"""`import torch | miopen | benchdnn | plain`: other notations, written as a LAYERS file."""

from __future__ import annotations

from dataclasses import replace
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from conv3d_codegen.cli.geometry_options import choice_options, with_choices
from conv3d_codegen.cli.output import Exit, json_option, print_json, say
from conv3d_codegen.errors import NotAnInteger, RequestError
from conv3d_codegen.files import write_product
from conv3d_codegen.importers.benchdnn import read_benchdnn
from conv3d_codegen.importers.miopen import read_miopen
from conv3d_codegen.importers.plain import read_plain
from conv3d_codegen.layers import format_layers

if TYPE_CHECKING:
    from collections.abc import Callable

    from conv3d_codegen.importers import Imported


@click.group()
def command() -> None:
    """Read convolutions in another notation and write a LAYERS file."""


file_argument = click.argument("file", metavar="FILE|-")


def _importer(function: Callable[..., Imported]) -> Callable[..., Exit]:
    """Add what all importers share to a command that returns what it found."""

    @choice_options
    @click.option("--model", default="", help="Name of the model. [default: of what is read]")
    @click.option(
        "-o",
        "--output",
        default="-",
        show_default=True,
        metavar="LAYERS|-",
        help="A file, .toml for TOML and JSON otherwise, or - for JSON on standard output.",
    )
    @click.option("--force", is_flag=True, help="Overwrite a file that exists.")
    @json_option
    @wraps(function)
    def run(
        choices: dict[str, Any], output: str, force: bool, as_json: bool, **values: Any
    ) -> Exit:
        imported = function(**values)
        for skipped in imported.skipped:
            say(f"skipped {skipped.where}: {skipped.problem}")
        if not imported.layers:
            raise RequestError("no-layers", "no convolution was found; nothing is written")
        layers = [
            replace(layer, geometry=with_choices(layer.geometry, choices))
            for layer in imported.layers
        ]
        text = format_layers(layers, output)
        if output != "-":
            write_product(Path(output), text, force=force)
            say(f"wrote {len(layers)} layers to {output}")
        if as_json:
            skipped_lines = [{"where": s.where, "problem": s.problem} for s in imported.skipped]
            print_json({"layers": [layer.name for layer in layers], "skipped": skipped_lines})
        elif output == "-":
            click.echo(text, nl=False)
        return Exit.DONE

    return run


def _input_shapes(
    context: click.Context, option: click.Parameter, texts: tuple[str, ...]
) -> list[tuple[int, ...]]:
    try:
        return [tuple(int(part) for part in text.split(",")) for text in texts]
    except ValueError:
        raise NotAnInteger(
            f"--input {' '.join(texts)}", "not integers between commas", "N,C,[D,[H,]]W"
        ) from None


@command.command()
@click.argument("factory", metavar="PACKAGE.MODULE:FACTORY")
@click.option(
    "--input",
    "inputs",
    required=True,
    multiple=True,
    metavar="N,C,[D,[H,]]W",
    callback=_input_shapes,
    help="Shape of the model's input; once per input.",
)
@click.option(
    "--device",
    type=click.Choice(["meta", "cpu"]),
    default="meta",
    show_default=True,
    help="cpu computes values, for models that look at them.",
)
@_importer
def torch(factory: str, inputs: list[tuple[int, ...]], device: str, model: str) -> Imported:
    """Run a PyTorch model once and note its convolutions.

    FACTORY is called without arguments and returns the nn.Module: a function or a class. Modules
    in the current folder are found.
    """
    try:
        reader = import_module("conv3d_codegen.importers.torch_model")  # an extra
    except ImportError:
        raise RequestError(
            "no-torch", "PyTorch is not installed; accepted: pip install 'conv3d-codegen[torch]'"
        ) from None
    name = model or factory.rpartition(":")[2]
    imported: Imported = reader.read_torch(
        reader.load_factory(factory), inputs, name, device=device
    )
    return imported


@command.command()
@file_argument
@_importer
def miopen(file: str, model: str) -> Imported:
    """Read MIOpenDriver command lines, alone or inside a log."""
    return read_miopen(_text(file), model or _model_of(file))


@command.command()
@file_argument
@_importer
def benchdnn(file: str, model: str) -> Imported:
    """Read oneDNN problem descriptors, benchdnn lines and verbose logs."""
    return read_benchdnn(_text(file), model or _model_of(file))


@command.command()
@file_argument
@_importer
def plain(file: str, model: str) -> Imported:
    """Read a JSON or TOML list of geometry keys and objects, in LAYERS or Python names."""
    return read_plain(_text(file), model or _model_of(file), is_toml=file.endswith(".toml"))


def _text(file: str) -> str:
    """Read a file or standard input; logs may hold bytes that are no text."""
    with click.open_file(file, encoding="utf-8", errors="replace") as stream:
        text: str = stream.read()
    return text


def _model_of(file: str) -> str:
    return "stdin" if file == "-" else Path(file).stem
