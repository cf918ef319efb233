# SPDX-License-Identifier: Apache-2.0
"""Two cores per kernel: halves of samples, positions, groups or channels, or both cores do everything."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from conv3d_codegen.api import EmitOptions, emit, emit_scored, plan
from conv3d_codegen.geometry import ConvGeometry
from conv3d_codegen.planner import search
from conv3d_codegen.planner.problem import problems_of
from conv3d_codegen.verify import verify_source
from exactness import assert_exact

BASE = ConvGeometry(
    batch=2,
    in_channels=16,
    out_channels=12,
    input_size=(3, 5, 6),
    kernel_size=(2, 3, 3),
    lnc=2,
)

POSITIONS: dict[str, dict[str, Any]] = {
    "planes": {"input_size": (4, 5, 6), "kernel_size": (1, 3, 3)},
    "patches": {"input_size": (3, 8, 6), "kernel_size": (2, 2, 3), "stride": (1, 2, 1)},
    "lines": {"input_size": (3, 5, 8), "kernel_size": (2, 1, 1)},
    "one line": {"input_size": (3, 4, 6), "kernel_size": (1, 1, 1)},
    "transposed": {"input_size": (4, 3, 3), "stride": (2, 1, 1), "transposed": True},
    "groups": {"out_channels": 3, "groups": 3, "input_size": (4, 3, 5), "kernel_size": (1, 3, 3)},
}
ODD: dict[str, Any] = {"batch": 1, "in_channels": 3}
WITHOUT_DX = ODD | {"gradients": ("dw", "db")}

SHARES: list[tuple[dict[str, Any], str]] = [
    ({"in_channels": 15}, "batch"),
    ({"batch": 1, "groups": 2, "in_channels": 6}, "groups"),
    ({"batch": 3}, "x channels"),
    ({"batch": 1, "transposed": True}, "x channels"),
    *((ODD | change, "positions") for change in POSITIONS.values()),
    (WITHOUT_DX, "dy channels"),
    (WITHOUT_DX | {"transposed": True}, "dy channels"),
    ({"batch": 3, "in_channels": 15, "out_channels": 9}, "nothing"),
    ({"batch": 1, "in_channels": 9, "out_channels": 9, "groups": 3}, "nothing"),
]


@pytest.mark.parametrize(("change", "share"), SHARES)
@pytest.mark.parametrize("layout", ["NCDHW", "NDHWC"])
def test_both_cores_together_are_exact(change: dict[str, Any], share: str, layout: str) -> None:
    geometry = replace(BASE, layout=layout, **change)
    assert plan(geometry).problem.share == share
    assert_exact(geometry)


@pytest.mark.parametrize("filter_layout", ["DHWCN", "OIDHW", "ODHWI"])
def test_filter_orders_are_exact(filter_layout: str) -> None:
    for share in ({"batch": 1}, {"batch": 1, "groups": 4}, {"batch": 1, "transposed": True}):
        assert_exact(replace(BASE, filter_layout=filter_layout, **share))


@pytest.mark.parametrize("gradients", [("dx", "dw", "db"), ("dw", "db")], ids=",".join)
@pytest.mark.parametrize(
    "more", [{}, {"batch": 1}, {"groups": 2}, {"transposed": True}, {"layout": "NDHWC"}], ids=str
)
@pytest.mark.parametrize("filters", [(12, 3), (12, 1, 3)], ids=["1-D", "2-D"])
def test_every_way_to_share_serves_lower_ranks(
    filters: tuple[int, ...], more: dict[str, Any], gradients: tuple[str, ...]
) -> None:
    """Also ways that are not picked: each core finds its half in tensors of the rank that users have."""
    shape = (2, 16, *(4, 6)[-len(filters) + 1 :])
    geometry = replace(ConvGeometry.from_shapes(shape, filters, lnc=2), gradients=gradients, **more)
    for problem in problems_of(geometry):
        found = search.priced(geometry, [problem], EmitOptions(), budget=10_000)
        best = min(found, key=lambda scored: scored.score)
        report = verify_source(emit_scored(geometry, best).source, geometry)
        assert not report.violations, problem.share
        assert all(gradient.exact for gradient in report.gradients), problem.share


def test_control_flow_does_not_depend_on_the_core() -> None:
    """The core's number moves access patterns and picks where results go, and nothing else."""
    source = emit(replace(BASE, batch=4)).source
    body = source.split("nl.program_id(0)")[1]
    uses = [line for line in body.splitlines() if re.search(r"\bcore\b", line)]
    allowed = re.compile(r"offset=core \* \d+|= d[xwb] if core == 0 else|=1 - core|^ *#")
    assert not [line for line in uses if not allowed.search(line)]


def test_halves_of_the_batch_exchange_dw_and_db_once() -> None:
    geometry = replace(BASE, in_channels=15)
    counts = dict(plan(geometry).counts.by_name)
    assert counts["sendrecv"] == 2
    assert "sendrecv" not in dict(plan(replace(geometry, gradients=("dx",))).counts.by_name)


def test_scratch_is_counted_as_workspace() -> None:
    geometry = replace(BASE, in_channels=15)
    report = plan(geometry)
    elements = 2 * 3 * 3 * 15 * 12 + 12
    assert report.workspace_bytes == 2 * elements
    assert plan(replace(geometry, lnc=1)).workspace_bytes == 0


@pytest.mark.parametrize(
    ("filters", "more", "share"),
    [
        ((45, 1, 7, 7), {"stride": (1, 2, 2), "padding": (0, 3, 3)}, 0.6),
        ((64, 7, 7, 7), {"stride": 2, "padding": 3, "gradients": ("dw", "db")}, 0.8),
    ],
    ids=["frames", "channels of dy"],
)
def test_stems_of_three_channels_are_shared(
    filters: tuple[int, ...], more: dict[str, Any], share: float
) -> None:
    """Video stems have few samples and an odd number of channels: their frames, or dy's channels, fall in halves."""
    geometry = ConvGeometry.from_shapes((1, 3, 16, 112, 112), filters, **more)
    alone, shared = (plan(replace(geometry, lnc=cores)).estimate_us for cores in (1, 2))
    assert shared < share * alone
