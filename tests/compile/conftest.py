# SPDX-License-Identifier: Apache-2.0
"""Stand-in packages, laid out the way pip lays packages out."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

STAND_INS = Path(__file__).parent / "stand_ins"

Install = Callable[..., None]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder from which this process and its children import first."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return folder


@pytest.fixture
def install(site: Path) -> Install:
    """Install a distribution that consists of the given files."""

    def put(distribution: str, version: str, files: dict[str, str] | None = None) -> None:
        stem = f"{distribution.replace('-', '_')}-{version}.dist-info"
        metadata = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
        for name, text in {f"{stem}/METADATA": metadata, **(files or {})}.items():
            file = site / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    return put


@pytest.fixture
def toolchain(site: Path, install: Install, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Install the stand-ins of a release, with or without the compiler."""
    monkeypatch.delenv("NEURON_PLATFORM_TARGET_OVERRIDE", raising=False)

    def put(release: str = "0.6", *, compiler: bool = True) -> None:
        for tree in ("shared", f"release_{release.replace('.', '_')}"):
            shutil.copytree(STAND_INS / tree, site, dirs_exist_ok=True)
        install("nki", f"{release}.0")
        if compiler:
            install("neuronx-cc", "2.27.5334")

    return put
