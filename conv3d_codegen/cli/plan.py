# SPDX-License-Identifier: Apache-2.0
"""`plan`: how a geometry is computed, and what that costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from conv3d_codegen.api import plan
from conv3d_codegen.cli.emit_options import emit_options
from conv3d_codegen.cli.geometry_options import geometry_options
from conv3d_codegen.cli.output import Exit, json_option, print_json
from conv3d_codegen.report.planning import render_plan

if TYPE_CHECKING:
    from conv3d_codegen.api import EmitOptions
    from conv3d_codegen.geometry import ConvGeometry


@click.command()
@geometry_options()
@emit_options
@json_option
def command(geometry: ConvGeometry, options: EmitOptions, as_json: bool) -> Exit:
    """Show the schedule of a geometry, what else was considered, and the index maps."""
    chosen = plan(geometry, options)
    if as_json:
        print_json(chosen.to_dict())
    else:
        click.echo(render_plan(chosen))
    return Exit.DONE
