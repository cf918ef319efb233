# SPDX-License-Identifier: Apache-2.0
"""How long emission takes, reported by pytest-benchmark (`pytest -n 0 tests/golden`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from conv3d_codegen.api import emit
from conv3d_codegen.catalog import CatalogEntry, load_catalog

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

ENTRIES = load_catalog(Path(__file__).parents[2] / "generated")[1::6]  # a sample, to be quick


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.geometry.key())
def test_emission(benchmark: BenchmarkFixture, entry: CatalogEntry) -> None:
    kernel = benchmark.pedantic(emit, (entry.geometry,), rounds=3, warmup_rounds=1)
    assert kernel.name in kernel.source
