# SPDX-License-Identifier: Apache-2.0
"""DMA over time: transfers share the engines' bandwidth, and 16 can be under way at once.

Transfers are granted in program order, but one whose operands are not ready does not hold up
another: it takes bandwidth and a queue from its start on, and later ones fill the gaps before it.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conv3d_codegen.targets import TargetSpec

# Gaps further back than this many are forgotten: what is ready now rarely fits them.
_KEPT_GAPS = 256


class DmaQueues:
    """Bandwidth and queues of one core."""

    def __init__(self, spec: TargetSpec) -> None:
        self._latency = spec.dma_latency_ns
        self._bandwidth = _Gaps()
        self._queues = [_Gaps() for _ in range(spec.dma_queues)]

    def transfer(self, ready: float, ns: float, shared_ns: float) -> tuple[float, float]:
        """Grant a transfer; (start of the data, time at which dependents may start).

        `ns` is how long its own engines work, `shared_ns` its part of the whole group's time.
        """
        whole = max(ns, shared_ns) + self._latency
        start, queue = self._pick_queue(ready, whole)
        while (granted := self._bandwidth.first_fit(start, shared_ns)) > start:
            start, queue = self._pick_queue(granted, whole)
        self._bandwidth.take(start, shared_ns)
        queue.take(start, whole)
        return start, start + whole

    def synchronise(self, time: float) -> None:
        """Start nothing before a time."""
        for gaps in (self._bandwidth, *self._queues):
            gaps.restart(time)

    def _pick_queue(self, ready: float, need: float) -> tuple[float, _Gaps]:
        """Find the earliest start; of the queues that allow it, take the one free for the shortest time."""
        fits = [(*queue.first_fit_and_gap(ready, need), queue) for queue in self._queues]
        start, _, queue = min(fits, key=lambda fit: (fit[0], -fit[1]))
        return start, queue


class _Gaps:
    """The stretches of time in which something is free."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self.restart(0.0)

    def restart(self, time: float) -> None:
        """Forget everything; all is free from a time on."""
        self._starts, self._ends = [time], [float("inf")]

    def first_fit(self, ready: float, need: float) -> float:
        """Find the first time at or after `ready` that leaves `need`."""
        return self.first_fit_and_gap(ready, need)[0]

    def first_fit_and_gap(self, ready: float, need: float) -> tuple[float, float]:
        """Find the first time that fits, and since when it has been free then."""
        starts, ends = self._starts, self._ends
        gap = bisect_left(ends, ready + need)
        while max(starts[gap], ready) + need > ends[gap]:
            gap += 1
        return max(starts[gap], ready), starts[gap]

    def take(self, start: float, need: float) -> None:
        """Fill a stretch that fits."""
        starts, ends = self._starts, self._ends
        end = start + need
        gap = bisect_left(ends, end)
        pieces = [(starts[gap], start), (end, ends[gap])]
        kept = [(first, last) for first, last in pieces if last > first]
        starts[gap : gap + 1] = [first for first, _ in kept]
        ends[gap : gap + 1] = [last for _, last in kept]
        if len(starts) > _KEPT_GAPS:
            del starts[0], ends[0]
