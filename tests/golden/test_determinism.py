# SPDX-License-Identifier: Apache-2.0
"""The same geometry gives the same bytes in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conv3d_codegen.api import emit
from conv3d_codegen.catalog import load_catalog

ENTRIES = load_catalog(Path(__file__).parents[2] / "generated")[1::6]  # a sample, to be quick
SCRIPT = """
import sys
from conv3d_codegen.api import emit
from conv3d_codegen.geometry import ConvGeometry
for key in sys.argv[1:]:
    print(emit(ConvGeometry.parse(key)).digest)
"""


@pytest.mark.parametrize("seed", ["0", "1", "4294967295"])
def test_hash_seed_process_and_order_do_not_matter(seed: str) -> None:
    geometries = [entry.geometry for entry in ENTRIES]
    keys = [geometry.key() for geometry in reversed(geometries)]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *keys],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split()[::-1] == [emit(geometry).digest for geometry in geometries]
