# SPDX-License-Identifier: Apache-2.0
"""Depthwise convolutions: few transfers and masks, and faster than vector arithmetic could be."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import pytest

from conv3d_codegen.api import EmitOptions, emit, plan
from conv3d_codegen.bench.measure import measure, with_batch
from conv3d_codegen.dtypes import dtype
from conv3d_codegen.geometry import AxisGeometry, ConvGeometry
from conv3d_codegen.layers import bench_layers, select_layer
from conv3d_codegen.planner.axes import dgrad_axis, forward_axis
from conv3d_codegen.planner.progressions import progressions
from conv3d_codegen.targets import cost, target
from conv3d_codegen.verify import verify_geometry
from exactness import assert_exact

BASE = ConvGeometry(
    batch=1,
    in_channels=40,
    out_channels=40,
    input_size=(3, 6, 7),
    kernel_size=(2, 3, 3),
    padding=(1, 0, 1, 1, 1, 1),
    groups=40,
)
# How many times faster than vector arithmetic a layer must be. Four taps in a line share too little of
# the array, and a transposed layer with stride 2 uses half of it.
FASTER = {
    "X3D-M/res3.b_dw": 8,
    "X3D-M/res4b.b_dw": 8,
    "X3D-M/stem.conv_t_dw": 5,
    "MedNeXt-k5/enc2.dw": 20,
    "ConvNeXt(2D as 3D)/dw7": 10,
    "Mamba(1D as 3D)/causal_dw4": 4.5,
    "MedNeXt-k3/up.dw_transpose": 3.5,
}
QUICK = ("X3D-M/res4b.b_dw", "ConvNeXt(2D as 3D)/dw7", "Mamba(1D as 3D)/causal_dw4")
LAYERS = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.sweep, id=name) for name in FASTER
]


def vector_us(geometry: ConvGeometry) -> float:
    """Time that Vector would take for dx, dw and db, if it never waited and all its partitions were in use.

    For every tap dx takes a product with the channel's filter and a sum, in one scalar_tensor_tensor;
    dw a product of two tiles, in fp32 because it is yet to be summed, and a sum along the positions.
    """
    spec = target(geometry.target)
    sizes = geometry.input_size if geometry.transposed else geometry.output_size
    positions = geometry.batch * math.prod(sizes) * geometry.groups
    columns = math.ceil(positions / spec.partitions)
    operand = cost.Access("sbuf", dtype(geometry.dtype).bytes)
    wide = cost.Access("sbuf", 4)
    dx = cost.scalar_tensor_tensor_ns(spec, columns, (operand, wide), wide)
    dw = cost.tensor_tensor_ns(spec, "vector", columns, (operand, operand), wide)
    dw += cost.reduce_ns(spec, columns, wide, wide)
    db = cost.reduce_ns(spec, columns, operand, wide)
    return (math.prod(geometry.kernel_size) * (dx + dw) + db) / 1000


@pytest.mark.parametrize("name", LAYERS)
def test_kernels_are_faster_than_vector_arithmetic(name: str) -> None:
    layer = select_layer(with_batch(bench_layers(), 1), name, "bench_layers.json")
    measured = measure(layer)
    assert not measured.violations
    assert measured.instructions <= 10_000
    assert measured.makespan_us * FASTER[name] <= vector_us(layer.geometry)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("fold", [1, 2, 4])
def test_progressions_hold_every_tap_of_a_row_once(stride: int, dilation: int, fold: int) -> None:
    axis = AxisGeometry(11, 3, stride, dilation, 1, 2)
    modes = (
        dgrad_axis(axis, fold, blocked=True),
        dgrad_axis(axis, fold, blocked=True, multiple=2),
        forward_axis(axis, fold, blocked=True),
        dgrad_axis(axis),
    )
    for mode in modes:
        for row in range(mode.fold):
            listed = [
                (run.tap + n * run.tap_step, run.place + n * run.place_step)
                for run in progressions(mode, row)
                for n in range(run.count)
            ]
            wanted = [
                (tap, entry * mode.rows + r)
                for entry, block_tap in enumerate(mode.entries())
                for u, r, tap in block_tap.triples
                if u == row
            ]
            assert sorted(listed) == sorted(wanted)


@pytest.mark.parametrize("change", [{}, {"transposed": True, "stride": (2, 2, 2)}])
@pytest.mark.parametrize("multiplier", [1, 3])
@pytest.mark.parametrize("filter_layout", ["DHWCN", "OIDHW", "ODHWI"])
def test_multipliers_are_exact(
    change: dict[str, object], multiplier: int, filter_layout: str
) -> None:
    geometry = replace(BASE, out_channels=40 * multiplier, filter_layout=filter_layout)
    assert_exact(replace(geometry, **change))


@pytest.mark.parametrize("budget", [10_000, 300])
def test_several_packs_are_exact_with_and_without_loops(budget: int) -> None:
    geometry = replace(BASE, in_channels=150, out_channels=150, groups=150, batch=4)
    options = EmitOptions(max_instructions=budget)
    assert ("fori_loop" in emit(geometry, options).source) == (budget < 1000)
    for gradients in (geometry.gradients, ("dx",), ("dw", "db")):
        report = verify_geometry(replace(geometry, gradients=gradients), options)
        assert not report.violations
        assert all(check.exact for check in report.gradients)


def test_masks_are_built_once_for_packs_of_one_size() -> None:
    """Packs share masks; a last pack of another size has its own."""
    counts = []
    for groups in (256, 512):
        geometry = replace(BASE, in_channels=groups, out_channels=groups, groups=groups)
        counts.append(dict(plan(geometry).counts.by_name)["affine_select"])
    assert counts[0] == counts[1]


def test_diagonal_filters_are_not_turned() -> None:
    for stride, dilation in product(((1, 1, 1), (1, 2, 2)), ((1, 1, 1), (1, 1, 2))):
        geometry = replace(BASE, gradients=("dx",), stride=stride, dilation=dilation)
        assert "nc_transpose" not in emit(geometry).source
