# SPDX-License-Identifier: Apache-2.0
"""A plan as text: what was chosen, what it was chosen from, what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conv3d_codegen.emitter.header import Header

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from conv3d_codegen.planner.model import KernelPlan, SectionSummary

SHOWN_CANDIDATES = 12


def render_plan(plan: KernelPlan) -> str:
    """Lay a plan out: candidates, tiling, memory, cost, index maps."""
    header = Header(plan)
    sections = {
        "Problem": header.problem,
        "Candidates": list(_candidates(plan)),
        "Tiling": header.tiling,
        "Memory": header.memory,
        "Cost": header.cost,
        "Sections": [_section_row(part) for part in plan.sections],
        "Index maps": header.maps,
    }
    return "\n\n".join([header.key, *(_section(*item) for item in sections.items() if item[1])])


def _section(title: str, lines: Sequence[str]) -> str:
    return "\n".join([title, *(f"  {line}" for line in lines)])


def _section_row(part: SectionSummary) -> str:
    times = f" ({part.times} times)" if part.times > 1 else ""
    return f"{part.instructions:6,}  {part.title}{times}"


def _candidates(plan: KernelPlan) -> Iterator[str]:
    """Give the cheapest candidates first, each with its verdict."""
    ranked = sorted(plan.candidates, key=lambda candidate: candidate.time_us)
    for candidate in ranked[:SHOWN_CANDIDATES]:
        yield (
            f"{candidate.time_us:9.1f} us {candidate.bound:<7} "
            f"{candidate.sbuf_bytes:8,} B/partition  {candidate.name}: {candidate.verdict}"
        )
    if len(ranked) > SHOWN_CANDIDATES:
        yield f"… and {len(ranked) - SHOWN_CANDIDATES} more (--json shows all)"
