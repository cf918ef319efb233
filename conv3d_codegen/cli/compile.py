# SPDX-License-Identifier: Apache-2.0
"""`compile`: what the device loads, made by the Neuron toolchain."""

from __future__ import annotations

from dataclasses import asdict
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from conv3d_codegen.cache import KernelCache
from conv3d_codegen.cli.emit_options import emit_options
from conv3d_codegen.cli.geometry_options import geometry_options
from conv3d_codegen.cli.output import Exit, json_option, print_json, say
from conv3d_codegen.compile.compiler import compile_cached
from conv3d_codegen.compile.sandbox import Limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from conv3d_codegen.api import EmitOptions
    from conv3d_codegen.compile.compiler import Compilation
    from conv3d_codegen.geometry import ConvGeometry


def limit_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the limits of a job to a command, which receives them as one `limits` argument."""

    @click.option(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True),
        default=Limits().seconds,
        show_default=True,
        metavar="SECONDS",
        help="Stop the toolchain after this time.",
    )
    @click.option(
        "--memory",
        type=click.FloatRange(min=0),
        default=Limits().memory_gib,
        show_default=True,
        metavar="GIB",
        help="Address space of each process of the toolchain; 0 is no limit.",
    )
    @wraps(function)
    def with_limits(timeout: float, memory: float, **rest: Any) -> Any:
        return function(limits=Limits(seconds=timeout, memory_gib=memory), **rest)

    return with_limits


@click.command()
@geometry_options()
@emit_options
@limit_options
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Copy the NEFF and the log there too.",
)
@json_option
def command(
    geometry: ConvGeometry,
    options: EmitOptions,
    limits: Limits,
    output: Path | None,
    as_json: bool,
) -> Exit:
    """Compile the kernel of a geometry to a NEFF; no device is needed.

    NEFF and compiler log are kept in the cache, per version of the compiler. Exits with 1 when the
    compiler refuses the kernel or runs into a limit.
    """
    made = compile_cached(geometry, options, KernelCache(), limits)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        for name, content in made.files.items():
            (output / name).write_bytes(content)
        say(f"wrote {', '.join(sorted(made.files))} to {output}")
    if as_json:
        sizes = {name: len(content) for name, content in made.files.items()}
        print_json({**asdict(made), "files": sizes, "passed": not made.problem})
    else:
        click.echo(f"{made.key}\n{made.compiler}: {_verdict(made)}")
    return Exit.FAILED if made.problem else Exit.DONE


def _verdict(made: Compilation) -> str:
    if made.problem:
        return f"FAILED, {made.problem}"
    neff = next(content for name, content in made.files.items() if name.endswith(".neff"))
    return f"{len(neff):,} bytes{', from the cache' if made.from_cache else ''}"
