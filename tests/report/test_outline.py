# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from conv3d_codegen.errors import RequestError
from conv3d_codegen.report.outline import outline
from hand_written import KERNEL

BANNER = "    # === {} ==============\n"
SECTIONED = KERNEL.replace("    nisa.memset", BANNER.format("load dy") + "    nisa.memset").replace(
    "    nisa.tensor_copy", BANNER.format("store dx") + "    nisa.tensor_copy"
)


def test_sections_start_at_banners_and_count_their_instructions() -> None:
    load, store = outline(SECTIONED, "k.py").sections
    assert (load.title, store.title) == ("load dy", "store dx")
    assert load.instructions == {"dma_copy": 3, "nc_matmul": 2, "memset": 1}
    assert store.instructions == {"tensor_copy": 1, "dma_copy": 1}
    assert SECTIONED.splitlines()[load.first_line - 1].strip().startswith("# === load dy")
    assert load.last_line + 1 == store.first_line


def test_a_file_without_banners_is_one_section() -> None:
    (only,) = outline(KERNEL, "k.py").sections
    assert only.total == 8


def test_instructions_are_totalled_most_frequent_first() -> None:
    assert next(iter(outline(SECTIONED, "k.py").instructions.items())) == ("dma_copy", 4)


@pytest.mark.parametrize(
    ("source", "code"),
    [("def broken(:\n", "not-python"), ("x = 1\n", "not-a-kernel"), ("", "not-a-kernel")],
)
def test_what_is_no_kernel_is_refused(source: str, code: str) -> None:
    with pytest.raises(RequestError) as caught:
        outline(source, "k.py")
    assert caught.value.code == code
    assert "k.py" in caught.value.message
