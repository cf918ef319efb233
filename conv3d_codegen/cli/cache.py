# SPDX-License-Identifier: Apache-2.0
"""`cache info | list | prune | clear | verify`: the kernels kept on this machine."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
from rich.filesize import decimal

from conv3d_codegen.cache import upkeep
from conv3d_codegen.cli.cache_options import cache_option, read_size
from conv3d_codegen.cli.output import Exit, format_table, json_option, print_json

if TYPE_CHECKING:
    from conv3d_codegen.cache import KernelCache
    from conv3d_codegen.cache.upkeep import Entry, Removed

DAY = 86_400


@click.group()
def command() -> None:
    """Look after the kernels kept on this machine.

    Nothing in the cache is precious: whatever is deleted is emitted again when it is needed.
    """


@command.command()
@cache_option
@json_option
def info(cache: KernelCache, as_json: bool) -> None:
    """Show where the cache is and how much is in it."""
    entries = upkeep.list_entries(cache)
    size = sum(entry.size for entry in entries)
    facts = {
        "folder": str(cache.folder),
        "kernels": len(entries),
        "compiled": sum(len(entry.compilers) for entry in entries),
        "bytes": size,
        "damaged": len(upkeep.set_aside_folders(cache)),
    }
    if as_json:
        print_json(facts)
    else:
        click.echo(format_table((facts | {"bytes": f"{size} ({decimal(size)})"}).items()))


@command.command("list")
@cache_option
@json_option
def list_(cache: KernelCache, as_json: bool) -> None:
    """List the kernels, the most recently used first."""
    entries = upkeep.list_entries(cache)
    if as_json:
        print_json([_describe(entry) for entry in entries])
    elif entries:
        header = ("key", "nki", "recipe", "size", "last used (UTC)", "compiled by")
        click.echo(format_table(map(_row, entries), header=header))


@command.command()
@cache_option
@click.option(
    "--older-than",
    type=click.FloatRange(min=0),
    metavar="DAYS",
    help="Delete kernels that were not used for so many days.",
)
@click.option(
    "--max-size",
    callback=read_size,
    metavar="SIZE",
    help="Then delete those unused for longest until SIZE (such as 2GB) is kept.",
)
@json_option
def prune(
    cache: KernelCache, older_than: float | None, max_size: int | None, as_json: bool
) -> None:
    """Make room, by age and by size.

    What was set aside as damaged and what killed processes left is deleted in any case.
    """
    max_age = None if older_than is None else older_than * DAY
    _report(upkeep.prune(cache, max_age=max_age, max_size=max_size), as_json)


@command.command()
@cache_option
@json_option
def clear(cache: KernelCache, as_json: bool) -> None:
    """Delete every kernel."""
    _report(upkeep.clear(cache), as_json)


@command.command()
@cache_option
@json_option
def verify(cache: KernelCache, as_json: bool) -> Exit:
    """Check every file against its checksum.

    Exits with 1 when something is damaged. Nothing is changed: whoever needs a damaged kernel
    sets it aside and makes it again.
    """
    problems = upkeep.verify_cache(cache)
    if as_json:
        print_json([{"folder": str(found.folder), "problem": found.message} for found in problems])
    else:
        for found in problems:
            click.echo(f"{found.folder}: {found.message}")
        click.echo(f"{len(upkeep.list_entries(cache))} kernels, {len(problems)} problems")
    return Exit.FAILED if problems else Exit.DONE


def _report(removed: Removed, as_json: bool) -> None:
    if as_json:
        print_json({"kernels": removed.entries, "bytes": removed.size})
    else:
        click.echo(f"deleted {removed.entries} kernels, {decimal(removed.size)}")


def _row(entry: Entry) -> tuple[str, ...]:
    used = datetime.fromtimestamp(entry.used, UTC).strftime("%Y-%m-%d %H:%M")
    compilers = ", ".join(entry.compilers)
    if entry.info is None:
        return entry.folder.name, "", "", decimal(entry.size), used, "damaged"
    info = entry.info
    size = decimal(entry.size)
    return info.key, info.options.nki, info.recipe[:12], size, used, compilers


def _describe(entry: Entry) -> dict[str, Any]:
    return {
        "folder": str(entry.folder),
        "kernel": None if entry.info is None else entry.info.to_plain(),
        "bytes": entry.size,
        "used": datetime.fromtimestamp(entry.used, UTC).isoformat(),
        "compiled_by": list(entry.compilers),
    }
