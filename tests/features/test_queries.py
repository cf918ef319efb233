# SPDX-License-Identifier: Apache-2.0
"""What can be asked before a kernel runs, as a two-phase call's first phase would tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from conv3d_codegen.api import EmitOptions, emit, plan
from conv3d_codegen.geometry import ConvGeometry
from conv3d_codegen.simulator import simulate
from conv3d_codegen.verify import make_inputs

BASE = ConvGeometry(
    batch=2, in_channels=16, out_channels=12, input_size=(3, 5, 6), kernel_size=(2, 3, 3)
)
FEATURES: list[dict[str, Any]] = [
    {},
    {"groups": 4},
    {"transposed": True, "stride": (2, 1, 2)},
    {"layout": "NDHWC", "filter_layout": "OIDHW"},
    {"dtype": "fp32", "math": "bf16", "out_dtype": "bf16"},
    {"rank": 2, "input_size": (1, 8, 9), "kernel_size": (1, 3, 3)},
]


@pytest.mark.parametrize("change", FEATURES)
def test_counts_of_the_plan_are_those_of_the_run(change: dict[str, Any]) -> None:
    geometry = replace(BASE, **change)
    kernel = emit(geometry)
    operands = make_inputs(geometry, "integers", 0)
    run = simulate(kernel.source, (operands.dy, operands.x, operands.w))
    counts = kernel.plan.counts
    assert counts.instructions == run.counts.text
    assert counts.dma_bytes_in == run.counts.dma_in_bytes
    assert counts.dma_bytes_out == run.counts.dma_out_bytes
    shapes = kernel.plan.output_shapes
    assert [output.shape for output in run.outputs] == [shapes[n] for n in geometry.gradients]


@pytest.mark.parametrize("change", FEATURES)
def test_queries_are_in_the_json(change: dict[str, Any]) -> None:
    report = plan(replace(BASE, **change)).to_dict()
    assert report["workspace_bytes"] == 0
    assert set(report["output_shapes"]) == {"dx", "dw", "db"}
    assert report["counts"]["sbuf_peak_bytes"] > 0
    assert report["compulsory_bytes"] > 0


@pytest.mark.parametrize("change", FEATURES)
def test_emission_is_deterministic(change: dict[str, Any]) -> None:
    geometry = replace(BASE, **change)
    assert emit(geometry).source == emit(geometry, EmitOptions()).source
