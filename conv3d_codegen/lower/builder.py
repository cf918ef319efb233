# SPDX-License-Identifier: Apache-2.0
"""Collects a program section by section, names buffers, and balances work over the engines that can share it."""

from __future__ import annotations

from collections import Counter, deque
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from conv3d_codegen.program.instructions import Instruction, memset, moved, tensor_copy
from conv3d_codegen.program.price import instruction_ns
from conv3d_codegen.program.program import Comment, Section
from conv3d_codegen.program.views import Buffer

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping

    from conv3d_codegen.program.program import Assignment, Item, Loop
    from conv3d_codegen.program.views import RunTimeOffset, Space, View
    from conv3d_codegen.targets import TargetSpec


@dataclass(slots=True)
class _OpenLoop:
    """A loop whose body is being built: what stands before it, the body's own tensors, moved HBM tensors."""

    loop: Loop
    carried: Section
    tensors: set[Buffer] = field(default_factory=set)
    offsets: dict[str, RunTimeOffset] = field(default_factory=dict)


@dataclass(slots=True)
class Builder:
    """Grows the sections of one kernel."""

    target: TargetSpec
    dtype: str
    sections: list[Section] = field(default_factory=list)
    _serials: Counter[str] = field(default_factory=Counter)
    _aliases: dict[tuple[Buffer, tuple[int, ...]], Buffer] = field(default_factory=dict)
    _constants: dict[Hashable, Buffer] = field(default_factory=dict)
    _priced: dict[int, tuple[Instruction, float]] = field(default_factory=dict)
    _loop: _OpenLoop | None = None

    def section(self, title: str, *notes: str) -> None:
        """Open a new section; later items go there."""
        loop = self._loop.loop if self._loop is not None else None
        self.sections.append(Section(title, notes, loop=loop))

    @contextmanager
    def loop(self, loop: Loop) -> Iterator[None]:
        """Put the sections that are opened inside into a loop's body."""
        self.section("carried", "Tensors that outlive an iteration.")
        self._loop = _OpenLoop(loop, self.sections[-1])
        try:
            yield
        finally:
            self._loop = None

    def move(self, offsets: Mapping[str, RunTimeOffset]) -> None:
        """From here to the end of the loop, HBM tensors are addressed further on, by name."""
        assert self._loop is not None
        self._loop.offsets.update(offsets)

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Put what is built inside before the loop, if there is one: what must outlive an iteration."""
        loop, self._loop = self._loop, None
        if loop is None:
            yield
            return
        self.sections.append(loop.carried)
        try:
            yield
        finally:
            self.sections.pop()
            self._loop = loop

    @contextmanager
    def captured(self) -> Iterator[list[Item]]:
        """Collect what is built inside instead of appending it to the section."""
        section = self.sections[-1]
        items, section.items = section.items, []
        stream = section.items
        try:
            yield stream
        finally:
            section.items = items

    def weave(self, first: list[Item], second: list[Item], *, lead: float = 0.0) -> None:
        """Append two independent streams, mixed so that both advance evenly in tensor engine time.

        Each stream keeps its order. The evictions of one hide behind the matmuls of the other.
        lead: share of the first stream that comes before the second one starts.
        """
        total = sum(map(self.tensor_ns, first))
        goal = (1 - lead) * total, sum(map(self.tensor_ns, second))
        done = [-lead * total, 0.0]
        rest = deque(first), deque(second)
        while rest[0] and rest[1]:
            behind = done[1] * goal[0] < done[0] * goal[1]
            item = rest[behind].popleft()
            self.sections[-1].items.append(item)
            done[behind] += self.tensor_ns(item)
        self.sections[-1].items += [*rest[0], *rest[1]]

    def once(self, key: Hashable, build: Callable[[], Buffer]) -> Buffer:
        """Build a constant at the start of the kernel, where it is asked for the first time."""
        if key in self._constants:
            return self._constants[key]
        if not self._constants:
            self.sections.insert(0, Section("constants", ("What several sections share.",)))
        loop, self._loop = self._loop, None
        self.sections.append(self.sections[0])
        self._constants[key] = build()
        self.sections.pop()
        self._loop = loop
        return self._constants[key]

    def comment(self, text: str) -> None:
        """Add a comment line."""
        self.sections[-1].items.append(Comment(text))

    def assign(self, assignment: Assignment) -> None:
        """Name an expression."""
        self.sections[-1].items.append(assignment)

    def allocate(self, stem: str, shape: tuple[int, ...], dtype: str, space: Space) -> Buffer:
        """Declare an on-chip tensor under a name that no other tensor has."""
        buffer = Buffer(self.unused_name(stem), shape, dtype, space)
        self.sections[-1].items.append(buffer)
        if self._loop is not None:
            self._loop.tensors.add(buffer)
        return buffer

    def unused_name(self, stem: str) -> str:
        """Give a stem a name that no other tensor has."""
        serial = self._serials[stem]
        self._serials[stem] += 1
        return f"{stem}_{serial}"

    def alias(self, buffer: Buffer, shape: tuple[int, ...]) -> Buffer:
        """Name a buffer in another shape; asking again gives the same name."""
        if (buffer, shape) not in self._aliases:
            stem = f"{buffer.name}_view"
            serial = self._serials[stem]
            self._serials[stem] += 1
            alias = Buffer(f"{stem}{serial or ''}", shape, buffer.dtype, buffer.space, buffer)
            self._aliases[buffer, shape] = alias
            is_local = self._loop is not None and buffer in self._loop.tensors
            with nullcontext() if is_local else self.outside():
                self.sections[-1].items.append(alias)
        return self._aliases[buffer, shape]

    def share_of(self, stream: list[Item], ns: float) -> float:
        """Give the share of a stream that takes the tensor engine so long."""
        total = sum(map(self.tensor_ns, stream))
        return min(1.0, ns / total) if total else 0.0

    def spread(self, stream: list[Item]) -> None:
        """Mix a stream that nobody waits for into the section, evenly in tensor engine time.

        Engines work in order: a long run of such instructions would hold up the evictions that matmuls wait for.
        """
        section = self.sections[-1]
        items, section.items = section.items, []
        total, number = sum(map(self.tensor_ns, items)), sum(map(_is_instruction, stream))
        rest, done, placed = deque(stream), 0.0, 0
        for item in items:
            section.items.append(item)
            done += self.tensor_ns(item)
            while rest and done * number >= (placed + 0.5) * total:
                placed += _is_instruction(rest[0])
                section.items.append(rest.popleft())
        section.items += rest

    def add(self, instruction: Instruction) -> None:
        """Append one instruction."""
        if self._loop is not None and instruction.engine == "dma":
            instruction = moved(instruction, self._loop.offsets)
        self.sections[-1].items.append(instruction)

    def copy(self, dst: View, src: View) -> None:
        """Copy or evict with a cast, on either of Vector and Scalar: see `balance`."""
        self.add(tensor_copy(dst, src, "vector"))

    def zero(self, dst: View) -> None:
        """Fill with zeros, on the engine that has nothing else to do."""
        self.add(memset(dst, 0.0, "gpsimd"))

    def tensor_ns(self, item: Item) -> float:
        """Price an item of the tensor engine; those of other engines take none of its time."""
        if not isinstance(item, Instruction) or item.engine != "tensor":
            return 0.0
        # Streams are mixed again and again. What is kept here stays alive, so that no other one gets its id.
        known = self._priced.get(id(item))
        if known is None:
            known = self._priced[id(item)] = item, instruction_ns(item, self.target)
        return known[1]


def _is_instruction(item: Item) -> bool:
    return isinstance(item, Instruction)
