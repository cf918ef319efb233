# SPDX-License-Identifier: Apache-2.0
"""Channels-last activations: transfers in runs of whole channel blocks, turned by the tensor engine.

On chip, windows and dx have channels on partitions. In HBM, channels are innermost: a transfer that
put them on partitions would move elements one by one. So positions go on partitions, as many as fit,
and the tensor engine turns [positions, rows · channels] to [rows · channels, positions] or back.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from conv3d_codegen.dtypes import dtype
from conv3d_codegen.planner.blocks import PARTITIONS, split_upto
from conv3d_codegen.program.instructions import dma_copy, transpose
from conv3d_codegen.program.program import PSUM_BANK_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conv3d_codegen.lower.builder import Builder
    from conv3d_codegen.lower.tensors import Activation
    from conv3d_codegen.program.views import Buffer, SliceView

Range = tuple[int, int]

MIN_TURNED_BYTES = 2  # PSUM keeps transposed 8-bit elements 16 bits apart: nc_matmul docstring
STAGE_BYTES = 8192  # per partition, of positions that one transfer moves


@dataclass(frozen=True, slots=True)
class AxisRows:
    """Rows of D or H in a buffer of blocks: block b holds rows first + b·fold, …; of those [low, high) count."""

    count: int
    first: int
    fold: int
    low: int
    high: int

    def held(self, block: int) -> Range:
        """Which rows of a block count."""
        row = self.first + block * self.fold
        return max(0, self.low - row), min(self.fold, self.high - row)

    @property
    def blocks(self) -> list[int]:
        """Blocks with rows that count."""
        ranges = ((block, self.held(block)) for block in range(self.count))
        return [block for block, (low, high) in ranges if low < high]


@dataclass(frozen=True, slots=True)
class Line:
    """Positions that follow each other in HBM and in the buffer: one row along W, or whole rows of H.

    index: (N, D, H) of the buffer; column: of its W; rows: rows of the blocks of D and H that count.
    place: sample, D, H, W in HBM of the first position's first row that counts.
    """

    index: tuple[int, int, int]
    column: int
    length: int
    rows: tuple[Range, Range]
    place: tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Part:
    """A box of an activation and the buffer [rows · channels, N, D, H, W] that holds it."""

    tensor: Activation
    buffer: Buffer
    channels: Range
    samples: Range
    depth: AxisRows
    height: AxisRows
    width: AxisRows

    @property
    def folds(self) -> tuple[int, int]:
        """Rows of D and H in a block."""
        return self.depth.fold, self.height.fold

    @property
    def _columns(self) -> Range:
        """Columns of the buffer that count."""
        low = max(0, self.width.low - self.width.first)
        return low, min(self.width.count, self.width.high - self.width.first)

    @property
    def has_whole_rows(self) -> bool:
        """Whether neighbouring rows of H follow each other in HBM and in the buffer."""
        low, high = self._columns
        return self.height.fold == 1 and (low, high) == (0, self.width.count) == (
            0,
            self.tensor.size[2],
        )

    def lines(self) -> Iterator[Line]:
        """Give all lines of the box."""
        low, high = self._columns
        heights = self.height.blocks
        if low >= high or not heights:
            return
        starts = heights[:1] if self.has_whole_rows else heights
        length = (high - low) * (len(heights) if self.has_whole_rows else 1)
        for sample in range(*self.samples):
            for b_d in self.depth.blocks:
                for b_h in starts:
                    rows = self.depth.held(b_d), self.height.held(b_h)
                    d, h = (
                        axis.first + block * axis.fold + held[0]
                        for axis, block, held in zip(
                            (self.depth, self.height), (b_d, b_h), rows, strict=True
                        )
                    )
                    place = (sample, d, h, self.width.first + low)
                    yield Line((sample - self.samples[0], b_d, b_h), low, length, rows, place)

    def batches(self) -> Iterator[list[Line]]:
        """Lines that share the partitions of one transpose: neighbours along H, of alike rows."""
        for _, alike in groupby(self.lines(), key=lambda line: (*line.index[:2], line.rows)):
            lines = list(alike)
            together = max(1, PARTITIONS // lines[0].length)
            for first, stop in split_upto((0, len(lines)), together):
                yield lines[first:stop]


def load_turned(builder: Builder, part: Part) -> None:
    """Fill a buffer from HBM."""
    for lines in part.batches():
        for start, count, tiles in _chunks(builder, part, lines):
            partitions = count * len(lines)
            stage = _stage(builder, part, partitions, tiles)
            if _is_partial(part, lines[0]):
                builder.zero(stage.whole())
            for number, line in enumerate(lines):
                first = number * count
                _transfer(builder, part, line, (stage, first, start, count, tiles), loads=True)
            for low, high in split_upto((0, tiles), _tiles_per_bank(part, partitions)):
                shape = (part.buffer.shape[0], (high - low) * partitions)
                landing = builder.allocate("t_ps", shape, stage.dtype, "psum")
                for tile in range(low, high):
                    column = (tile - low) * partitions
                    dst = landing[:, column : column + partitions]
                    builder.add(transpose(dst, stage[:, tile]))
                positions = (start + low * count, (high - low) * count)
                dst = _positions(builder, part, lines, positions)
                shaped = builder.alias(landing, dst.shape) if len(lines) > 1 else landing
                builder.copy(dst, shaped.whole())


def store_turned(builder: Builder, part: Part, to_dtype: str) -> None:
    """Write a buffer to HBM, rounding on the way if the buffer is wider than to_dtype."""
    rows = part.buffer.shape[0]
    for lines in part.batches():
        for start, count, tiles in _chunks(builder, part, lines):
            partitions = count * len(lines)
            stage = _stage(builder, part, partitions, tiles, to_dtype)
            per_bank = PSUM_BANK_BYTES // (rows * dtype(part.buffer.dtype).bytes)
            for low, high in split_upto((0, tiles), per_bank):
                shape = (partitions, high - low, rows)
                landing = builder.allocate("t_ps", shape, part.buffer.dtype, "psum")
                for tile in range(low, high):
                    positions = (start + tile * count, count)
                    data = _positions(builder, part, lines, positions)
                    builder.add(transpose(landing[:, tile - low, :], data))
                flat = builder.alias(stage, (partitions, tiles, rows))
                builder.copy(flat[:, low:high], landing.whole())
            for number, line in enumerate(lines):
                first = number * count
                _transfer(builder, part, line, (stage, first, start, count, tiles), loads=False)


def _chunks(builder: Builder, part: Part, lines: list[Line]) -> Iterator[tuple[int, int, int]]:
    """First position, positions per tile, and tiles of each transfer: a long line's whole tiles, then its rest."""
    length = lines[0].length
    if length <= PARTITIONS:
        yield 0, length, 1
        return
    most = max(1, STAGE_BYTES // (part.buffer.shape[0] * dtype(builder.dtype).bytes))
    for first, stop in split_upto((0, length // PARTITIONS), most):
        yield first * PARTITIONS, PARTITIONS, stop - first
    if length % PARTITIONS:
        yield length // PARTITIONS * PARTITIONS, length % PARTITIONS, 1


def _stage(
    builder: Builder, part: Part, partitions: int, tiles: int, to_dtype: str | None = None
) -> Buffer:
    width = part.channels[1] - part.channels[0]
    shape = (partitions, tiles, *part.folds, width)
    stem = f"{part.tensor.stem}_rows"
    return builder.allocate(stem, shape, to_dtype or part.buffer.dtype, "sbuf")


def _is_partial(part: Part, line: Line) -> bool:
    """Whether some rows of the line's blocks do not count."""
    return tuple(high - low for low, high in line.rows) != part.folds


def _tiles_per_bank(part: Part, partitions: int) -> int:
    return max(1, PSUM_BANK_BYTES // (partitions * dtype(part.buffer.dtype).bytes))


def _transfer(
    builder: Builder,
    part: Part,
    line: Line,
    where: tuple[Buffer, int, int, int, int],
    *,
    loads: bool,
) -> None:
    """Move the rows that count of one line between HBM and its partitions of a stage."""
    stage, partition, start, count, tiles = where
    (d_low, d_high), (h_low, h_high) = line.rows
    on_chip = stage[partition : partition + count, :, d_low:d_high, h_low:h_high, :]
    _, d, h, w = part.tensor.pitches
    pairs = ((w, count), (count * w, tiles), (d, d_high - d_low), (h, h_high - h_low))
    in_hbm = part.tensor.positions(line.place, start, pairs, part.channels)
    dst, src = (on_chip, in_hbm) if loads else (in_hbm, on_chip)
    builder.add(dma_copy(dst, src))


def _positions(
    builder: Builder, part: Part, lines: list[Line], positions: tuple[int, int]
) -> SliceView:
    """Where positions of a line, or of lines that are neighbours along H, lie in the buffer."""
    start, count = positions
    n, b_d, b_h = lines[0].index
    column = lines[0].column
    if not part.has_whole_rows:
        span = slice(column + start, column + start + count)
        heights = b_h if len(lines) == 1 else slice(b_h, b_h + len(lines))
        return part.buffer[:, n, b_d, heights, span]
    rows, samples, depth, height, width = part.buffer.shape
    flat = builder.alias(part.buffer, (rows, samples, depth, height * width))
    first = b_h * width + start
    return flat[:, n, b_d, first : first + count]
