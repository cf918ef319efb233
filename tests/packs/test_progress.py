# SPDX-License-Identifier: Apache-2.0
"""A progress bar for terminals, and nothing for pipes."""

from __future__ import annotations

import io
import sys

import pytest

from conv3d_codegen.cli.progress import progress_bar


class Terminal(io.StringIO):
    """A stream that says it is watched."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stream", "shown"), [(Terminal(), True), (io.StringIO(), False)])
def test_progress_is_shown_to_terminals_only(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, shown: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", stream)
    with progress_bar("kernels") as progress:
        progress(1, 3, "net/conv1")
        progress(3, 3, "net/conv3")
    assert ("3/3" in stream.getvalue()) == shown
    assert bool(stream.getvalue()) == shown
