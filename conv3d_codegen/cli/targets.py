# SPDX-License-Identifier: Apache-2.0
"""`targets`: the hardware tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import click

from conv3d_codegen.cli.output import format_table, json_option, print_json
from conv3d_codegen.targets import TARGETS, TargetSpec


@click.command()
@json_option
def command(as_json: bool) -> None:
    """Show the hardware tables that planning and simulation use.

    Times are ns, clocks GHz, rates bytes per ns; sources stand beside the numbers in the code.
    """
    if as_json:
        print_json({name: _plain(spec) for name, spec in TARGETS.items()})
        return
    rows = (
        (field.name, *(_text(getattr(spec, field.name)) for spec in TARGETS.values()))
        for field in fields(TargetSpec)
        if field.name != "name"
    )
    click.echo(format_table(rows, header=("", *TARGETS)))


def _plain(spec: TargetSpec) -> dict[str, Any]:
    return {field.name: _json_value(getattr(spec, field.name)) for field in fields(spec)}


def _json_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return sorted(value) if isinstance(value, frozenset | tuple) else value


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {number}" for name, number in value.items())
    if isinstance(value, frozenset | tuple):
        return ", ".join(map(str, sorted(value)))
    return str(value)
