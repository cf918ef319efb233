# SPDX-License-Identifier: Apache-2.0
"""What each command prints, writes and returns."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from conv3d_codegen.geometry import ConvGeometry
from hand_written import KERNEL, KEY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

    Run = Callable[..., Result]

GEOMETRY = ("--shape", "1,2,2,3,3", "--filter", "3,1,2,2")
NAME = ConvGeometry.from_shapes((1, 2, 2, 3, 3), (3, 1, 2, 2)).module_name()


def test_emit_prints_the_kernel_and_nothing_else(run: Run) -> None:
    result = run("emit", *GEOMETRY)
    assert result.exit_code == 0
    assert result.stderr == ""
    assert f"def {NAME}(dy, x_in, filters):" in result.stdout


@pytest.mark.parametrize("place", ["new/", ".", f"new/{NAME}.py"])
def test_emit_writes_a_file_named_like_its_function(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("emit", *GEOMETRY, "-o", place)
    assert result.exit_code == 0
    assert result.stdout == ""
    (file,) = tmp_path.rglob("*.py")
    assert file.stem == NAME
    assert file.read_text() == run("emit", *GEOMETRY).stdout
    assert str(file.name) in result.stderr


def test_emit_describes_in_json_what_it_wrote(run: Run, tmp_path: Path) -> None:
    described = json.loads(run("emit", *GEOMETRY, "-o", f"{tmp_path}/", "--json").stdout)
    assert described["name"] == NAME
    assert (tmp_path / f"{NAME}.py").exists()
    assert "source" in json.loads(run("emit", *GEOMETRY, "--json").stdout)


def test_emit_refuses_another_file_name(run: Run, tmp_path: Path) -> None:
    result = run("emit", *GEOMETRY, "-o", tmp_path / "mine.py")
    assert result.exit_code == 2
    assert result.stderr.startswith("error[file-name]: ")
    assert not list(tmp_path.iterdir())


def test_foreign_files_are_overwritten_only_by_force(run: Run, tmp_path: Path) -> None:
    file = tmp_path / f"{NAME}.py"
    file.write_text("mine = True\n")
    result = run("emit", *GEOMETRY, "-o", file)
    assert result.exit_code == 2
    assert result.stderr.startswith("error[not-ours]: ")
    assert file.read_text() == "mine = True\n"
    assert run("emit", *GEOMETRY, "-o", file, "--force").exit_code == 0
    assert run("emit", *GEOMETRY, "-o", file).exit_code == 0
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("place", ["file/below/", "/dev/null/below/"])
def test_a_place_that_cannot_be_written_is_one_line(run: Run, tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    result = run("emit", *GEOMETRY, "-o", os.path.join(tmp_path, place))
    assert result.exit_code == 2
    assert result.stderr.startswith("error[")
    assert result.stderr.count("\n") == 1


def test_verify_a_geometry(run: Run) -> None:
    result = run("verify", *GEOMETRY)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "PASSED"
    report = json.loads(run("verify", *GEOMETRY, "--json").stdout)
    assert report["passed"]
    assert [check["name"] for check in report["gradients"]] == ["dx", "dw", "db"]


def test_verify_normal_inputs_within_their_bound(run: Run) -> None:
    report = json.loads(run("verify", *GEOMETRY, "--inputs", "normal", "--json").stdout)
    assert report["passed"]
    assert all(0 < check["bound_use"] <= 1 for check in report["gradients"])


def test_verify_names_the_line_of_a_broken_rule(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "by_hand.py"
    file.write_text(KERNEL.replace("accumulate=False", "accumulate=True"))
    result = run("verify", file)
    assert result.exit_code == 1
    line = KERNEL[: KERNEL.index("accumulate=False")].count("\n") + 1
    assert f"line {line}: [accumulate-before-open]" in result.stdout
    assert result.stdout.splitlines()[-1] == "FAILED"
    report = json.loads(run("verify", file, "--json").stdout)
    assert report["violations"][0]["line"] == line
    assert report["gradients"][0]["max_error"] is None


def test_a_file_without_a_key_needs_a_geometry(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "by_hand.py"
    file.write_text(KERNEL.split("\n", 1)[1])
    result = run("verify", file)
    assert result.exit_code == 2
    assert result.stderr.startswith("error[no-key]: ")
    assert run("verify", file, "--key", KEY).exit_code == 0


def test_plan_shows_cost_and_index_maps(run: Run) -> None:
    result = run("plan", *GEOMETRY)
    assert result.exit_code == 0
    assert all(word in result.stdout for word in ("Tiling", "Memory", "Cost", "Index maps"))
    planned = json.loads(run("plan", *GEOMETRY, "--json").stdout)
    assert planned["output_shapes"]["dw"] == [1, 2, 2, 2, 3]


def test_inspect_terminal_json_and_page(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "by_hand.py"
    file.write_text(KERNEL)
    assert KEY in run("inspect", file).stdout
    assert json.loads(run("inspect", file, "--json").stdout)["key"] == KEY
    page = tmp_path / "page.html"
    assert run("inspect", file, "--html", page).exit_code == 0
    assert "</html>" in page.read_text()
    assert run("inspect", *GEOMETRY).exit_code == 0


def test_diff_of_equal_and_different_kernels(run: Run, tmp_path: Path) -> None:
    a, b = tmp_path / "a.py", tmp_path / "b.py"
    a.write_text(KERNEL)
    b.write_text(KERNEL.replace("stationary=tap1", "stationary=tap0"))
    same = run("diff", a, a)
    assert (same.exit_code, same.stdout) == (0, "")
    different = run("diff", a, b)
    assert different.exit_code == 3
    assert different.stdout.index("WRONG") < different.stdout.index("+++")
    assert json.loads(run("diff", a, b, "--json").stdout)["differences"]
