# SPDX-License-Identifier: Apache-2.0
"""What `bench` measures, where it says the time goes, and that its document is current."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from conv3d_codegen.bench import (
    HEADER,
    Measurement,
    frame,
    measure,
    measure_all,
    row,
    summary,
    with_batch,
)
from conv3d_codegen.bench.nkilib import nkilib_figures
from conv3d_codegen.cli.main import main
from conv3d_codegen.errors import RequestError
from conv3d_codegen.layers import bench_layers, select_layer
from conv3d_codegen.targets import TARGETS

if TYPE_CHECKING:
    from click.testing import Result

DOCUMENT = Path(__file__).parents[2] / "docs" / "performance.md"
LAYERS = with_batch(bench_layers(), 1)
SMALL = (
    "R3D-18/downsample3",  # bound by transfers
    "ResNet(2D as 3D)/r50.layer2.0.3x3s2",
    "Mochi-VAE/down1_k222",
)
TRN2 = TARGETS["trn2"]


@pytest.fixture(scope="module", params=SMALL)
def small(request: pytest.FixtureRequest) -> Measurement:
    return measure(select_layer(LAYERS, request.param, "bench"))


def bench(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["bench", "--jobs", "1", *arguments])


def test_a_kernel_takes_longer_than_the_floor_and_its_busiest_engine(small: Measurement) -> None:
    assert small.violations == 0
    assert small.floor_us < small.makespan_us
    assert small.busy_us[small.bound] == max(small.busy_us.values()) <= small.makespan_us


def test_losses_and_useful_time_add_up_to_the_makespan(small: Measurement) -> None:
    assert small.bound in {"tensor", "dma"}
    useful_us = small.makespan_us * small.pe_use
    if small.bound == "dma":
        useful_us = small.floor_us  # of a layer that is bound by memory
    total = useful_us + sum(loss.us for loss in small.losses)
    assert total == pytest.approx(small.makespan_us)


def test_the_reason_names_the_largest_loss(small: Measurement) -> None:
    assert small.losses[0].what in small.reason
    assert small.reason.startswith(small.bound)


def test_the_estimate_is_near_the_timeline(small: Measurement) -> None:
    assert small.estimate_us == pytest.approx(small.makespan_us, rel=0.15)


@pytest.mark.sweep
def test_the_estimate_is_near_the_timeline_on_the_suite() -> None:
    measured = measure_all(LAYERS, os.cpu_count() or 1)
    errors = {m.name: m.estimate_us / m.makespan_us - 1 for m in measured}
    far = {name: error for name, error in errors.items() if abs(error) > 0.15}
    assert len(errors) == len(LAYERS)
    # Its evictions take nearly as long as its matmuls, and each waits for the other.
    assert far.keys() <= {"Wan2.1-DiT/patch_embedding_1.3B"}, far


def test_figures_of_nkilib_belong_to_layers_of_the_suite() -> None:
    figures = nkilib_figures()
    assert len(figures) == 32
    assert set(figures) <= {layer.name for layer in LAYERS}
    assert all(figure.busiest_us <= figure.makespan_us for figure in figures.values())


def test_figures_of_one_sample_are_not_compared_with_kernels_of_two() -> None:
    (layer,) = with_batch([select_layer(LAYERS, SMALL[1], "bench")], 2)
    assert measure(layer).speed_up is None


def test_json_holds_one_object_per_layer() -> None:
    result = bench("--layer", SMALL[0], "--json")
    assert result.exit_code == 0
    (measured,) = json.loads(result.stdout)
    assert measured["name"] == SMALL[0]
    assert measured["ratio"] == pytest.approx(measured["makespan_us"] / measured["floor_us"])
    assert measured["speed_up"] > 0


def test_the_table_is_written_between_the_markers(tmp_path: Path) -> None:
    document = tmp_path / "performance.md"
    document.write_text("before\n<!-- bench: begin -->\nold\n<!-- bench: end -->\nafter\n")
    assert bench("--layer", SMALL[1], "--document", str(document)).exit_code == 0
    text = document.read_text()
    assert text.startswith("before\n<!-- bench: begin -->\n| layer |")
    assert text.endswith("\n<!-- bench: end -->\nafter\n")
    assert "old" not in text
    assert f"| {SMALL[1]} |" in text


def test_a_document_without_markers_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    document = tmp_path / "notes.md"
    document.write_text("nothing here\n")
    result = bench("--document", str(document))
    assert result.exit_code == 2
    assert "error[bench-markers]" in result.stderr
    assert document.read_text() == "nothing here\n"


def test_an_unknown_layer_is_refused() -> None:
    result = bench("--layer", "C3D/conv9")
    assert result.exit_code == 2
    assert "there is no such layer" in result.stderr


def test_a_frame_needs_both_markers() -> None:
    with pytest.raises(RequestError, match="bench-markers"):
        frame("<!-- bench: end --> <!-- bench: begin -->")


def test_the_document_lists_the_suite() -> None:
    before, after = frame(DOCUMENT.read_text())
    lines = DOCUMENT.read_text()[len(before) : -len(after)].splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines if line.startswith("|")]
    assert tuple(cells[0]) == HEADER
    assert [line[0] for line in cells[2:]] == [layer.name for layer in LAYERS]


def test_the_document_is_current(small: Measurement) -> None:
    assert f"| {' | '.join(row(small))} |" in DOCUMENT.read_text().splitlines()


def test_the_summary_averages_by_groups_and_names_the_worst(small: Measurement) -> None:
    lines = list(summary([small, small]))
    assert lines[0] == f"all layers: geomean {small.ratio:.2f} x floor of 2"
    assert lines[-1] == f"{small.name}, {small.ratio:.2f} x floor: {small.reason}"
