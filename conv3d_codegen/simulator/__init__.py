# SPDX-License-Identifier: Apache-2.0
"""The bundled simulator: executes a kernel file's text and holds it to NKI's rules.

It sees nothing but the text: neither the geometry nor the plan it came from.
"""

from __future__ import annotations

from conv3d_codegen.simulator.rules import RULES, Violation
from conv3d_codegen.simulator.simulation import SimulationResult, simulate
from conv3d_codegen.simulator.tensors import Blank
from conv3d_codegen.simulator.text import check_text
from conv3d_codegen.simulator.timeline import Event, Timeline
from conv3d_codegen.simulator.trace import Counts

__all__ = [
    "RULES",
    "Blank",
    "Counts",
    "Event",
    "SimulationResult",
    "Timeline",
    "Violation",
    "check_text",
    "simulate",
]
