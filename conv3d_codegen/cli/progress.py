# SPDX-License-Identifier: Apache-2.0
"""A progress bar on stderr, for people: where nobody watches, there is none."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int, str], object]]:
    """Yield a function of what is done, how much there is, and the name of the latest."""
    if not sys.stderr.isatty():
        yield lambda done, total, name: None
        return
    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)

        def show(done: int, total: int, name: str) -> None:
            bar.update(task, completed=done, total=total, description=f"{what} {name[:60]}")

        yield show
