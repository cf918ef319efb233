# SPDX-License-Identifier: Apache-2.0
"""What the physical cores of one logical core share: HBM tensors, barriers and exchanges.

Cores run as threads of which one runs at a time: each until it meets the other, so that a run is
deterministic. What one core writes to shared HBM is valid for the other after the next meeting.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from conv3d_codegen.simulator.cell_map import CellMap

if TYPE_CHECKING:
    from conv3d_codegen.simulator.core import Core
    from conv3d_codegen.simulator.element_types import Cells
    from conv3d_codegen.simulator.tensors import NkiTensor, Storage


@dataclass(frozen=True, slots=True)
class Meeting:
    """One core's side of a barrier, or of an exchange if it sends and receives a tile."""

    core: Core
    line: int
    kind: str
    sent: NkiTensor | None = None
    received: NkiTensor | None = None


class Exchange:
    """Shared by all cores of a run."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._indices = count()
        self._tensors: list[tuple[Storage, Cells]] = []
        self._allocated = [0] * size
        self._condition = threading.Condition()
        self._turn = 0
        self._waiting: dict[int, Meeting] = {}
        self._finished: set[int] = set()

    def next_index(self) -> int:
        """Return a number for a new storage, unique over all cores."""
        return next(self._indices)

    def shared_tensor(self, core: Core, storage: Storage) -> tuple[Storage, Cells]:
        """Return the core's next shared tensor: the one the other core declared there."""
        position = self._allocated[core.rank]
        self._allocated[core.rank] += 1
        if position == len(self._tensors):
            storage.written = [CellMap(1, storage.free, np.bool_) for _ in range(self.size)]
            storage.index = self.next_index()
            self._tensors.append((storage, storage.new_cells(filled=core.keeps_values)))
        known, cells = self._tensors[position]
        if (known.shape, known.dtype, known.name) != (storage.shape, storage.dtype, storage.name):
            raise core.stop(
                "core-exchange", f"{storage.name} {storage.shape} is {known.name} on the other core"
            )
        return known, cells

    # --- taking turns -------------------------------------------------------------------------

    def await_turn(self, core: Core) -> None:
        """Block a core's thread until it may run."""
        with self._condition:
            self._condition.wait_for(lambda: self._may_run(core.rank))

    def meet(self, meeting: Meeting) -> None:
        """Wait for the other core at a barrier or exchange, then go on."""
        core = meeting.core
        if self.size == 1:
            core.violate(meeting.line, "core-exchange", f"{meeting.kind} needs two cores (LNC 2)")
            return
        with self._condition:
            self._waiting[core.rank] = meeting
            if len(self._waiting) == self.size:
                self._resolve()
            elif self._finished:
                self._abandon()
            else:
                self._turn = 1 - core.rank
            self._condition.notify_all()
            self._condition.wait_for(lambda: self._may_run(core.rank))

    def finish(self, core: Core) -> None:
        """Note that a core has returned; the other may run."""
        with self._condition:
            self._finished.add(core.rank)
            if self._waiting:
                self._abandon()
            self._turn = 1 - core.rank
            self._condition.notify_all()

    def _may_run(self, rank: int) -> bool:
        return self._turn == rank and rank not in self._waiting

    def _abandon(self) -> None:
        """Give up on a meeting: one core waits for another that has returned."""
        for meeting in self._waiting.values():
            meeting.core.violate(
                meeting.line, "core-exchange", f"{meeting.kind}: the other core never gets here"
            )
            self._turn = meeting.core.rank
        self._waiting.clear()

    def _resolve(self) -> None:
        """Both cores are here: exchange tiles, and let each see what the other wrote."""
        meetings = [self._waiting[rank] for rank in range(self.size)]
        self._waiting.clear()
        self._turn = 0
        first, second = meetings
        if first.kind != second.kind:
            first.core.violate(
                first.line, "core-exchange", f"{first.kind} meets the other core's {second.kind}"
            )
        values = [None if m.sent is None else m.core.load(m.sent, m.line).copy() for m in meetings]
        for meeting, value in zip(meetings, reversed(values), strict=True):
            if meeting.received is not None and value is not None:
                meeting.core.store(meeting.received, partial(np.copy, value), meeting.line)
        for storage, _ in self._tensors:
            maps = [cells for cells in storage.written if cells is not None]
            for cells in maps[1:]:
                maps[0].merge(cells)
            for cells in maps[1:]:
                cells.merge(maps[0])
