# SPDX-License-Identifier: Apache-2.0
"""Which cache a command uses, and how a size is given."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from conv3d_codegen.cache import KernelCache

if TYPE_CHECKING:
    from collections.abc import Callable

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def _cache(context: click.Context, option: click.Parameter, folder: Path | None) -> KernelCache:
    return KernelCache() if folder is None else KernelCache(folder)


def cache_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--cache-dir` to a command, which receives a `KernelCache`."""
    return click.option(
        "--cache-dir",
        "cache",
        type=click.Path(path_type=Path, file_okay=False),
        callback=_cache,
        help="Folder of the cache. [default: where this platform keeps caches]",
    )(function)


def read_size(context: click.Context, option: click.Parameter, text: str | None) -> int | None:
    """Read a number of bytes: 500MB, 2G, 1000."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,15}(?:\.\d+)?)\s*([KMGT]?)B?", text.upper(), re.ASCII)
    if match is None:
        raise click.BadParameter(f"{text!r} is not a size; accepted: such as 500MB or 2GB")
    return int(float(match[1]) * UNITS[match[2]])
