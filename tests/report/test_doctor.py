# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

from conv3d_codegen.report.doctor import MISSING, PLACEHOLDER, diagnose, toolchain_state

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def install(folder: Path, distribution: str, version: str, files: dict[str, str]) -> None:
    """Lay a package out the way pip does."""
    metadata = folder / f"{distribution.replace('-', '_')}-{version}.dist-info" / "METADATA"
    contents = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
    for path, text in {str(metadata): contents, **files}.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def test_nothing_is_missing_that_is_required() -> None:
    assert MISSING not in diagnose().libraries.values()


def test_absent_toolchain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    assert toolchain_state("nki") == MISSING


def test_placeholder_that_raises_on_import_is_no_toolchain(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install(tmp_path, "nki", "0.0.1", {"nki/__init__.py": "raise ImportError('wrong package')\n"})
    monkeypatch.syspath_prepend(tmp_path)
    assert toolchain_state("nki") == f"0.0.1: {PLACEHOLDER}"


def test_placeholder_without_the_module_is_no_toolchain(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install(tmp_path, "neuronx-cc", "1.0.post1", {"neuronx-cc/__init__.py": ""})
    monkeypatch.syspath_prepend(tmp_path)
    assert toolchain_state("neuronx-cc") == f"1.0.post1: {PLACEHOLDER}"


def test_real_layout_counts_and_is_not_imported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files = {"nki/__init__.py": "raise SystemError('imported')\n", "nki/isa.py": ""}
    install(tmp_path, "nki", "0.6.0", files)
    monkeypatch.syspath_prepend(tmp_path)
    assert toolchain_state("nki") == "0.6.0"
