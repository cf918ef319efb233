# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from itertools import pairwise

from rich.console import Console

from conv3d_codegen.api import emit
from conv3d_codegen.geometry import ConvGeometry
from conv3d_codegen.report.compare import compare
from conv3d_codegen.report.html import render_html
from conv3d_codegen.report.inspection import inspect_source
from conv3d_codegen.report.lanes import lanes
from conv3d_codegen.report.terminal import render_terminal
from hand_written import KERNEL, KEY

BROKEN = KERNEL.replace("accumulate=False", "accumulate=True")


def test_inspection_holds_what_a_reviewer_asks_for() -> None:
    facts = inspect_source(KERNEL, filename="k.py").as_json()
    assert facts["key"] == KEY
    assert facts["instructions"] == {"dma_copy": 4, "nc_matmul": 2, "memset": 1, "tensor_copy": 1}
    assert facts["verify"]["passed"]
    assert not facts["as_emitted"]
    assert facts["plan"]["key"] == KEY
    assert facts["psum_peak_banks"] == 1
    # rows and both taps live at once, each rounded up to 64 bytes; out lives after them
    assert facts["sbuf_peak_bytes"] == 3 * 64
    assert facts["busy_us"]["tensor"] > 0


def test_terminal_and_page_show_verdict_and_sections() -> None:
    inspection = inspect_source(BROKEN, filename="k.py")
    console = Console(width=120)
    with console.capture() as capture:
        console.print(render_terminal(inspection))
    for text in (capture.get(), render_html(inspection)):
        assert KEY in text
        assert "accumulate-before-open" in text
        assert "nc_matmul" in text


def test_page_is_self_contained_and_deterministic() -> None:
    inspection = inspect_source(KERNEL, filename="k.py")
    page = render_html(inspection)
    assert page == render_html(inspection)
    assert not re.search(r"(src|href)=\"(?!#)", page)
    assert "http" not in page


def test_source_cannot_break_out_of_the_page() -> None:
    hostile = KERNEL.replace("import nki\n", 'import nki  # </pre><script>alert("x")</script>\n', 1)
    assert "<script>" not in render_html(inspect_source(hostile, filename="k.py"))


def test_equal_kernels_compare_equal() -> None:
    inspection = inspect_source(KERNEL, filename="k.py")
    assert compare(inspection, inspection) == compare(inspection, inspection)
    assert not compare(inspection, inspection).differences
    assert not compare(inspection, inspection).text


def test_an_emitted_kernel_is_recognised() -> None:
    emitted = emit(ConvGeometry.parse(KEY))
    assert inspect_source(emitted.source).is_as_emitted


def test_comparison_of_two_geometries_starts_with_what_differs() -> None:
    keys = [KEY, KEY.replace("-co8-", "-co9-")]
    a, b = (inspect_source(emit(ConvGeometry.parse(key)).source) for key in keys)
    first = compare(a, b).differences[0]
    assert (first.what, first.a, first.b) == ("out_channels", "8", "9")


def test_comparison_names_results_before_text() -> None:
    a, b = inspect_source(KERNEL, filename="a.py"), inspect_source(BROKEN, filename="b.py")
    found = compare(a, b)
    assert [row.what for row in found.differences][:1] in (["dx"], ["violations"])
    assert "+    nisa.nc_matmul(dst=acc, stationary=tap0" in found.text


def test_lanes_cover_the_makespan_without_overlap() -> None:
    drawn = lanes(inspect_source(KERNEL, filename="k.py").report.run.timeline)
    assert drawn["dma"][0][0] == 0
    assert max(start + width for lane in drawn.values() for start, width in lane) in {1000, 1001}
    for lane in drawn.values():
        assert all(a + width < b for (a, width), (b, _) in pairwise(lane))
