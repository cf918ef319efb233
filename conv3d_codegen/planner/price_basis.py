# SPDX-License-Identifier: Apache-2.0
"""What every price starts from: the problem, the rates of its target, element sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from conv3d_codegen.dtypes import compute_dtype, dtype
from conv3d_codegen.planner.estimate import Prices
from conv3d_codegen.targets import target

if TYPE_CHECKING:
    from conv3d_codegen.geometry import ConvGeometry
    from conv3d_codegen.planner.problem import Problem
    from conv3d_codegen.planner.schedule import Side


@dataclass(frozen=True)
class PriceBasis:
    """One problem of a geometry, and what its elements cost."""

    geometry: ConvGeometry
    problem: Problem

    @cached_property
    def prices(self) -> Prices:
        """Rates for the type that is computed with."""
        return Prices(target(self.geometry.target), self.compute)

    @cached_property
    def compute(self) -> str:
        """Type of the operands on chip."""
        return compute_dtype(self.geometry.dtype, self.geometry.math)

    @cached_property
    def item(self) -> int:
        """Bytes of an operand's element on chip."""
        return dtype(self.compute).bytes

    @cached_property
    def out_item(self) -> int:
        """Bytes of a result element."""
        return dtype(self.geometry.out_dtype).bytes

    def is_direct(self, side: Side) -> bool:
        """Whether dw reads a tensor in the order that it has in HBM: channels are last, and nothing else reads it."""
        if self.geometry.layout != "NDHWC":
            return False
        x_side = "narrow" if self.problem.transposed else "wide"
        return side == x_side or self.geometry.gradients == ("dw",)

    @property
    def filter_elements(self) -> int:
        """Filters of one pack."""
        problem = self.problem
        return (
            math.prod(problem.kernel) * problem.in_channels * problem.out_channels // problem.groups
        )
