# SPDX-License-Identifier: Apache-2.0
"""`verify`: whether a kernel is right."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from conv3d_codegen.api import EmitOptions
from conv3d_codegen.cli.emit_options import nki_option
from conv3d_codegen.cli.geometry_options import geometry_options
from conv3d_codegen.cli.output import Exit, format_table, json_option, print_json
from conv3d_codegen.files import read_text
from conv3d_codegen.verify import verify_geometry, verify_source

if TYPE_CHECKING:
    from conv3d_codegen.geometry import ConvGeometry
    from conv3d_codegen.verify import VerifyReport
    from conv3d_codegen.verify.inputs import InputKind

SHOWN_VIOLATIONS = 10


@click.command()
@click.argument("kernel", required=False, type=click.Path(path_type=Path))
@geometry_options(required=False)
@click.option(
    "--inputs",
    type=click.Choice(["integers", "normal"]),
    default="integers",
    show_default=True,
    help="Integers must come out exact, normal values within a derived bound.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random inputs.")
@nki_option
@json_option
def command(
    kernel: Path | None,
    geometry: ConvGeometry | None,
    inputs: str,
    seed: int,
    nki: str,
    as_json: bool,
) -> Exit:
    """Run a kernel in the bundled simulator and compare it with the reference.

    KERNEL is a kernel file, emitted or edited by hand; without it, the kernel of the given
    geometry is emitted and verified. Exits with 1 when the kernel is wrong or breaks a rule.
    """
    kind = cast("InputKind", inputs)
    if kernel is not None:
        source = read_text(kernel)
        report = verify_source(
            source, geometry, filename=str(kernel), inputs=kind, seed=seed, nki=nki
        )
    elif geometry is not None:
        report = verify_geometry(geometry, EmitOptions(nki=nki), inputs=kind, seed=seed)
    else:
        raise click.UsageError("name a KERNEL file or a geometry: --shape and --filter, or --key")
    if as_json:
        print_json(report.as_json())
    else:
        click.echo(render(report))
    return Exit.DONE if report.passed else Exit.FAILED


def render(report: VerifyReport) -> str:
    """Return the report as the short table that people read."""
    rows = [(check.name, check.verdict) for check in report.gradients]
    rows += [
        ("violations", str(len(report.violations))),
        ("instructions", f"{report.run.counts.text:,}"),
        ("makespan", f"{report.run.timeline.makespan_us:.1f} us (modelled)"),
        ("PE use", f"{report.pe_utilisation:.1%} of peak by useful MACs"),
        ("inputs", f"{report.inputs}, seed {report.seed}"),
    ]
    lines = [report.key, format_table(rows)]
    lines += [
        f"line {found.line}: [{found.rule}] {found.message}"
        for found in report.violations[:SHOWN_VIOLATIONS]
    ]
    if len(report.violations) > SHOWN_VIOLATIONS:
        lines.append(f"… and {len(report.violations) - SHOWN_VIOLATIONS} more (--json shows all)")
    lines.append("PASSED" if report.passed else "FAILED")
    return "\n".join(lines)
