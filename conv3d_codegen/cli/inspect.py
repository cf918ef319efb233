# SPDX-License-Identifier: Apache-2.0
"""`inspect`: what a reviewer wants to know about a kernel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from conv3d_codegen.api import emit
from conv3d_codegen.cli.geometry_options import geometry_options
from conv3d_codegen.cli.output import Exit, json_option, print_json, say
from conv3d_codegen.files import read_text, write_product
from conv3d_codegen.report.html import render_html
from conv3d_codegen.report.inspection import inspect_source
from conv3d_codegen.report.terminal import render_terminal

if TYPE_CHECKING:
    from conv3d_codegen.geometry import ConvGeometry


@click.command()
@click.argument("kernel", required=False, type=click.Path(path_type=Path))
@geometry_options(required=False)
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="OUT.html",
    help="Write one self-contained page instead.",
)
@click.option("--force", is_flag=True, help="Overwrite a file that this tool did not write.")
@json_option
def command(
    kernel: Path | None,
    geometry: ConvGeometry | None,
    html: Path | None,
    force: bool,
    as_json: bool,
) -> Exit:
    """Show what a reviewer wants to know about a kernel.

    KERNEL is a kernel file, emitted or edited by hand; without it, the kernel of the given
    geometry is emitted and inspected.
    """
    if kernel is not None:
        inspection = inspect_source(read_text(kernel), geometry, filename=str(kernel))
    elif geometry is not None:
        emitted = emit(geometry)
        inspection = inspect_source(emitted.source, geometry, filename=f"{emitted.name}.py")
    else:
        raise click.UsageError("name a KERNEL file or a geometry: --shape and --filter, or --key")
    if html is not None:
        write_product(html, render_html(inspection), force=force)
        say(f"wrote {html}")
    if as_json:
        print_json(inspection.as_json())
    elif html is None:
        Console().print(render_terminal(inspection), soft_wrap=True)
    return Exit.DONE
