# SPDX-License-Identifier: Apache-2.0
"""An inspection as one page without anything to load."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from jinja2 import Environment, StrictUndefined
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from conv3d_codegen.report.lanes import lanes

if TYPE_CHECKING:
    from conv3d_codegen.report.inspection import Inspection


def render_html(inspection: Inspection) -> str:
    """Render the page; the same inspection always gives the same bytes."""
    page = files("conv3d_codegen.report").joinpath("inspection.html.jinja")
    environment = Environment(
        undefined=StrictUndefined, autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    formatter = HtmlFormatter(
        linenos="inline",
        lineanchors="L",
        anchorlinenos=True,
        hl_lines=[violation.line for violation in inspection.report.violations],
    )
    return environment.from_string(page.read_text(encoding="utf-8")).render(
        inspection=inspection,
        timeline=inspection.report.run.timeline,
        lanes=lanes(inspection.report.run.timeline),
        executed=inspection.report.run.counts.by_kind,
        code=highlight(inspection.source, PythonLexer(), formatter),
        code_style=formatter.get_style_defs(".highlight"),
    )
