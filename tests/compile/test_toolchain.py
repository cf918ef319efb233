# SPDX-License-Identifier: Apache-2.0
"""What counts as an installed toolchain. Placeholders from package indexes do not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from conv3d_codegen.compile import toolchain as module
from conv3d_codegen.compile.toolchain import (
    COMPILER,
    MISSING,
    NKI,
    PLACEHOLDER,
    Generation,
    find_generation,
    find_toolchain,
    has_device,
    host_target,
    package_state,
)
from conv3d_codegen.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable

REAL_NKI = {"nki/__init__.py": "raise SystemError('imported')\n", "nki/isa.py": ""}
REAL_COMPILER = {"neuronxcc/__init__.py": "raise SystemError('imported')\n"}


def problem(*, compiler: bool = False) -> str:
    with pytest.raises(RequestError, match="pip install") as caught:
        find_toolchain(compiler=compiler)
    assert caught.value.code == "no-toolchain"
    return caught.value.message


def test_nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert package_state(NKI) == MISSING
    assert find_generation() is None
    assert problem().startswith("nki is not installed; install")


def test_a_placeholder_that_raises_on_import(install: Callable[..., None]) -> None:
    install("nki", "0.0.1", {"nki/__init__.py": "raise ImportError('wrong package')\n"})
    assert package_state(NKI) == f"0.0.1: {PLACEHOLDER}"
    assert problem().startswith("nki is 0.0.1: placeholder")


def test_a_placeholder_with_the_real_files_but_its_own_version(
    install: Callable[..., None],
) -> None:
    install("nki", "0.0.2", REAL_NKI)
    assert package_state(NKI) == f"0.0.2: {PLACEHOLDER}"


def test_a_placeholder_without_the_module(install: Callable[..., None]) -> None:
    install("nki", "0.6.0", REAL_NKI)
    install("neuronx-cc", "1.0.post1", {"neuronx-cc/__init__.py": ""})
    assert package_state(COMPILER) == f"1.0.post1: {PLACEHOLDER}"
    assert find_toolchain().compiler == ""
    assert problem(compiler=True).startswith("neuronx-cc is 1.0.post1: placeholder")


def test_the_real_layout_counts_and_is_not_imported(install: Callable[..., None]) -> None:
    install("nki", "0.6.0+23928721754.g18aa2f48", REAL_NKI)
    install("neuronx-cc", "2.27.5334.0+abc", REAL_COMPILER)
    found = find_toolchain(compiler=True)
    assert found.nki == "0.6.0+23928721754.g18aa2f48"
    assert found.fingerprint == "nki-0.6.0+23928721754.g18aa2f48-neuronx-cc-2.27.5334.0+abc"
    assert "nki" not in sys.modules


@pytest.mark.parametrize(
    ("version", "generation"),
    [("0.1.0", Generation.BETA2), ("0.2.0", Generation.BETA2), ("0.3.0", Generation.CURRENT),
     ("0.7.0", Generation.CURRENT), ("1.0", Generation.CURRENT)],
)  # fmt: skip
def test_generations_by_version(
    install: Callable[..., None], version: str, generation: Generation
) -> None:
    install("nki", version, REAL_NKI)
    assert find_generation() is generation
    if generation is not Generation.CURRENT:
        assert problem().startswith("Beta 2")


def test_the_first_generation_lives_inside_the_compiler(install: Callable[..., None]) -> None:
    files = {"neuronxcc/__init__.py": "", "neuronxcc/nki/__init__.py": ""}
    install("neuronx-cc", "2.21.1", files)
    assert find_generation() is Generation.BETA1
    assert problem().startswith("Beta 1 (neuronxcc.nki) is installed, which does not accept")


def test_a_host_needs_device_and_toolchain(
    install: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DEVICE", tmp_path / "neuron0")
    install("nki", "0.6.0", REAL_NKI)
    assert not has_device()
    (tmp_path / "neuron0").touch()
    assert has_device()
    install("nki", "0.6.0", {"nki/isa.py": ""})
    monkeypatch.setattr(sys, "path", [])
    assert not has_device()


@pytest.mark.parametrize(
    ("product", "target"),
    [("trn2.48xlarge\n", "trn2"), ("trn3.48xlarge\n", "trn3"), ("Virtual Machine", "trn2")],
)
def test_the_target_of_this_host(
    product: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "product_name").write_text(product)
    monkeypatch.setattr(module, "PRODUCT_NAME", tmp_path / "product_name")
    assert host_target.__wrapped__() == target


def test_a_host_without_a_product_name_is_taken_for_trn2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PRODUCT_NAME", Path("/dev/null/none"))
    assert host_target.__wrapped__() == "trn2"
