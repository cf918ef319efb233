# SPDX-License-Identifier: Apache-2.0
"""`doctor`: versions, paths, what is installed."""

from __future__ import annotations

from dataclasses import asdict

import click

from conv3d_codegen.cli.output import format_table, json_option, print_json
from conv3d_codegen.report.doctor import diagnose


@click.command()
@json_option
def command(as_json: bool) -> None:
    """Show versions, paths and what is installed."""
    diagnosis = asdict(diagnose())
    if as_json:
        print_json(diagnosis)
        return
    groups = {name: value for name, value in diagnosis.items() if isinstance(value, dict)}
    click.echo(format_table((name, diagnosis[name]) for name in diagnosis if name not in groups))
    for title, versions in groups.items():
        click.echo(f"\n{title}\n{format_table((f'  {k}', v) for k, v in versions.items())}")
