# SPDX-License-Identifier: Apache-2.0
"""How fast the kernels of real layers are: against the roofline, and against AWS's kernel."""

from __future__ import annotations

from conv3d_codegen.bench.measure import Measurement, measure, measure_all, with_batch
from conv3d_codegen.bench.table import HEADER, frame, render_markdown, row, summary

__all__ = [
    "HEADER",
    "Measurement",
    "frame",
    "measure",
    "measure_all",
    "render_markdown",
    "row",
    "summary",
    "with_batch",
]
