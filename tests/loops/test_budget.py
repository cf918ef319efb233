# SPDX-License-Identifier: Apache-2.0
"""What happens when text may not, or need not, be rolled."""

from __future__ import annotations

from dataclasses import replace

import pytest
from click.testing import CliRunner

from conv3d_codegen.api import EmitOptions, emit
from conv3d_codegen.cli.main import main
from conv3d_codegen.errors import TextTooLong
from conv3d_codegen.geometry import ConvGeometry

GEOMETRY = ConvGeometry(
    batch=9,
    in_channels=8,
    out_channels=8,
    input_size=(3, 6, 6),
    kernel_size=(3, 3, 3),
    padding=(1, 1, 1, 1, 1, 1),
)


def test_old_releases_refuse_long_text_and_name_the_batch_that_fits() -> None:
    options = EmitOptions(nki="0.4", max_instructions=200)
    with pytest.raises(TextTooLong, match=r"nki 0\.4.*budget is 200.*: batch up to \d, ") as caught:
        emit(GEOMETRY, options)
    batch = int(str(caught.value).partition("batch up to ")[2][0])
    fitting = emit(replace(GEOMETRY, batch=batch), options)
    assert "fori_loop" not in fitting.source
    assert fitting.plan.oldest_nki == "0.3"


def test_old_releases_name_the_depth_when_one_sample_is_too_much() -> None:
    one = replace(GEOMETRY, batch=1, input_size=(48, 12, 12), in_channels=128, out_channels=128)
    options = EmitOptions(nki="0.3", max_instructions=660)
    with pytest.raises(TextTooLong, match=r"batch 1 with an input depth up to \d+, ") as caught:
        emit(one, options)
    depth = int(str(caught.value).partition("depth up to ")[2].partition(",")[0])
    fitting = emit(replace(one, input_size=(depth, 12, 12)), options)
    assert fitting.plan.counts.instructions <= 660


def test_unrolled_text_says_what_it_costs() -> None:
    kernel = emit(GEOMETRY, EmitOptions(unroll="full", max_instructions=200))
    assert "exceed the budget of 200, unrolled on request" in kernel.source
    assert (
        "emit --key " + GEOMETRY.key() + " --unroll full --max-instructions 200\n" in kernel.source
    )
    assert "needs NKI 0.3 or newer" in kernel.source


def test_rolled_text_says_which_release_it_needs() -> None:
    kernel = emit(GEOMETRY, EmitOptions(max_instructions=200))
    assert "needs NKI 0.6 or newer" in kernel.source
    assert f"executed with loops: {kernel.plan.counts.executed} instructions" in kernel.source


def test_the_command_notes_long_text_on_stderr() -> None:
    arguments = ["emit", "--key", GEOMETRY.key(), "--unroll", "full", "--max-instructions", "200"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0
    assert "note: " in result.stderr
    assert "note: " not in result.stdout
