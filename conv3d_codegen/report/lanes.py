# SPDX-License-Identifier: Apache-2.0
"""A timeline as one lane of busy stretches per engine, coarse enough to draw."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conv3d_codegen.simulator.timeline import Timeline

RESOLUTION = 1000  # of the drawing; pauses shorter than one unit are closed


def lanes(timeline: Timeline) -> dict[str, list[tuple[int, int]]]:
    """Return (start, width) of each busy stretch in units of a thousandth of the makespan."""
    result: dict[str, list[tuple[int, int]]] = {engine: [] for engine in timeline.busy_us}
    unit = timeline.makespan_us * 1000 / RESOLUTION
    for event in sorted(timeline.events, key=lambda event: event.start_ns):
        start, end = int(event.start_ns / unit), int(event.end_ns / unit) + 1
        lane = result[event.engine]
        if lane and start <= sum(lane[-1]):
            first, width = lane[-1]
            lane[-1] = (first, max(width, end - first))
        else:
            lane.append((start, end - start))
    return result
