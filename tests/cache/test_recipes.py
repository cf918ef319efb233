# SPDX-License-Identifier: Apache-2.0
"""The recipe of a kernel changes with everything that shapes its text."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import pytest

from conv3d_codegen import sources
from conv3d_codegen.cache import recipe
from conv3d_codegen.cache.recipes import digest, plain
from conv3d_codegen.geometry import ConvGeometry
from conv3d_codegen.planner.options import EmitOptions
from conv3d_codegen.targets import TARGETS, TargetSpec

if TYPE_CHECKING:
    from pathlib import Path

GEOMETRY = ConvGeometry(
    batch=2, in_channels=4, out_channels=8, input_size=(1, 1, 9), kernel_size=(1, 1, 3), rank=1
)
OPTIONS = EmitOptions()
SPEC = TARGETS["trn2"]

# Another valid value of every field; a new field without one fails its test.
OTHER_GEOMETRY: dict[str, Any] = {
    "batch": 3,
    "in_channels": 6,
    "out_channels": 6,
    "input_size": (1, 1, 10),
    "kernel_size": (1, 1, 2),
    "stride": (1, 1, 2),
    "dilation": (1, 1, 2),
    "padding": (0, 0, 0, 0, 0, 1),
    "groups": 2,
    "transposed": True,
    "output_padding": {"transposed": True, "stride": (1, 1, 2), "output_padding": (0, 0, 1)},
    "rank": 2,
    "gradients": ("dx",),
    "dtype": {"dtype": "fp32", "out_dtype": "bf16"},
    "dy_dtype": {"dtype": "fp8_e4m3", "dy_dtype": "fp8_e5m2"},
    "filter_dtype": {"dtype": "fp8_e4m3", "filter_dtype": "fp8_e5m2"},
    "out_dtype": "fp32",
    "math": {"dtype": "fp32", "math": "bf16"},
    "layout": "NDHWC",
    "filter_layout": "OIDHW",
    "target": "trn3",
    "lnc": 2,
}
OTHER_OPTIONS: dict[str, Any] = {"unroll": "full", "max_instructions": 99, "nki": "0.3"}


def names(kind: type[Any]) -> list[str]:
    return [field.name for field in fields(kind)]


def other_number(value: Any) -> Any:
    """Return a value of the same kind that differs."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, tuple):
        return (*value, 99)
    if isinstance(value, frozenset):
        return value | {"x"}
    assert isinstance(value, Mapping)
    first = next(iter(value))
    return {**value, first: other_number(value[first])}


@pytest.mark.parametrize("name", names(ConvGeometry))
def test_every_field_of_the_geometry_counts(name: str) -> None:
    change = OTHER_GEOMETRY[name]
    changes = change if isinstance(change, dict) else {name: change}
    partners = {key: value for key, value in changes.items() if key != name}
    assert recipe(replace(GEOMETRY, **changes), OPTIONS) != recipe(
        replace(GEOMETRY, **partners), OPTIONS
    )


@pytest.mark.parametrize("name", names(EmitOptions))
def test_every_option_counts(name: str) -> None:
    changed = replace(OPTIONS, **{name: OTHER_OPTIONS[name]})
    assert recipe(GEOMETRY, changed) != recipe(GEOMETRY, OPTIONS)


@pytest.mark.parametrize("name", names(TargetSpec))
def test_every_number_of_the_hardware_table_counts(name: str) -> None:
    changed = replace(SPEC, **{name: other_number(getattr(SPEC, name))})
    assert digest(GEOMETRY, OPTIONS, changed, "") != digest(GEOMETRY, OPTIONS, SPEC, "")


def test_the_generator_counts() -> None:
    assert digest(GEOMETRY, OPTIONS, SPEC, "a") != digest(GEOMETRY, OPTIONS, SPEC, "b")
    assert recipe(GEOMETRY, OPTIONS) == digest(GEOMETRY, OPTIONS, SPEC, sources.generator_digest())


def test_what_cannot_be_written_plainly_is_not_left_out() -> None:
    @dataclass(frozen=True)
    class Options:
        planner: object

    with pytest.raises(TypeError, match="no plain form"):
        plain(Options(planner=object()))


def test_every_source_and_template_counts(tmp_path: Path) -> None:
    (tmp_path / "stage").mkdir()
    for name in ("one.py", "stage/two.py", "stage/three.py"):
        (tmp_path / name).write_text(name)
    parts = ("one.py", "stage")
    seen = {sources.digest_files(tmp_path, parts, "*.py")}
    (tmp_path / "one.py").write_text("changed")
    seen.add(sources.digest_files(tmp_path, parts, "*.py"))
    (tmp_path / "stage" / "two.py").rename(tmp_path / "stage" / "four.py")
    seen.add(sources.digest_files(tmp_path, parts, "*.py"))
    (tmp_path / "stage" / "new.py").write_text("")
    seen.add(sources.digest_files(tmp_path, parts, "*.py"))
    assert len(seen) == 4


def test_the_generator_digest_is_made_of_stages_templates_and_libraries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def digest_now() -> str:
        return sources.generator_digest.__wrapped__()

    before = digest_now()
    assert before == digest_now()
    seen = {before}
    with monkeypatch.context() as patch:
        patch.setattr(sources, "STAGES", sources.STAGES[1:])
        seen.add(digest_now())
    with monkeypatch.context() as patch:
        patch.setattr(sources, "template_root", lambda: sources.PACKAGE)
        seen.add(digest_now())
    with monkeypatch.context() as patch:
        patch.setattr(sources.metadata, "version", lambda name: "0")
        seen.add(digest_now())
    assert len(seen) == 4


EMIT_AND_LIST_MODULES = """
import sys
from conv3d_codegen.api import emit
from conv3d_codegen.geometry import ConvGeometry
emit(ConvGeometry.from_shapes((1, 2, 2, 3, 3), (3, 1, 2, 2)))
print(*[module for module in sys.modules if module.startswith("conv3d_codegen.")])
"""


def test_every_module_that_emission_imports_is_in_the_digest() -> None:
    listing = subprocess.run(
        [sys.executable, "-c", EMIT_AND_LIST_MODULES], check=True, capture_output=True, text=True
    ).stdout
    stages = {stage.removesuffix(".py") for stage in sources.STAGES}
    imported = {module.split(".")[1] for module in listing.split()}
    assert imported == stages
