# SPDX-License-Identifier: Apache-2.0
"""`diff`: how two kernels differ."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from conv3d_codegen.cli.output import Exit, format_table, json_option, print_json
from conv3d_codegen.files import read_text
from conv3d_codegen.report.compare import compare
from conv3d_codegen.report.inspection import inspect_source


@click.command()
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@json_option
def command(a: Path, b: Path, as_json: bool) -> Exit:
    """Compare two kernel files: what they compute and cost first, then text.

    Exits with 3 when they differ.
    """
    inspections = [inspect_source(read_text(path), filename=str(path)) for path in (a, b)]
    found = compare(*inspections)
    if as_json:
        print_json(asdict(found))
    else:
        if found.differences:
            rows = ((row.what, row.a, row.b) for row in found.differences)
            click.echo(format_table(rows, header=("", "A", "B")) + "\n")
        click.echo(found.text, nl=False)
    return Exit.DRIFT if found.text else Exit.DONE
