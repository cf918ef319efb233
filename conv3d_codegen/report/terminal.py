# SPDX-License-Identifier: Apache-2.0
"""An inspection as coloured text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from conv3d_codegen.report.inspection import Inspection

BAR_WIDTH = 40


def render_terminal(inspection: Inspection) -> RenderableType:
    """Lay an inspection out for a terminal."""
    return Group(
        Text(inspection.geometry.key(), style="bold"),
        Text(
            f"{inspection.filename}, {inspection.outline.lines:,} lines, {inspection.sha256[:12]}"
        ),
        "",
        Text(inspection.outline.docstring),
        "",
        _verdict(inspection),
        _facts(inspection),
        _sections(inspection),
        _instructions(inspection),
        _engines(inspection),
    )


def _table(*columns: str, title: str = "") -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_header=bool(columns))
    for position, column in enumerate(columns):
        table.add_column(column, justify="left" if position == 0 else "right")
    return table


def _verdict(inspection: Inspection) -> RenderableType:
    report = inspection.report
    gradients = ", ".join(f"{check.name} {check.verdict}" for check in report.gradients)
    lines = [Text(gradients, style="green" if report.passed else "bold red")]
    lines += [Text(str(violation), style="red") for violation in report.violations]
    if not report.violations:
        lines.append(Text("no rule is broken", style="green"))
    return Group(*lines)


def _facts(inspection: Inspection) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_header=False)
    for name, value in inspection.facts:
        table.add_row(name, escape(value))
    return table


def _sections(inspection: Inspection) -> Table:
    table = _table("section", "lines", "instructions", "most of them", title="Sections")
    for section in inspection.outline.sections:
        most = next(iter(section.instructions.items()), ("", 0))
        table.add_row(
            escape(section.title),
            f"{section.first_line}-{section.last_line}",
            f"{section.total:,}",
            f"{most[1]:,} {most[0]}",
        )
    return table


def _instructions(inspection: Inspection) -> Table:
    table = _table("instruction", "written", "executed", title="Instruction mix")
    executed = inspection.report.run.counts.by_kind
    for name, count in inspection.outline.instructions.items():
        table.add_row(name, f"{count:,}", f"{executed[name]:,}")
    return table


def _engines(inspection: Inspection) -> Table:
    timeline = inspection.report.run.timeline
    table = _table("engine", "busy us", "", title="Engines, as a share of the makespan")
    for engine, busy in timeline.busy_us.items():
        share = busy / timeline.makespan_us if timeline.makespan_us else 0.0
        table.add_row(
            engine, f"{busy:.1f}", f"{'█' * round(share * BAR_WIDTH):<{BAR_WIDTH}} {share:4.0%}"
        )
    return table
