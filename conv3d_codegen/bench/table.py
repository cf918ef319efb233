# SPDX-License-Identifier: Apache-2.0
"""Measurements as a table with its averages, for the terminal and for a document."""

from __future__ import annotations

from math import exp, log
from typing import TYPE_CHECKING

from conv3d_codegen.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from conv3d_codegen.bench.measure import Measurement

HEADER = (
    "layer",
    "floor us",
    "makespan us",
    "x floor",
    "estimate us",
    "bound",
    "PE use",
    "instructions",
    "short runs",
    "x faster than nkilib",
)
WORST = 5
BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"


def row(measured: Measurement) -> tuple[str, ...]:
    """Return one line of the table."""
    return (
        measured.name,
        f"{measured.floor_us:.1f}",
        f"{measured.makespan_us:.1f}",
        f"{measured.ratio:.2f}",
        f"{measured.estimate_us:.1f}",
        measured.bound,
        f"{measured.pe_use:.0%}",
        f"{measured.instructions:,}",
        f"{measured.short_run_share:.0%}",
        f"{measured.speed_up:.1f}" if measured.speed_up else "-",
    )


def summary(measurements: Sequence[Measurement]) -> Iterator[str]:
    """Yield the averages, then the worst layers with what holds them up."""
    groups = {
        "all layers": measurements,
        "ordinary layers (neither grouped nor transposed)": [
            m for m in measurements if m.is_ordinary
        ],
        "ordinary layers of at least 128 channels and several taps": [
            m for m in measurements if m.is_wide
        ],
    }
    for what, group in groups.items():
        if group:
            yield f"{what}: geomean {_geomean([m.ratio for m in group]):.2f} x floor of {len(group)}"
    yield from _against_nkilib(measurements)
    yield f"longest text: {max(m.instructions for m in measurements):,} instructions"
    for measured in sorted(measurements, key=lambda m: -m.ratio)[:WORST]:
        yield f"{measured.name}, {measured.ratio:.2f} x floor: {measured.reason}"


def _against_nkilib(measurements: Sequence[Measurement]) -> Iterator[str]:
    speed_ups = [m.speed_up for m in measurements if m.speed_up]
    if not speed_ups:
        return
    slower = [m.name for m in measurements if m.nkilib and m.makespan_us > m.nkilib.busiest_us]
    yield (
        f"against nkilib: geomean {_geomean(speed_ups):.1f} x faster, on the {len(speed_ups)} layers"
        " that it has kernels for"
    )
    listed = ", ".join(slower) if slower else "no layer"
    yield f"slower than nkilib's busiest engine alone would be: {listed}"


def render_markdown(measurements: Sequence[Measurement]) -> str:
    """Lay the table and its summary out as Markdown."""
    rows = [HEADER, tuple("---" if i in {0, 5} else "---:" for i in range(len(HEADER)))]
    rows += [row(measured) for measured in measurements]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in rows)
    return "\n".join([table, "", *(f"- {line}" for line in summary(measurements))])


def frame(text: str) -> tuple[str, str]:
    """Split a document into what stands before and after the table between its markers."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise RequestError(
            "bench-markers", f"the document lacks {BEGIN} and {END} to write between"
        )
    return f"{before}{begin}\n", f"\n{end}{after}"


def _geomean(values: Sequence[float]) -> float:
    return exp(sum(map(log, values)) / len(values))
