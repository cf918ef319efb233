# SPDX-License-Identifier: Apache-2.0
"""`catalog check | regen | diff`: the committed kernels."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from conv3d_codegen.catalog import MANIFEST, diff_text, find_drift, regenerate, render_catalog
from conv3d_codegen.cli.output import Exit, json_option, print_json, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conv3d_codegen.catalog import Drift

folder_option = click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=Path("generated"),
    show_default=True,
    help="Folder that holds catalog.toml.",
)


@click.group()
def command() -> None:
    """Check, rewrite or compare the committed kernels in generated/."""


@command.command()
@folder_option
@json_option
def check(folder: Path, as_json: bool) -> Exit:
    """Emit every kernel again and compare it with its file, byte for byte.

    Exits with 3 when a file is missing, changed, or not in the catalog.
    """
    products = render_catalog(folder)
    drifts = find_drift(folder, products)
    _report(drifts, as_json)
    if not as_json and not drifts:
        click.echo(f"{len(products) - 1} kernels in {folder} are what the catalog makes")
    return Exit.DRIFT if drifts else Exit.DONE


@command.command()
@folder_option
@json_option
def regen(folder: Path, as_json: bool) -> Exit:
    """Write every kernel that is missing or changed; delete those not in the catalog."""
    drifts = regenerate(folder)
    _report(drifts, as_json)
    say(f"{len(drifts)} files brought up to date" if drifts else "nothing to do")
    return Exit.DONE


@command.command()
@folder_option
@json_option
def diff(folder: Path, as_json: bool) -> Exit:
    """Show how today's kernels differ from the committed ones, the manifest first.

    Exits with 3 when there is a difference.
    """
    products = render_catalog(folder)
    drifts = sorted(find_drift(folder, products), key=lambda drift: drift.path != MANIFEST)
    if as_json:
        print_json(
            [asdict(drift) | {"diff": diff_text(folder, products, drift)} for drift in drifts]
        )
    else:
        for drift in drifts:
            click.echo(diff_text(folder, products, drift), nl=False)
    return Exit.DRIFT if drifts else Exit.DONE


def _report(drifts: Sequence[Drift], as_json: bool) -> None:
    if as_json:
        print_json([asdict(drift) for drift in drifts])
    else:
        for drift in drifts:
            click.echo(f"{drift.path}: {drift.kind}")
