# SPDX-License-Identifier: Apache-2.0
"""The options that shape a kernel's text without changing what it computes."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from conv3d_codegen.planner.options import EmitOptions
from conv3d_codegen.simulator.signatures import known_versions

if TYPE_CHECKING:
    from collections.abc import Callable


nki_option = click.option(
    "--nki",
    type=click.Choice(known_versions()),
    default=EmitOptions().nki,
    show_default=True,
    help="Oldest NKI release that must accept the text.",
)


def emit_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, which receives them as one `options` argument."""

    @click.option(
        "--unroll",
        type=click.Choice(["auto", "full"]),
        default=EmitOptions().unroll,
        show_default=True,
        help="full: no loop is left, however long the text gets.",
    )
    @click.option(
        "--max-instructions",
        type=click.IntRange(min=1),
        default=EmitOptions().max_instructions,
        show_default=True,
        help="Roll the outer loop rather than write more.",
    )
    @nki_option
    @wraps(function)
    def with_options(unroll: str, max_instructions: int, nki: str, **rest: Any) -> Any:
        options = EmitOptions(unroll=unroll, max_instructions=max_instructions, nki=nki)
        return function(options=options, **rest)

    return with_options
