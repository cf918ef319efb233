# SPDX-License-Identifier: Apache-2.0
"""`verify`: whether a kernel is right."""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from conv3d_codegen.api import EmitOptions, emit
from conv3d_codegen.cli.emit_options import nki_option
from conv3d_codegen.cli.geometry_options import geometry_options
from conv3d_codegen.cli.output import Exit, format_table, json_option, print_json
from conv3d_codegen.compile.execution import verify_on_nki
from conv3d_codegen.compile.sandbox import KernelText
from conv3d_codegen.files import read_text
from conv3d_codegen.verify import VerifyReport, geometry_of, verify_source

if TYPE_CHECKING:
    from collections.abc import Callable

    from conv3d_codegen.compile.execution import NkiReport
    from conv3d_codegen.geometry import ConvGeometry
    from conv3d_codegen.verify.inputs import InputKind

SHOWN_VIOLATIONS = 10


def input_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options about inputs, which the command receives as one `drawn` argument."""

    @click.option(
        "--inputs",
        type=click.Choice(["integers", "normal"]),
        default="integers",
        show_default=True,
        help="Integers must come out exact, normal values within a derived bound.",
    )
    @click.option("--seed", type=int, default=0, show_default=True, help="Of the random inputs.")
    @wraps(function)
    def with_inputs(inputs: InputKind, seed: int, **rest: Any) -> Any:
        return function(drawn={"inputs": inputs, "seed": seed}, **rest)

    return with_inputs


@click.command()
@click.argument("kernel", required=False, type=click.Path(path_type=Path))
@geometry_options(required=False)
@click.option(
    "--backend",
    type=click.Choice(["simulator", "nki"]),
    default="simulator",
    show_default=True,
    help="The bundled simulator, or the installed nki: on a Neuron device, else AWS's simulator.",
)
@input_options
@nki_option
@json_option
def command(
    kernel: Path | None,
    geometry: ConvGeometry | None,
    backend: str,
    drawn: dict[str, Any],
    nki: str,
    as_json: bool,
) -> Exit:
    """Run a kernel in the bundled simulator and compare it with the reference.

    KERNEL is a kernel file, emitted or edited by hand; without it, the kernel of the given
    geometry is emitted and verified. Exits with 1 when the kernel is wrong or breaks a rule.
    """
    name, source, geometry = _kernel(kernel, geometry, nki)
    report: VerifyReport | NkiReport
    if backend == "nki":
        report = verify_on_nki(KernelText(name, source, geometry), **drawn)
    else:
        report = verify_source(source, geometry, filename=f"{name}.py", nki=nki, **drawn)
    if as_json:
        print_json(report.as_json())
    elif isinstance(report, VerifyReport):
        click.echo(render(report))
    else:
        click.echo(render_nki(report))
    return Exit.DONE if report.passed else Exit.FAILED


def _kernel(
    kernel: Path | None, geometry: ConvGeometry | None, nki: str
) -> tuple[str, str, ConvGeometry]:
    """Return name, text and geometry of what is to be verified."""
    if kernel is not None:
        source = read_text(kernel)
        return kernel.stem, source, geometry or geometry_of(source, str(kernel))
    if geometry is None:
        raise click.UsageError("name a KERNEL file or a geometry: --shape and --filter, or --key")
    emitted = emit(geometry, EmitOptions(nki=nki))
    return emitted.name, emitted.source, geometry


def render_nki(report: NkiReport) -> str:
    """Return the report of the installed nki as a short table."""
    rows = [(check.name, check.verdict) for check in report.gradients]
    rows += [("backend", report.runner), ("inputs", f"{report.inputs}, seed {report.seed}")]
    if report.problem:
        rows.append(("problem", report.problem))
    verdict = "PASSED" if report.passed else "FAILED"
    return "\n".join((report.key, format_table(rows), verdict))


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
