# SPDX-License-Identifier: Apache-2.0
"""Closed-form cost of a schedule: what each engine would be busy for, and the SBUF it needs, without building it.

Boxes, tiles and clipped taps are products of per-axis ranges, so every count is a product of per-axis sums. The cost
tables are those that price the finished program and the simulator's timeline.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from conv3d_codegen.dtypes import dtype
from conv3d_codegen.planner.blocks import BANK_COLUMNS, ceil_div, cut_count, split_even, split_upto
from conv3d_codegen.targets.cost import Access, copy_rate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from conv3d_codegen.planner.axes import DgradAxis
    from conv3d_codegen.planner.correlation import CorrelationAxis
    from conv3d_codegen.targets import TargetSpec

Range = tuple[int, int]

_ENDS = 2  # slabs at either end of an axis that may be cut short by the border


@dataclass(frozen=True, slots=True)
class Work:
    """Busy time per engine in ns; `drain` may run on Vector or Scalar, `vector` on Vector alone.

    `once` are those of the instructions that are not part of slabs; `turning` and `turned` are the parts of `tensor`
    and `drain` that operands of dw take to be turned.
    """

    tensor: float = 0.0
    drain: float = 0.0
    vector: float = 0.0
    gpsimd: float = 0.0
    dma: float = 0.0
    instructions: float = 0.0
    once: float = 0.0
    turning: float = 0.0
    turned: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.tensor + other.tensor,
            self.drain + other.drain,
            self.vector + other.vector,
            self.gpsimd + other.gpsimd,
            self.dma + other.dma,
            self.instructions + other.instructions,
            self.once + other.once,
            self.turning + other.turning,
            self.turned + other.turned,
        )

    def times(self, count: int) -> Work:
        """Repeat the same work."""
        return Work(
            self.tensor * count,
            self.drain * count,
            self.vector * count,
            self.gpsimd * count,
            self.dma * count,
            self.instructions * count,
            self.once * count,
            self.turning * count,
            self.turned * count,
        )

    @property
    def turned_alone(self) -> float:
        """Compute time if no other work hides behind turning operands of dw, and turning behind none."""
        rest = max((self.drain - self.turned + self.vector) / 2, self.vector)
        return max(self.turning, self.turned / 2) + max(self.tensor - self.turning, rest)

    @property
    def by_engine(self) -> tuple[tuple[str, float], ...]:
        """Each engine's time; evictions are shared evenly as far as Vector's own work allows."""
        return (
            ("tensor", self.tensor),
            ("vector", max((self.drain + self.vector) / 2, self.vector)),
            ("gpsimd", self.gpsimd),
            ("dma", self.dma),
        )

    @property
    def busiest(self) -> tuple[str, float]:
        """Engine that bounds the kernel if everything overlaps, and its time."""
        return max(self.by_engine, key=lambda row: row[1])

    @property
    def total(self) -> float:
        """Time if nothing overlapped."""
        return sum(time for _, time in self.by_engine)


@dataclass(frozen=True, slots=True)
class Prices:
    """Rates of one target for one input dtype, reduced to what the closed form multiplies with."""

    spec: TargetSpec
    compute: str

    def matmuls(self, number: float, columns: float) -> float:
        """Time of `number` matmuls that move `columns` columns in all."""
        passes = 4 if self.compute == "fp32" else 1
        floor = self.spec.min_interval_cycles * number
        return passes * max(columns, floor) / self.spec.clock_ghz["tensor"]

    def transposes(self, number: float, rows: int) -> float:
        """Time of transposes of `rows` partitions."""
        passes = 2 if dtype(self.compute).bytes == 4 else 1
        cycles = max(rows, self.spec.min_interval_cycles)
        return passes * number * cycles / self.spec.clock_ghz["tensor"]

    def drains(self, number: float, columns: float, itemsize: int) -> float:
        """Time on one engine, averaged over Vector and Scalar, to evict columns of PSUM."""
        vector = self.spec.clock_ghz["vector"] * (2 if itemsize == 2 else 1)
        scalar = self.spec.clock_ghz["scalar"]
        floor = self.spec.min_interval_cycles * number
        return max(2 * columns / (vector + scalar), floor / self.spec.clock_ghz["scalar"])

    def casts(self, columns: float, itemsize: int) -> float:
        """Time on one engine, averaged over Vector and Scalar, to copy columns of SBUF in another type of itemsize."""
        src, dst = Access("sbuf", dtype(self.compute).bytes), Access("sbuf", itemsize)
        rate = sum(
            self.spec.clock_ghz[engine] * copy_rate(self.spec, engine, src, dst)
            for engine in ("vector", "scalar")
        )
        return 2 * columns / rate

    def small_dma(self, calls: float, bytes_moved: float, run_bytes: float) -> float:
        """Time of transfers so small that they are bound by the queues, each taken for the latency of a transfer."""
        queued = calls * self.spec.dma_latency_ns / self.spec.dma_queues
        return max(queued, self.dma(calls, bytes_moved, run_bytes))

    def dma(self, calls: float, bytes_moved: float, run_bytes: float) -> float:
        """Time of transfers in runs of run_bytes."""
        run = max(run_bytes, 1)
        cost = max(run, self.spec.dma_min_descriptor_bytes) / self.spec.dma_engine_rate
        per_run = (cost + self.spec.dma_descriptor_ns) / self.spec.dma_engines
        return calls * self.spec.dma_call_ns + bytes_moved / run * per_run


@dataclass(frozen=True, slots=True)
class DgradCounts:
    """One axis of dx: columns and boxes over all taps, blocks and tiles over all phases, dy rows read."""

    columns: int
    boxes: int
    blocks: int
    tiles: int
    entries: int


@lru_cache(maxsize=4096)
def dgrad_counts(axis: DgradAxis, slab: int, tile: int) -> DgradCounts:
    """Count one axis of dx, cut in slabs of `slab` dy rows and tiles of `tile` blocks."""
    columns = boxes = blocks = tiles = 0
    for times, (low, high) in _distinct(dx_cuts(axis, slab)):
        for phase in axis.phases:
            for first, stop in split_upto(axis.blocks_for(phase, low, high), tile):
                tiles += times
                blocks += times * (stop - first)
                for tap in phase.taps:
                    start, end = axis.sources(tap, first, stop)
                    columns += times * max(0, end - start)
                    boxes += times * (end > start)
    return DgradCounts(columns, boxes, blocks, tiles, len(axis.entries()))


@lru_cache(maxsize=4096)
def dgrad_boxes(axis: DgradAxis, slab: int, tile: int) -> tuple[tuple[int, int, int], ...]:
    """(how often, blocks of a tile, those of them that a tap reaches) of one axis of dx over all slabs."""
    found: Counter[Range] = Counter()
    for times, (low, high) in _distinct(dx_cuts(axis, slab)):
        for phase in axis.phases:
            for first, stop in split_upto(axis.blocks_for(phase, low, high), tile):
                for tap in phase.taps:
                    start, end = axis.sources(tap, first, stop)
                    if end > start:
                        found[stop - first, end - start] += times
    return tuple((times, *box) for box, times in found.items())


def _distinct(cuts: Sequence[Range]) -> Iterator[tuple[int, Range]]:
    """(how often, cut): the cuts near the ends one by one, those between are as good as equal."""
    if len(cuts) <= 2 * _ENDS + 1:
        yield from ((1, cut) for cut in cuts)
        return
    yield from ((1, cut) for cut in cuts[:_ENDS])
    yield len(cuts) - 2 * _ENDS, cuts[_ENDS]
    yield from ((1, cut) for cut in cuts[-_ENDS:])


@lru_cache(maxsize=4096)
def dx_cuts(axis: DgradAxis, slab: int) -> tuple[Range, ...]:
    """Dx rows of each slab that has any."""
    reached = (axis.size - 1 + axis.pad) // axis.pace + 1
    return _row_cuts(axis.size, axis.pad, axis.pace, (axis.dy_size, reached), slab)


def _row_cuts(
    size: int, pad: int, pace: int, windows: tuple[int, int], slab: int
) -> tuple[Range, ...]:
    """Cut rows of the wide tensor as planner.grid.AxisCuts does; windows: that exist, and that rows reach."""
    count = cut_count(*windows, slab)
    stops = [*((number + 1) * slab * pace - pad for number in range(count - 1)), size]
    cuts = zip([0, *stops[:-1]], stops, strict=True)
    return tuple(
        (max(0, low), min(size, high)) for low, high in cuts if max(0, low) < min(size, high)
    )


@dataclass(frozen=True, slots=True)
class WgradCounts:
    """One axis of dw over all slabs: entries of the plain and of the shifted tensor, (entry, tap) pairs.

    groups and the `_most` fields are those of the largest slab.
    """

    groups: int
    plain: int
    shifted: int
    pairs: int
    plain_most: int
    shifted_most: int
    slabs: int


@lru_cache(maxsize=65536)
def wgrad_counts(axis: CorrelationAxis, slab: int, length: int) -> WgradCounts:
    """Count one axis of dw, cut in slabs of positions, with `length` positions per partition (0: all)."""
    plain = shifted = pairs = groups = plain_most = shifted_most = 0
    cuts = _owner_cuts(axis, slab)
    for times, (low, high) in _distinct(cuts):
        entries = min(length or high - low, high - low)
        spread = ceil_div(high - low, entries)
        unit, reach = axis.unit(entries), axis.reach(entries)
        held, valid = reach, axis.kernel * entries
        if spread == 1:
            start = low * axis.stride - axis.pad
            first = max(0, -(start // unit))
            held = max(0, min(reach, (axis.halo_size - 1 - start) // unit + 1) - first)
            valid = sum(
                _inside(axis, start + tap * axis.dilation, entries) for tap in range(axis.kernel)
            )
        plain, shifted, pairs = (
            plain + times * entries,
            shifted + times * held,
            pairs + times * valid,
        )
        groups = max(groups, spread)
        plain_most, shifted_most = max(plain_most, entries), max(shifted_most, reach)
    return WgradCounts(groups, plain, shifted, pairs, plain_most, shifted_most, len(cuts))


def _owner_cuts(axis: CorrelationAxis, slab: int) -> tuple[Range, ...]:
    """Rows of the tensor that owns positions, slab by slab."""
    if axis.shifted == "wide":
        return tuple(split_upto((0, axis.owner_size), slab))
    pad = (axis.kernel - 1) * axis.dilation - axis.pad
    windows = axis.halo_size, axis.owner_size + pad
    return _row_cuts(axis.owner_size, pad, 1, windows, slab)


@lru_cache(maxsize=65536)
def paired_steps(axis: CorrelationAxis, slab: int, length: int) -> int:
    """Count (entries, tap) steps of one axis of dw over all slabs where a step takes two neighbouring entries."""
    steps = 0
    for times, (low, high) in _distinct(_owner_cuts(axis, slab)):
        entries = min(length or high - low, high - low)
        if ceil_div(high - low, entries) > 1:
            steps += times * axis.kernel * ceil_div(entries, 2)
            continue
        start = low * axis.stride - axis.pad
        steps += times * sum(
            ceil_div(_inside(axis, start + tap * axis.dilation, entries), 2)
            for tap in range(axis.kernel)
        )
    return steps


def _inside(axis: CorrelationAxis, first: int, entries: int) -> int:
    """How many of the rows first, first + stride, … exist."""
    low = max(0, ceil_div(-first, axis.stride))
    return max(0, min(entries, (axis.halo_size - 1 - first) // axis.stride + 1) - low)


def balanced_tile(blocks: Sequence[int], *, halo: int = 0) -> tuple[int, int, int]:
    """Largest tile of a PSUM bank: whole rows of W, each with so many columns more, then of H, then of D."""
    depth, height, width = blocks
    w = split_even(width, BANK_COLUMNS - halo)
    if w < width:
        return 1, 1, w
    row = w + halo
    h = split_even(height, BANK_COLUMNS // row)
    if h < height:
        return 1, h, w
    return split_even(depth, BANK_COLUMNS // (row * h)), h, w
