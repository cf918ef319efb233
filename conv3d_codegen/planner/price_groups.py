# SPDX-License-Identifier: Apache-2.0
"""Prices what several groups in one matmul cost beside it: filters spread out, results brought together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from conv3d_codegen.planner.blocks import ceil_div
from conv3d_codegen.planner.correlation import fixed_axis
from conv3d_codegen.planner.estimate import Work
from conv3d_codegen.planner.price_basis import PriceBasis
from conv3d_codegen.planner.progressions import progressions

if TYPE_CHECKING:
    from conv3d_codegen.planner.axes import DgradAxis
    from conv3d_codegen.planner.schedule import DgradPlan, WgradPlan


@dataclass(frozen=True)
class GroupPrices(PriceBasis):
    """Prices filters and results of a pack of groups."""

    @property
    def per_group(self) -> tuple[int, int]:
        """Wide and narrow channels of one group."""
        problem = self.problem
        return problem.in_channels // problem.groups, problem.out_channels // problem.groups

    @property
    def is_diagonal(self) -> bool:
        """Whether stationary matrices of dx are built in place: see lower.diagonal."""
        return self.problem.groups > 1 and self.per_group[0] == 1

    def diagonal_work(self, plan: DgradPlan) -> Work:
        """Load rows of filters, and spread them over the columns on GpSimd."""
        problem, spec = self.problem, self.prices.spec
        depth, height, width = plan.axes
        loads, elements = 0, 0
        for d, h in product(_transfers(depth), _transfers(height)):
            loads += d[0] * h[0]
            elements += d[1] * h[1]
        elements *= len(width.entries()) * problem.out_channels
        entries = len(depth.entries()) * len(height.entries()) * len(width.entries())
        columns = entries * depth.rows * height.rows * plan.in_block
        # The product reads two tiles; only 16-bit ones come at an element a cycle.
        cycles = columns * (1 if self.item == 2 else 2)
        products = len(depth.entries()) * depth.rows if depth.blocked or height.blocked else 1
        if depth.blocked and height.blocked:
            products *= len(height.entries())
        cycles = max(cycles, products * spec.min_interval_cycles)
        return Work(
            gpsimd=cycles / spec.clock_ghz["gpsimd"],
            dma=self.prices.small_dma(loads, elements * self.item, self.item),
            instructions=loads + products + 1,
        )

    def spread_vector_ns(self, entries: int) -> float:
        """Time of spreading the filters of groups of several channels out on Vector, before they are turned."""
        cycles = math.prod(self.problem.kernel) * entries * (1 if self.item == 2 else 2)
        return cycles / self.prices.spec.clock_ghz["vector"]

    def group_results(self, plan: WgradPlan, chains: int, cells: int) -> Work:
        """Bring the columns of all groups together, and store them with few transfers."""
        problem, prices = self.problem, self.prices
        wide, narrow = self.per_group
        gathers = plan.stationary == "narrow" or wide == 1
        stores = max(chains, self._stores(plan)) * (1 if gathers else problem.groups)
        moved = self.filter_elements * self.out_item
        run = narrow if plan.stationary == "wide" and self.geometry.filter_layout == "DHWCN" else 1
        work = Work(
            dma=prices.small_dma(stores, moved, run * self.out_item),
            instructions=stores + (2 if gathers else 1) * chains,
        )
        if gathers:
            # A product that reads PSUM, and a sum, both an element a cycle.
            return work + Work(vector=2 * cells / prices.spec.clock_ghz["vector"])
        return work + Work(drain=prices.drains(chains, cells, 4))

    def _stores(self, plan: WgradPlan) -> int:
        """Transfers of all taps: one for all along an axis, unless its taps are packed or in reverse."""
        kernel = self.problem.kernel
        fixed = plan.stationary_axis
        if fixed is None:
            fixed = fixed_axis(kernel)
        stores = 1
        for number, taps in enumerate(kernel):
            if number == fixed or plan.shifted(number) == "narrow":
                stores *= taps
        return stores * ceil_div(self.problem.out_channels, 128)


def _transfers(axis: DgradAxis) -> list[tuple[int, int]]:
    """(transfers, taps) of every row of a dy block."""
    rows = [progressions(axis, row) for row in range(axis.fold)]
    return [(len(runs), sum(run.count for run in runs)) for runs in rows]
