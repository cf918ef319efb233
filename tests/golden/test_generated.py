# SPDX-License-Identifier: Apache-2.0
"""The committed kernels are what is emitted today, are formatted, and are right."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from ruff.__main__ import find_ruff_bin

from conv3d_codegen.catalog import CatalogEntry, find_drift, load_catalog, render_catalog
from conv3d_codegen.verify import verify_source

GENERATED = Path(__file__).parents[2] / "generated"
ENTRIES = load_catalog(GENERATED)


def test_there_are_thirty_kernels_each_with_a_reason() -> None:
    assert len(ENTRIES) >= 30
    assert all(entry.why.endswith(".") for entry in ENTRIES)


def test_committed_kernels_are_what_is_emitted_today() -> None:
    assert find_drift(GENERATED, render_catalog(GENERATED)) == ()


def test_committed_kernels_are_formatted() -> None:
    command = [find_ruff_bin(), "format", "--check", "--no-cache", str(GENERATED)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.geometry.key())
def test_committed_kernel_is_exact_and_breaks_no_rule(entry: CatalogEntry) -> None:
    source = (GENERATED / entry.path).read_text(encoding="utf-8")
    report = verify_source(source, filename=entry.path)
    assert report.key == entry.geometry.key()
    assert not report.violations
    assert all(check.exact for check in report.gradients)
