# SPDX-License-Identifier: Apache-2.0
"""The kernel before it is text: buffers, instructions and comments, grouped in sections.

Everything a reader of the plan wants to know of a kernel is counted here, before rendering: instructions, MACs, DMA
bytes, and the SBUF and PSUM footprints by liveness (first to last use in the order of the text, whole loops where
a tensor outlives an iteration).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from conv3d_codegen.program.instructions import Instruction
from conv3d_codegen.program.views import Buffer, PatternView, elements

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conv3d_codegen.program.views import Space, View

ON_CHIP = ("sbuf", "psum")
PSUM_BANK_BYTES = 2048  # AWS NKI Trainium2 architecture guide: 8 banks of 2 KiB per partition


@dataclass(frozen=True, slots=True)
class Comment:
    """A line that tells the reader why the next instructions stand there."""

    text: str


@dataclass(frozen=True, slots=True)
class Assignment:
    """A name for a plain Python expression, such as which core runs."""

    name: str
    expression: str


Item = (
    Buffer | Instruction | Comment | Assignment
)  # a Buffer: its allocation, or the reshape if it is an alias


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """A hardware loop: its body runs for register = 0, step, 2·step, … below stop."""

    name: str
    register: str
    stop: int
    step: int
    notes: tuple[str, ...]

    @property
    def iterations(self) -> int:
        """How often the body runs."""
        return len(range(0, self.stop, self.step))


@dataclass(slots=True)
class Section:
    """A titled run of items; a Buffer among them is its allocation. Neighbours of one loop make up its body."""

    title: str
    notes: tuple[str, ...] = ()
    items: list[Item] = field(default_factory=list)
    loop: Loop | None = None

    @property
    def times(self) -> int:
        """How often its instructions are executed."""
        return self.loop.iterations if self.loop is not None else 1

    def instructions(self) -> Iterator[Instruction]:
        """Give the section's instructions in order."""
        return (item for item in self.items if isinstance(item, Instruction))


@dataclass(frozen=True, slots=True)
class Program:
    """A whole kernel: HBM parameters, HBM outputs, sections in execution order."""

    name: str
    parameters: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    sections: tuple[Section, ...]

    def instructions(self) -> Iterator[Instruction]:
        """Give all instructions in the order of the text."""
        for section in self.sections:
            yield from section.instructions()

    def executed(self) -> Iterator[tuple[int, Instruction]]:
        """Give (how often it is executed, instruction) in the order of the text."""
        for section in self.sections:
            yield from ((section.times, instruction) for instruction in section.instructions())

    @property
    def blocks(self) -> Iterator[tuple[Loop | None, tuple[Section, ...]]]:
        """Sections outside loops, and bodies of loops, in order."""
        for loop, sections in groupby(self.sections, key=lambda section: section.loop):
            yield loop, tuple(sections)

    @property
    def loops(self) -> tuple[Loop, ...]:
        """All loops in order."""
        return tuple(loop for loop, _ in self.blocks if loop is not None)

    def buffers(self) -> Iterator[Buffer]:
        """Give all on-chip buffers in order of allocation."""
        for section in self.sections:
            yield from (
                item
                for item in section.items
                if isinstance(item, Buffer) and item.alias_of is None and item.space in ON_CHIP
            )

    @property
    def workspace_bytes(self) -> int:
        """HBM that one core allocates beside the results."""
        items = (item for section in self.sections for item in section.items)
        return sum(
            item.total_bytes
            for item in items
            if isinstance(item, Buffer) and item.space == "private_hbm"
        )


@dataclass(frozen=True, slots=True)
class ProgramCounts:
    """What the text of a program contains and executes, known before there is text.

    instructions and by_name count the text; executed, macs and bytes count every iteration of loops.
    """

    instructions: int
    executed: int
    by_name: tuple[tuple[str, int], ...]
    macs: int
    dma_bytes_in: int
    dma_bytes_out: int
    sbuf_peak_bytes: int
    psum_peak_banks: int


def count(program: Program) -> ProgramCounts:
    """Count a program: instructions by name, executed MACs, DMA bytes, memory peaks."""
    names: Counter[str] = Counter()
    executed = macs = bytes_in = bytes_out = 0
    for times, instruction in program.executed():
        names[instruction.name] += 1
        executed += times
        if instruction.name == "nc_matmul":
            (dst,), (stationary, _) = instruction.writes, instruction.reads
            macs += times * elements(stationary) * math.prod(dst.shape[1:])
        elif instruction.name == "dma_copy":
            (dst,), (src,) = instruction.writes, instruction.reads
            bytes_in += times * _hbm_bytes(src)
            bytes_out += times * _hbm_bytes(dst)
    return ProgramCounts(
        instructions=names.total(),
        executed=executed,
        by_name=tuple(sorted(names.items())),
        macs=macs,
        dma_bytes_in=bytes_in,
        dma_bytes_out=bytes_out,
        sbuf_peak_bytes=_peak(program, "sbuf", 1),
        psum_peak_banks=_peak(program, "psum", PSUM_BANK_BYTES) // PSUM_BANK_BYTES,
    )


def _hbm_bytes(view: View) -> int:
    if view.buffer.space not in ("hbm", "private_hbm"):
        return 0
    return elements(view) * (view.buffer.total_bytes // math.prod(view.buffer.shape))


def _peak(program: Program, space: Space, granule: int) -> int:
    """Largest sum of bytes per partition over buffers alive at once, each rounded up to granules."""
    changes: Counter[int] = Counter()
    for buffer, (first, last) in _lifetimes(program, space).items():
        size = -(-buffer.bytes_per_partition // granule) * granule
        changes[first] += size
        changes[last + 1] -= size
    level = peak = 0
    for position in sorted(changes):
        level += changes[position]
        peak = max(peak, level)
    return peak


def _lifetimes(program: Program, space: Space) -> dict[Buffer, tuple[int, int]]:
    """First and last use of every buffer; what a loop finds on entry lives until the loop ends."""
    spans: dict[Buffer, tuple[int, int]] = {}
    position = 0
    for loop, sections in program.blocks:
        start = position
        for section in sections:
            for instruction in section.instructions():
                for buffer in _storages(instruction, space):
                    spans[buffer] = spans.get(buffer, (position, position))[0], position
                position += 1
        if loop is not None:
            for buffer, (first, last) in spans.items():
                if first < start <= last:
                    spans[buffer] = first, position - 1
    return spans


def _storages(instruction: Instruction, space: Space) -> Iterator[Buffer]:
    """Buffers in one memory that an instruction touches."""
    for view in (*instruction.writes, *instruction.reads):
        if view.buffer.space == space:
            yield view.buffer.storage
        by = view.moved if isinstance(view, PatternView) else None
        if by is not None and isinstance(by.value, Buffer) and by.value.space == space:
            yield by.value
