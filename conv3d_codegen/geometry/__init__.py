# SPDX-License-Identifier: Apache-2.0
"""The problem statement: what a kernel has to compute, and nothing about how."""

from __future__ import annotations

from conv3d_codegen.geometry.axes import AxisGeometry
from conv3d_codegen.geometry.correlation import Correlation
from conv3d_codegen.geometry.geometry import ConvGeometry

__all__ = ["AxisGeometry", "ConvGeometry", "Correlation"]
