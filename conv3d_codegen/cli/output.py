# SPDX-License-Identifier: Apache-2.0
"""What every command shares: exit codes, the `--json` switch, tables, and one-line errors."""

from __future__ import annotations

import json
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Exit(IntEnum):
    """What a command's exit code says."""

    DONE = 0
    FAILED = 1  # a check ran and failed
    REQUEST = 2  # the request is wrong; nothing was written
    DRIFT = 3  # something differs from what was recorded


json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object instead of text."
)


def print_json(value: Any) -> None:
    """Print `value` as one indented JSON document."""
    click.echo(json.dumps(value, indent=2, allow_nan=False))


def say(message: str) -> None:
    """Print a message for people: to stderr, so that stdout holds the product alone."""
    click.echo(message, err=True)


def format_table(rows: Iterable[Sequence[object]], header: Sequence[str] = ()) -> str:
    """Align rows in columns: numbers to the right, everything else to the left."""
    table = [[str(cell) for cell in row] for row in rows]
    numeric = [all(_is_number(cell) for cell in column) for column in zip(*table, strict=True)]
    if header:
        table.insert(0, list(header))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in table
    )


def _is_number(cell: str) -> bool:
    try:
        float(cell.partition(" ")[0].rstrip("%").replace(",", ""))
    except ValueError:
        return False
    return True


def one_line(code: str, message: str) -> str:
    """Return the error line that a wrong request prints."""
    return f"error[{code}]: {' '.join(message.split())}"
