# SPDX-License-Identifier: Apache-2.0
"""`pack build | list | verify | diff | merge | extract | wheel`: kernels in one file."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
from rich.filesize import decimal

from conv3d_codegen.cli.cache_options import cache_option
from conv3d_codegen.cli.emit_options import emit_options
from conv3d_codegen.cli.output import Exit, format_table, json_option, one_line, print_json, say
from conv3d_codegen.cli.progress import progress_bar
from conv3d_codegen.layers import read_layers
from conv3d_codegen.packs.build import build_pack
from conv3d_codegen.packs.cluster import cluster_executor
from conv3d_codegen.packs.compare import compare_packs
from conv3d_codegen.packs.drift import find_drift
from conv3d_codegen.packs.extract import extract as extract_pack
from conv3d_codegen.packs.merge import merge_packs
from conv3d_codegen.packs.pack import load_pack
from conv3d_codegen.packs.wheel import write_wheel
from conv3d_codegen.packs.write import check_replaceable

if TYPE_CHECKING:
    from conv3d_codegen.cache import KernelCache
    from conv3d_codegen.packs.build import BuildReport
    from conv3d_codegen.packs.compare import PackDifference
    from conv3d_codegen.packs.manifest import PackEntry
    from conv3d_codegen.packs.merge import Preference
    from conv3d_codegen.packs.pack import Pack
    from conv3d_codegen.planner.options import EmitOptions

a_path = click.Path(path_type=Path)
output_option = click.option("-o", "--output", type=a_path, required=True, metavar="FILE")
force_option = click.option("--force", is_flag=True, help="Replace a file that is no pack.")
jobs_option = click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=os.cpu_count() or 1,
    show_default="all processors",
    metavar="N",
    help="Emit in so many processes.",
)


@click.group()
def command() -> None:
    """Make, check and compare packs: files of kernels for the layers of a model."""


@command.command()
@click.argument("layers", type=a_path)
@output_option
@emit_options
@jobs_option
@click.option("--dask", metavar="ADDRESS", help="Emit on the workers of a Dask cluster instead.")
@cache_option
@force_option
@json_option
def build(layers: Path, output: Path, options: EmitOptions, **more: Any) -> Exit:
    """Emit a kernel for every layer of a LAYERS file into one pack.

    Kernels in the cache, or in an earlier pack at FILE, are not made again, so an interrupted
    build goes on where it was. Exits with 1 when a layer failed; the pack holds the others.
    """
    check_replaceable(output, force=more["force"])
    cache: KernelCache = more["cache"]
    wanted = read_layers(layers)
    with cluster_executor(more["dask"]) as cluster, progress_bar("kernels") as progress:
        report = build_pack(
            wanted,
            output,
            options=options,
            cache=cache,
            workers=cluster or more["jobs"],
            progress=progress,
        )
    _report_build(report, as_json=more["as_json"])
    return Exit.FAILED if report.failures else Exit.DONE


@command.command("list")
@click.argument("pack", type=a_path)
@json_option
def list_(pack: Path, as_json: bool) -> None:
    """List the kernels of a pack."""
    loaded = load_pack(pack)
    if as_json:
        kernels = [entry.to_plain() for entry in loaded.manifest.entries]
        print_json({"digest": loaded.manifest.digest, "kernels": kernels})
        return
    header = ("key", "nki", "instructions", "size", "layers", "compiled by")
    if loaded.manifest.entries:
        click.echo(format_table(map(_row, loaded.manifest.entries), header=header))
    click.echo(f"{len(loaded)} kernels, digest {loaded.manifest.digest}")


@command.command()
@click.argument("pack", type=a_path)
@click.option("--reemit", is_flag=True, help="Also emit every kernel again and compare.")
@jobs_option
@json_option
def verify(pack: Path, reemit: bool, jobs: int, as_json: bool) -> Exit:
    """Check every file of a pack against the checksums in its manifest.

    Exits with 1 when something is damaged, and with 3 when --reemit finds a kernel that is not
    what this version emits.
    """
    loaded = load_pack(pack)
    problems = loaded.problems()
    drifts: tuple[str, ...] = ()
    if reemit and not problems:
        with progress_bar("kernels") as progress:
            drifts = find_drift(loaded, jobs, progress)
    if as_json:
        print_json({"kernels": len(loaded), "problems": problems, "drift": drifts})
    else:
        for line in (*problems, *drifts):
            click.echo(line)
        drifted = f", {len(drifts)} not what is emitted now" if reemit else ""
        click.echo(f"{len(loaded)} kernels, {len(problems)} problems{drifted}")
    if problems:
        return Exit.FAILED
    return Exit.DRIFT if drifts else Exit.DONE


@command.command()
@click.argument("a", type=a_path)
@click.argument("b", type=a_path)
@json_option
def diff(a: Path, b: Path, as_json: bool) -> Exit:
    """Compare two packs by what their manifests state.

    Exits with 3 when they differ. To see the text of a kernel, extract both and use `diff`.
    """
    found = compare_packs(load_pack(a), load_pack(b))
    if as_json:
        print_json(asdict(found))
    else:
        _show_difference(found, str(a), str(b))
    return Exit.DRIFT if found else Exit.DONE


@command.command()
@click.argument("packs", type=a_path, nargs=-1, required=True)
@output_option
@click.option(
    "--prefer",
    type=click.Choice(["first", "last"]),
    help="Which pack decides where two hold different kernels; without it that is an error.",
)
@force_option
@json_option
def merge(
    packs: tuple[Path, ...], output: Path, prefer: str | None, force: bool, as_json: bool
) -> None:
    """Make one pack of several."""
    check_replaceable(output, force=force)
    loaded = [load_pack(path) for path in packs]
    _report_pack(merge_packs(loaded, output, cast("Preference | None", prefer)), as_json)


@command.command()
@click.argument("pack", type=a_path)
@click.option("-o", "--output", type=a_path, required=True, metavar="DIR")
@click.option("--force", is_flag=True, help="Replace files that this tool did not write.")
@json_option
def extract(pack: Path, output: Path, force: bool, as_json: bool) -> None:
    """Write the kernels of a pack as files, after all of it was checked."""
    written = extract_pack(load_pack(pack), output, force=force)
    if as_json:
        print_json([str(path) for path in written])
    say(f"wrote {len(written)} files to {output}")


@command.command()
@click.argument("pack", type=a_path)
@click.option("--name", required=True, help="Of the package, such as nnunet-kernels.")
@click.option("--version", required=True, help="Of the package, such as 1.0.")
@click.option("-o", "--output", type=a_path, default=Path(), show_default=True, metavar="DIR")
@json_option
def wheel(pack: Path, name: str, version: str, output: Path, as_json: bool) -> None:
    """Make a wheel of a pack: once it is installed, calls find its kernels."""
    path = write_wheel(load_pack(pack), output, name, version)
    if as_json:
        print_json({"path": str(path)})
    say(f"wrote {path}")


def _report_build(report: BuildReport, *, as_json: bool) -> None:
    if as_json:
        failures = [asdict(failure) for failure in report.failures]
        made = {"emitted": report.emitted, "found": report.found, "failures": failures}
        print_json(_describe(report.pack) | made)
    for failure in report.failures:
        layers = ", ".join(failure.layers)
        say(one_line(failure.code, f"{layers}: {failure.message}"))
    say(f"{report.emitted} emitted, {report.found} found, {len(report.failures)} failed")
    _report_pack(report.pack, as_json=False)


def _report_pack(pack: Pack, as_json: bool) -> None:
    if as_json:
        print_json(_describe(pack))
    size = decimal(pack.path.stat().st_size)
    say(f"{pack.path}: {len(pack)} kernels, {size}, digest {pack.manifest.digest}")


def _describe(pack: Pack) -> dict[str, Any]:
    return {"path": str(pack.path), "kernels": len(pack), "digest": pack.manifest.digest}


def _row(entry: PackEntry) -> tuple[object, ...]:
    info = entry.info
    first, *others = entry.layers or ("",)
    return (
        info.key,
        info.options.nki,
        info.summary.get("instructions", ""),
        decimal(info.file.size),
        f"{first} and {len(others)} more" if others else first,
        ", ".join(compiled.compiler for compiled in entry.compiled),
    )


def _show_difference(found: PackDifference, a: str, b: str) -> None:
    for key in found.only_a:
        click.echo(f"only in {a}: {key}")
    for key in found.only_b:
        click.echo(f"only in {b}: {key}")
    for kernel in found.changed:
        click.echo(f"{kernel.key} differs")
        rows = ((f"  {name}", *values) for name, values in kernel.differences.items())
        click.echo(format_table(rows, header=("", a, b)))
