# SPDX-License-Identifier: Apache-2.0
"""Choosing and lowering within the instruction budget, or saying how much of the problem would fit."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from conv3d_codegen.errors import RequestError, TextTooLong
from conv3d_codegen.lower.kernel import lower
from conv3d_codegen.planner.model import ROLLED_SINCE
from conv3d_codegen.planner.problem import problems_of
from conv3d_codegen.planner.rolling import can_roll
from conv3d_codegen.planner.search import SBUF_BUDGET, choose
from conv3d_codegen.program.program import count

if TYPE_CHECKING:
    from collections.abc import Callable

    from conv3d_codegen.geometry import ConvGeometry
    from conv3d_codegen.planner.options import EmitOptions
    from conv3d_codegen.planner.search import Choice
    from conv3d_codegen.program.program import Program, ProgramCounts

# What the first estimate aims at, as a share of the budget: most texts come out at most so much longer.
FIRST_AIM = 0.97
# What a next estimate aims at, after one that came out too low.
CAUTION = 0.95
# AWS's compiler places tensors up to here on trn2 without spills (NKI allocation notes: stay at or below 200 KiB).
MOST_SBUF_BYTES = 200 * 1024


@dataclass(frozen=True, slots=True)
class Lowered:
    """A schedule, the program that carries it out, and its counts."""

    choice: Choice
    program: Program
    counts: ProgramCounts


def lower_within_budget(geometry: ConvGeometry, options: EmitOptions) -> Lowered:
    """Lower the best schedule whose text is short enough.

    Raises:
        TextTooLong: the text must do without loops and exceeds the budget.
    """
    lowered = _lower(geometry, options)
    if isinstance(lowered, Lowered):
        return lowered
    raise _too_long(geometry, options, lowered)


def _lower(geometry: ConvGeometry, options: EmitOptions) -> Lowered | float:
    """Lower within the budget, or count the instructions of text that must do without loops and is too long.

    Instructions and memory are estimated before a schedule is taken; where the text comes out longer, or holds more
    than SBUF has, another one is taken with a tighter budget. Loops always make the text short, if not always short
    enough: then the shortest is good enough.
    """
    limit = math.inf if options.unroll == "full" else options.max_instructions
    budget = limit * FIRST_AIM if can_roll(options) else limit
    room: float = SBUF_BUDGET
    shortest: Lowered | None = None
    while True:
        choice = choose(geometry, problems_of(geometry), options, budget, room)
        if not choice.fits and not can_roll(options):
            return choice.instructions if shortest is None else shortest.counts.instructions
        program = lower(geometry, choice.problem, choice.schedule)
        counts = count(program)
        if counts.sbuf_peak_bytes > MOST_SBUF_BYTES:
            room *= CAUTION * MOST_SBUF_BYTES / counts.sbuf_peak_bytes
            continue
        if shortest is None or counts.instructions < shortest.counts.instructions:
            shortest = Lowered(choice, program, counts)
        if shortest.counts.instructions <= limit or not choice.fits:
            return shortest
        budget *= CAUTION * limit / counts.instructions


def _too_long(geometry: ConvGeometry, options: EmitOptions, instructions: float) -> TextTooLong:
    """Name the largest part of the problem whose text is short enough without loops."""

    def fits(part: ConvGeometry) -> bool:
        return isinstance(_lower(part, options), Lowered)

    batch = _largest(geometry.batch, lambda value: fits(replace(geometry, batch=value)))
    one = replace(geometry, batch=1)
    part = f"batch up to {batch}, " if batch else _largest_slice(one, fits)
    return TextTooLong(
        f"{geometry.key()} with nki {options.nki}",
        f"its text has about {instructions:,.0f} instructions, the budget is {options.max_instructions:,}, "
        f"and loops came with NKI {ROLLED_SINCE}",
        f"{part}nki {ROLLED_SINCE} or newer, or unroll full",
    )


def _largest_slice(geometry: ConvGeometry, fits: Callable[[ConvGeometry], bool]) -> str:
    """Say how far to cut one sample along its first axis."""
    size = geometry.input_size
    number = next((axis for axis in range(3) if size[axis] > 1), 2)

    def fits_cut(extent: int) -> bool:
        d, h, w = (extent if axis == number else size[axis] for axis in range(3))
        try:
            return fits(replace(geometry, input_size=(d, h, w)))
        except RequestError:
            return False

    extent = _largest(size[number], fits_cut)
    name = ("depth", "height", "width")[number]
    return f"batch 1 with an input {name} up to {extent}, " if extent else ""


def _largest(most: int, holds: Callable[[int], bool]) -> int:
    """Largest value in 1 … most - 1 for which a falling condition holds, or 0."""
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low
