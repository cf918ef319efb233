# SPDX-License-Identifier: Apache-2.0
"""`compile`: what the device loads, made by the Neuron toolchain."""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from conv3d_codegen.cli.cache_options import cache_option
from conv3d_codegen.cli.emit_options import emit_options
from conv3d_codegen.cli.geometry_options import geometry_options
from conv3d_codegen.cli.output import Exit, json_option, print_json, say
from conv3d_codegen.cli.progress import progress_bar
from conv3d_codegen.compile.compiler import compile_kernel, compile_pack
from conv3d_codegen.compile.sandbox import Limits
from conv3d_codegen.compile.toolchain import find_toolchain
from conv3d_codegen.emission import emit_stored
from conv3d_codegen.packs import load_pack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from conv3d_codegen.cache import KernelCache
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
@click.argument("pack", required=False, type=click.Path(path_type=Path, dir_okay=False))
@geometry_options(required=False)
@emit_options
@limit_options
@cache_option
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Also write NEFFs and logs there, in a folder per kernel.",
)
@json_option
def command(pack: Path | None, geometry: ConvGeometry | None, as_json: bool, **how: Any) -> Exit:
    """Compile the kernel of a geometry, or all kernels of a PACK; no device is needed.

    NEFFs and compiler logs are kept in the cache, per version of the compiler, and put into the
    pack. Exits with 1 when the compiler refuses a kernel or runs into a limit.
    """
    if (pack is None) == (geometry is None):
        raise click.UsageError("name a PACK, or a geometry: --shape and --filter, or --key")
    find_toolchain(compiler=True)  # before anything slow
    cache: KernelCache = how["cache"]
    if pack is not None:
        with progress_bar("kernels") as progress:
            made = compile_pack(load_pack(pack), cache, how["limits"], progress)
    else:
        assert geometry is not None
        kernel = cache.fetch(geometry, how["options"], emit_stored)
        made = (compile_kernel(kernel, cache, how["limits"]),)
    if how["output"] is not None:
        _write(made, how["output"])
    if as_json:
        print_json([_describe(one) for one in made])
    else:
        for one in made:
            click.echo(f"{one.key}\n  {one.compiler}: {_verdict(one)}")
    return Exit.FAILED if any(one.problem for one in made) else Exit.DONE


def _write(made: Iterable[Compilation], output: Path) -> None:
    for one in made:
        folder = output / one.name
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in one.files.items():
            (folder / name).write_bytes(content)
        say(f"wrote {', '.join(sorted(one.files))} to {folder}")


def _describe(made: Compilation) -> dict[str, Any]:
    sizes = {name: len(content) for name, content in made.files.items()}
    return {
        "passed": not made.problem,
        "key": made.key,
        "compiler": made.compiler,
        "files": sizes,
        "problem": made.problem,
        "from_cache": made.from_cache,
    }


def _verdict(made: Compilation) -> str:
    if made.problem:
        return f"FAILED, {made.problem}"
    (size,) = (len(content) for name, content in made.files.items() if name.endswith(".neff"))
    return f"{size:,} bytes{', from the cache' if made.from_cache else ''}"
