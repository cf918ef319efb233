# SPDX-License-Identifier: Apache-2.0
"""`emit`: write the kernel of a geometry."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from conv3d_codegen.api import emit
from conv3d_codegen.cli.emit_options import emit_options
from conv3d_codegen.cli.geometry_options import geometry_options
from conv3d_codegen.cli.output import Exit, json_option, print_json, say
from conv3d_codegen.errors import RequestError
from conv3d_codegen.files import write_product

if TYPE_CHECKING:
    from conv3d_codegen.api import EmitOptions, Kernel
    from conv3d_codegen.geometry import ConvGeometry


@click.command()
@geometry_options()
@emit_options
@click.option(
    "-o",
    "--output",
    default="-",
    show_default=True,
    metavar="DIR|FILE|-",
    help="A folder (ending in / if new), NAME.py, or - for standard output.",
)
@click.option("--force", is_flag=True, help="Overwrite a file that this tool did not write.")
@json_option
def command(
    geometry: ConvGeometry, options: EmitOptions, output: str, force: bool, as_json: bool
) -> Exit:
    """Write the kernel of a geometry."""
    kernel = emit(geometry, options)
    path = None if output == "-" else _path_for(output, kernel)
    if path is not None:
        write_product(path, kernel.source, force=force)
    if as_json:
        print_json(_describe(kernel, path))
    elif path is None:
        click.echo(kernel.source, nl=False)
    if path is not None:
        say(f"wrote {path}")
    if kernel.plan.warning:
        say(f"note: {kernel.plan.warning}")
    return Exit.DONE


def _path_for(output: str, kernel: Kernel) -> Path:
    path = Path(output)
    if output.endswith(("/", "\\")) or path.is_dir():
        return path / f"{kernel.name}.py"
    if path.name != f"{kernel.name}.py":
        raise RequestError(
            "file-name",
            f"{output} is no folder, and a kernel's file is named like its function; "
            f"accepted: a folder ending in /, or {path.parent / kernel.name}.py",
        )
    return path


def _describe(kernel: Kernel, path: Path | None) -> dict[str, object]:
    where = {"source": kernel.source} if path is None else {"path": str(path)}
    return {"key": kernel.key, "name": kernel.name, "sha256": kernel.digest, **where}
