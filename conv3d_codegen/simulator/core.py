# SPDX-License-Identifier: Apache-2.0
"""One simulated NeuronCore: allocates, checks reads and writes, and records instructions."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from conv3d_codegen.simulator.cell_map import CellMap
from conv3d_codegen.simulator.lines import LineTable
from conv3d_codegen.simulator.rules import KernelStoppedError
from conv3d_codegen.simulator.tensors import INPUT, PSUM, SHARED_HBM, Blank, NkiTensor, Storage
from conv3d_codegen.simulator.trace import BARRIER, CORE_BARRIER, Counts, Operand, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from conv3d_codegen.simulator.element_types import Cells, ElementType
    from conv3d_codegen.simulator.exchange import Exchange
    from conv3d_codegen.simulator.registers import LoopScope
    from conv3d_codegen.simulator.rules import ViolationLog
    from conv3d_codegen.simulator.tensors import Memory
    from conv3d_codegen.targets import TargetSpec


class Core:
    """State of one physical core while the kernel runs on it."""

    def __init__(
        self,
        spec: TargetSpec,
        log: ViolationLog,
        filename: str,
        exchange: Exchange,
        *,
        rank: int,
        keeps_values: bool,
    ) -> None:
        self.spec = spec
        self.rank = rank
        self.exchange = exchange
        self.filename = filename
        self.lines = LineTable(filename)
        self.trace: list[Step] = []
        self.counts = Counts()
        self.scopes: list[LoopScope] = []
        self.keeps_order = False
        self.chains = 0
        self.keeps_values = keeps_values
        self._log = log
        self._names: dict[str, int] = {}
        self._psum_tensors: list[Storage] = []

    # --- reporting ----------------------------------------------------------------------------

    def violate(self, line: int, rule: str, message: str) -> None:
        """Record a violation."""
        self._log.add(line, rule, message)

    def report(self, rule: str, message: str) -> None:
        """Record a violation at the kernel line being executed."""
        self._log.add(self.current_line(), rule, message)

    def stop(self, rule: str, message: str) -> KernelStoppedError:
        """Record a violation after which the kernel cannot go on; raise what is returned."""
        self.report(rule, message)
        return KernelStoppedError()

    def current_line(self) -> int:
        """Find the innermost line of the kernel file that is being executed."""
        return self.lines.innermost(sys._getframe(1))

    # --- allocation ---------------------------------------------------------------------------

    def allocate(
        self, name: str, shape: tuple[int, ...], dtype: ElementType, memory: Memory
    ) -> NkiTensor:
        """Make a new tensor; shared HBM ones are the same for both cores."""
        line = self.current_line()
        if name:
            self.claim_name(name, line)
        storage = Storage(name, shape, dtype, memory, line)
        if memory is SHARED_HBM:
            storage, cells = self.exchange.shared_tensor(self, storage)
        else:
            storage.index = self.exchange.next_index()
            cells = storage.new_cells(filled=self.keeps_values)
        if memory is PSUM:
            banks = -(-storage.bytes_per_partition // self.spec.psum_bank_bytes)
            storage.opened = CellMap(storage.partitions, storage.free, np.int32)
            storage.opened_banks = CellMap(storage.partitions, banks, np.int32)
            self._psum_tensors.append(storage)
        if self.scopes:
            storage.scope = self.scopes[-1]
        return NkiTensor.whole(storage, cells, self)

    def wrap_input(self, name: str, values: Cells | Blank, dtype: ElementType) -> NkiTensor:
        """Make a kernel argument in HBM, holding a copy of the values if it has any."""
        storage = Storage(name, values.shape, dtype, SHARED_HBM, 0)
        storage.role = INPUT
        storage.written = [None]
        storage.index = self.exchange.next_index()
        if isinstance(values, Blank):
            return NkiTensor.whole(storage, storage.new_cells(filled=False), self)
        return NkiTensor.whole(storage, values.astype(dtype.held).reshape(-1), self)

    def claim_name(self, name: str, line: int) -> None:
        """Note a tensor's or instruction's name; a second use is a violation."""
        if not self.is_first_pass:
            return
        if name in self._names:
            self.violate(line, "tensor-name", f"{name} is already used on line {self._names[name]}")
        else:
            self._names[name] = line

    @property
    def is_first_pass(self) -> bool:
        """Whether this execution is the first of its text: not a later loop iteration."""
        return all(scope.is_first for scope in self.scopes)

    # --- reads and writes ---------------------------------------------------------------------

    def load(self, tensor: NkiTensor, line: int) -> Cells:
        """Return the values of an operand, checked to have been written."""
        storage = tensor.storage
        if storage.scope is not None and not storage.scope.is_open:
            self._leave_scope(storage, line)
        written = self._written(storage)
        if written is not None:
            seen = written.view(tensor.region)
            if not seen.all():
                self.violate(line, "poison-read", _unwritten_text(tensor, seen))
        return tensor.array

    def store(self, tensor: NkiTensor, compute: Callable[[], Any], line: int) -> None:
        """Write what `compute` returns, rounded to the tensor's type."""
        self.put(tensor, compute)
        self.mark_written(tensor, line)

    def put(self, tensor: NkiTensor, compute: Callable[[], Any]) -> None:
        """Compute and keep values, where they are kept: always those of integers, which may be addresses."""
        if self.keeps_values or not tensor.storage.dtype.is_float:
            tensor.storage.dtype.store(tensor.array, compute())

    def mark_written(
        self, tensor: NkiTensor, line: int, *, opens: bool = False, updates: bool = False
    ) -> None:
        """Note that an operand was written.

        `opens` says that a matmul did it, `updates` that the old value was one of the inputs.
        """
        storage = tensor.storage
        region = tensor.region
        if storage.scope is not None and not storage.scope.is_open:
            self._leave_scope(storage, line)
        if 0 in tensor.strides:
            self._check_broadcast(tensor, line)
        if storage.memory is SHARED_HBM:
            self._note_rewrite(tensor, line, updates=updates)
        written = self._written(storage)
        if written is not None:
            if storage.memory.is_on_chip and region.elements == storage.free * storage.partitions:
                storage.written[self._slot(storage)] = None
            else:
                written.view(region).fill(True)
        if storage.opened is not None and not opens:
            storage.opened.view(region).fill(0)

    def skip(self, tensor: Any, line: int) -> None:
        """Note an instruction that cannot be executed: what reads its result is not to blame."""
        if isinstance(tensor, NkiTensor):
            self.mark_written(tensor, line)

    def _slot(self, storage: Storage) -> int:
        return self.rank if len(storage.written) > 1 else 0

    def _written(self, storage: Storage) -> CellMap | None:
        return storage.written[self._slot(storage)]

    def _leave_scope(self, storage: Storage, line: int) -> None:
        self.violate(line, "loop-scope", f"{storage.name} belongs to a loop that has ended")

    def _check_broadcast(self, tensor: NkiTensor, line: int) -> None:
        for stride, count in zip(tensor.strides, tensor.shape, strict=True):
            if stride == 0 and count > 1:
                self.violate(
                    line, "broadcast-write", f"{tensor.name} is written with a stride of 0"
                )

    def _note_rewrite(self, tensor: NkiTensor, line: int, *, updates: bool) -> None:
        storage = tensor.storage
        if storage.role == INPUT:
            self.violate(line, "input-written", f"{storage.name} is an input")
        elif not updates and not storage.rewritten_line:
            maps = [seen for seen in storage.written if seen is not None]
            if any(seen.view(tensor.region).any() for seen in maps):
                storage.rewritten_line = line

    # --- hardware loops -----------------------------------------------------------------------

    def enter_loop(self, scope: LoopScope) -> None:
        """Start one execution of a loop body; accumulations do not reach into it."""
        self._close_accumulations()
        self.trace.append(Step(BARRIER, "", self.current_line(), 0.0, (), ()))
        self.scopes.append(scope)

    def leave_loop(self, scope: LoopScope) -> None:
        """End it: its tensors are gone, and accumulations do not reach out of it."""
        self.scopes.pop()
        scope.is_open = False
        self._close_accumulations()
        self.trace.append(Step(BARRIER, "", self.current_line(), 0.0, (), ()))

    def _close_accumulations(self) -> None:
        self._psum_tensors = [
            storage
            for storage in self._psum_tensors
            if storage.scope is None or storage.scope.is_open
        ]
        for storage in self._psum_tensors:
            if storage.opened is not None:
                storage.opened.fill(0)

    def mark_meeting(self, line: int) -> None:
        """Note in the trace that the core waits for the other one."""
        self.trace.append(Step(CORE_BARRIER, "", line, 0.0, (), ()))

    # --- the trace ----------------------------------------------------------------------------

    def record(
        self,
        kind: str,
        engine: str,
        line: int,
        ns: float,
        reads: Sequence[NkiTensor],
        writes: Sequence[NkiTensor],
        **details: Any,
    ) -> None:
        """Append an instruction to the trace."""
        self.trace.append(
            Step(
                kind,
                engine,
                line,
                ns,
                tuple([Operand(t.storage, t.region) for t in reads]),
                tuple([Operand(t.storage, t.region) for t in writes]),
                **details,
            )
        )
        counts = self.counts
        counts.executed += 1
        counts.by_kind[kind] += 1
        counts.by_engine[engine] += 1
        if self.is_first_pass:
            counts.text += 1


def _unwritten_text(tensor: NkiTensor, seen: Cells) -> str:
    """Say which elements of an operand nothing wrote."""
    missing = int(seen.size - np.count_nonzero(seen))
    first = tuple(int(index) for index in np.argwhere(~seen)[0][1:])
    where = "per partition, first at free index" if tensor.buffer.is_on_chip else "first at"
    return f"{missing} elements of {tensor.name} are read that nothing has written, {where} {first}"
