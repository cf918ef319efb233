# SPDX-License-Identifier: Apache-2.0
"""Where the compiler could place on-chip tensors, as far as it costs time.

NKI places tensors automatically and rotates addresses. The model: a PSUM tensor takes the banks
that have been free for longest, an SBUF tensor takes bytes that were never used, then those freed
first. The first write waits until the previous occupant's last access is over.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from conv3d_codegen.simulator.lifetimes import psum_banks, sbuf_bytes
from conv3d_codegen.simulator.tensors import PSUM

if TYPE_CHECKING:
    from conv3d_codegen.simulator.tensors import Storage
    from conv3d_codegen.targets import TargetSpec


class Placement:
    """Occupancy of SBUF and PSUM over time."""

    def __init__(self, spec: TargetSpec) -> None:
        self._spec = spec
        self._untouched = spec.sbuf_bytes_per_partition
        self._freed: deque[tuple[int, float]] = deque()  # SBUF bytes and when they became free
        self._free_banks = deque((bank, 0.0) for bank in range(spec.psum_banks))
        self._banks: dict[int, tuple[int, ...]] = {}

    def place(self, storage: Storage) -> float:
        """Take room for a tensor; the time at which the room is free."""
        if storage.memory is PSUM:
            return self._place_psum(storage)
        return self._place_sbuf(sbuf_bytes(storage, self._spec))

    def release(self, storage: Storage, time: float) -> None:
        """Give a tensor's room back at a time."""
        if storage.memory is PSUM:
            self._free_banks.extend((bank, time) for bank in self._banks.pop(storage.index))
        else:
            self._freed.append((sbuf_bytes(storage, self._spec), time))

    def bank(self, storage: Storage, offset: int) -> int:
        """Find the bank of a PSUM tensor's element."""
        banks = self._banks.get(storage.index, ())
        position = offset * storage.dtype.bytes // self._spec.psum_bank_bytes
        return banks[position] if position < len(banks) else -1

    def _place_psum(self, storage: Storage) -> float:
        """Take banks; a kernel over capacity, which is reported elsewhere, gets those there are."""
        taken = [
            self._free_banks.popleft()
            for _ in range(min(psum_banks(storage, self._spec), len(self._free_banks)))
        ]
        self._banks[storage.index] = tuple(bank for bank, _ in taken)
        return max((time for _, time in taken), default=0.0)

    def _place_sbuf(self, need: int) -> float:
        from_untouched = min(need, self._untouched)
        self._untouched -= from_untouched
        need -= from_untouched
        time = 0.0
        while need > 0 and self._freed:
            size, freed_at = self._freed.popleft()
            time = max(time, freed_at)
            if size > need:
                self._freed.appendleft((size - need, freed_at))
            need -= size
        return time
