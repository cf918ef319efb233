# SPDX-License-Identifier: Apache-2.0
"""DMA over time: transfers share the engines' bandwidth, and 16 can be under way at once.

Transfers are granted in program order, but one whose operands are not ready does not hold up
another: the later one fills the gap before it.
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
        self._queue_free = [0.0] * spec.dma_queues
        self._gap_starts = [0.0]
        self._gap_ends = [float("inf")]

    def transfer(self, ready: float, ns: float, shared_ns: float) -> tuple[float, float]:
        """Grant a transfer; (start of the data, time at which dependents may start).

        `ns` is how long its own engines work, `shared_ns` its part of the whole group's time.
        """
        queue = self._pick_queue(ready)
        start = self._grant(max(ready, self._queue_free[queue]), shared_ns)
        end = start + max(ns, shared_ns) + self._latency
        self._queue_free[queue] = end
        return start, end

    def synchronise(self, time: float) -> None:
        """Start nothing before a time."""
        self._gap_starts, self._gap_ends = [time], [float("inf")]

    def _pick_queue(self, ready: float) -> int:
        """Take the queue that was free most recently before, else the one that is free first."""
        free = self._queue_free
        idle = [queue for queue, time in enumerate(free) if time <= ready]
        return max(idle, key=free.__getitem__) if idle else free.index(min(free))

    def _grant(self, ready: float, need: float) -> float:
        """Take the first stretch of free bandwidth at or after `ready`."""
        starts, ends = self._gap_starts, self._gap_ends
        gap = bisect_left(ends, ready + need)
        while max(starts[gap], ready) + need > ends[gap]:
            gap += 1
        start = max(starts[gap], ready)
        end = start + need
        pieces = [(starts[gap], start), (end, ends[gap])]
        kept = [(first, last) for first, last in pieces if last > first]
        starts[gap : gap + 1] = [first for first, _ in kept]
        ends[gap : gap + 1] = [last for _, last in kept]
        if len(starts) > _KEPT_GAPS:
            del starts[0], ends[0]
        return start
