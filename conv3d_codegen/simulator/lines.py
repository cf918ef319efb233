# SPDX-License-Identifier: Apache-2.0
"""Which line of the kernel file is being executed."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import CodeType, FrameType


class LineTable:
    """Line numbers of frames.

    `frame.f_lineno` searches its function's table from the start, which in an unrolled kernel of
    thousands of lines costs more than everything else; here each function's table is unpacked once.
    """

    def __init__(self, filename: str) -> None:
        self._filename = filename
        self._tables: dict[int, tuple[CodeType, list[int], list[int]]] = {}

    def line(self, frame: FrameType) -> int:
        """Return the line that a frame of the kernel file is at."""
        code = frame.f_code
        known = self._tables.get(id(code))
        if known is None:
            ranges = [(start, line or 0) for start, _, line in code.co_lines()]
            starts, lines = [start for start, _ in ranges], [line for _, line in ranges]
            known = self._tables[id(code)] = (code, starts, lines)
        _, starts, lines = known
        return lines[bisect_right(starts, frame.f_lasti) - 1]

    def innermost(self, frame: FrameType | None) -> int:
        """Return the line of the innermost frame of the kernel file, 0 if there is none."""
        while frame is not None and frame.f_code.co_filename != self._filename:
            frame = frame.f_back
        return self.line(frame) if frame is not None else 0
