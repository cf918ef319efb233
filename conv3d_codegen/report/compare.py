# SPDX-License-Identifier: Apache-2.0
"""How two kernels differ: what they compute and cost first, their text last."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from conv3d_codegen.report.inspection import Inspection

ABSENT = "-"


@dataclass(frozen=True, slots=True)
class Difference:
    """One fact on which the kernels disagree."""

    what: str
    a: str
    b: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """All differences; none and no text means the files are equal."""

    differences: tuple[Difference, ...]
    text: str


def compare(a: Inspection, b: Inspection) -> Comparison:
    """Compare two kernels: geometry, plan, results, costs, sections, then the text."""
    pairs = [
        (_geometry_facts(a), _geometry_facts(b)),
        (_plan_facts(a), _plan_facts(b)),
        (_result_facts(a), _result_facts(b)),
        (dict(a.facts), dict(b.facts)),
        (_section_facts(a), _section_facts(b)),
    ]
    return Comparison(
        differences=tuple(found for pair in pairs for found in _differences(*pair)),
        text="".join(
            difflib.unified_diff(
                a.source.splitlines(keepends=True),
                b.source.splitlines(keepends=True),
                a.filename,
                b.filename,
            )
        ),
    )


def _differences(a: Mapping[str, str], b: Mapping[str, str]) -> list[Difference]:
    names = dict.fromkeys([*a, *b])
    rows = (Difference(name, a.get(name, ABSENT), b.get(name, ABSENT)) for name in names)
    return [row for row in rows if row.a != row.b]


def _geometry_facts(inspection: Inspection) -> dict[str, str]:
    geometry = inspection.geometry
    return {field.name: str(getattr(geometry, field.name)) for field in fields(geometry)}


def _plan_facts(inspection: Inspection) -> dict[str, str]:
    return dict(_flat("plan", inspection.emitted.plan.to_dict()["schedule"]))


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Give every number of nested dictionaries a name of its own."""
    if isinstance(value, dict):
        for inner, item in value.items():
            yield from _flat(f"{name} {inner}", item)
    else:
        yield name, str(value)


def _result_facts(inspection: Inspection) -> dict[str, str]:
    report = inspection.report
    facts = {check.name: check.verdict for check in report.gradients}
    return facts | {"violations": str(len(report.violations))}


def _section_facts(inspection: Inspection) -> dict[str, str]:
    return {
        f"section {section.title}": f"{section.total:,} instructions"
        for section in inspection.outline.sections
    }
