# SPDX-License-Identifier: Apache-2.0
"""`bench`: how fast the kernels of real layers are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from conv3d_codegen.bench import (
    HEADER,
    frame,
    measure_all,
    render_markdown,
    row,
    summary,
    with_batch,
)
from conv3d_codegen.cli.output import Exit, format_table, json_option, print_json, say
from conv3d_codegen.cli.progress import progress_bar
from conv3d_codegen.files import read_text
from conv3d_codegen.layers import bench_layers, select_layer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conv3d_codegen.bench import Measurement
    from conv3d_codegen.layers import Layer


@click.command()
@click.option("--layer", "names", multiple=True, metavar="NAME", help="Only this; may be repeated.")
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Samples of every layer; nkilib's figures are for one.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=os.cpu_count() or 1,
    show_default="all processors",
    metavar="N",
    help="Measure in so many processes.",
)
@click.option(
    "--document",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="Also write the table between the markers in this document.",
)
@json_option
def command(
    names: Sequence[str], batch: int, jobs: int, document: Path | None, as_json: bool
) -> Exit:
    """Time the kernels of 54 layers of public models: dx, dw and db, modelled.

    The makespan is that of the simulator's timeline. The floor is what the useful products take on
    the whole PE array, or the tensors at the full DMA rate, whichever is more. Exits with 1 when a
    kernel breaks a rule.
    """
    layers = with_batch(_selected(names), batch)
    before, after = ("", "") if document is None else frame(read_text(document))
    measurements = _measure(layers, jobs)
    if document is not None:
        text = before + render_markdown(measurements) + after
        document.write_text(text, encoding="utf-8")
        say(f"wrote {document}")
    if as_json:
        print_json([measured.as_json() for measured in measurements])
    else:
        rows = [(*row(m), f"{m.emission_s:.2f}") for m in measurements]
        click.echo(format_table(rows, header=(*HEADER, "emission s")))
        click.echo("\n" + "\n".join(summary(measurements)))
    return Exit.FAILED if any(m.violations for m in measurements) else Exit.DONE


def _selected(names: Sequence[str]) -> Sequence[Layer]:
    layers = bench_layers()
    return [select_layer(layers, name, "bench") for name in names] if names else layers


def _measure(layers: Sequence[Layer], jobs: int) -> list[Measurement]:
    """Measure all layers, and return them in the order of the suite."""
    order = {layer.name: position for position, layer in enumerate(layers)}
    measurements = []
    with progress_bar("layers") as progress:
        for measured in measure_all(layers, jobs):
            measurements.append(measured)
            progress(len(measurements), len(layers), measured.name)
    return sorted(measurements, key=lambda measured: order[measured.name])
