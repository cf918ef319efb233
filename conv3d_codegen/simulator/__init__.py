# SPDX-License-Identifier: Apache-2.0
"""The bundled simulator: executes a kernel file's text and holds it to NKI's rules.

It sees nothing but the text: neither the geometry nor the plan it came from.
"""

from __future__ import annotations

from conv3d_codegen.simulator.rules import RULES, Violation
from conv3d_codegen.simulator.simulation import SimulationResult, simulate
from conv3d_codegen.simulator.text import check_text

__all__ = ["RULES", "SimulationResult", "Violation", "check_text", "simulate"]
