# SPDX-License-Identifier: Apache-2.0
"""The kernel before it is text: buffers, instructions and comments, grouped in sections.

Everything a reader of the plan wants to know of a kernel is counted here, before rendering: instructions, MACs, DMA
bytes, and the SBUF and PSUM footprints by liveness (first to last use in program order).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from conv3d_codegen.program.instructions import Instruction
from conv3d_codegen.program.views import Buffer, elements

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conv3d_codegen.program.views import Space, View

PSUM_BANK_BYTES = 2048  # AWS NKI Trainium2 architecture guide: 8 banks of 2 KiB per partition


@dataclass(frozen=True, slots=True)
class Comment:
    """A line that tells the reader why the next instructions stand there."""

    text: str


Item = Buffer | Instruction | Comment  # a Buffer: its allocation, or the reshape if it is an alias


@dataclass(slots=True)
class Section:
    """A titled run of items; a Buffer among them is its allocation."""

    title: str
    notes: tuple[str, ...] = ()
    items: list[Item] = field(default_factory=list)

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
        """Give all instructions in program order."""
        for section in self.sections:
            yield from section.instructions()

    def buffers(self) -> Iterator[Buffer]:
        """Give all on-chip buffers in order of allocation."""
        for section in self.sections:
            yield from (
                item
                for item in section.items
                if isinstance(item, Buffer) and item.alias_of is None
            )


@dataclass(frozen=True, slots=True)
class ProgramCounts:
    """What the text of a program contains, known before there is text."""

    instructions: int
    by_name: tuple[tuple[str, int], ...]
    macs: int
    dma_bytes_in: int
    dma_bytes_out: int
    sbuf_peak_bytes: int
    psum_peak_banks: int


def count(program: Program) -> ProgramCounts:
    """Count a program: instructions by name, executed MACs, DMA bytes, memory peaks."""
    names: Counter[str] = Counter()
    macs = bytes_in = bytes_out = 0
    for instruction in program.instructions():
        names[instruction.name] += 1
        if instruction.name == "nc_matmul":
            stationary, moving = instruction.reads
            macs += elements(stationary) * math.prod(moving.shape[1:])
        elif instruction.name == "dma_copy":
            (dst,), (src,) = instruction.writes, instruction.reads
            bytes_in += _hbm_bytes(src)
            bytes_out += _hbm_bytes(dst)
    return ProgramCounts(
        instructions=names.total(),
        by_name=tuple(sorted(names.items())),
        macs=macs,
        dma_bytes_in=bytes_in,
        dma_bytes_out=bytes_out,
        sbuf_peak_bytes=_peak(program, "sbuf", 1),
        psum_peak_banks=_peak(program, "psum", PSUM_BANK_BYTES) // PSUM_BANK_BYTES,
    )


def _hbm_bytes(view: View) -> int:
    if view.buffer.space != "hbm":
        return 0
    return elements(view) * (view.buffer.total_bytes // math.prod(view.buffer.shape))


def _peak(program: Program, space: Space, granule: int) -> int:
    """Largest sum of bytes per partition over buffers alive at once, each rounded up to granules."""
    first: dict[Buffer, int] = {}
    last: dict[Buffer, int] = {}
    for position, instruction in enumerate(program.instructions()):
        for view in (*instruction.writes, *instruction.reads):
            if view.buffer.space == space:
                first.setdefault(view.buffer.storage, position)
                last[view.buffer.storage] = position
    changes: Counter[int] = Counter()
    for buffer, position in first.items():
        size = -(-buffer.bytes_per_partition // granule) * granule
        changes[position] += size
        changes[last[buffer] + 1] -= size
    level = peak = 0
    for position in sorted(changes):
        level += changes[position]
        peak = max(peak, level)
    return peak
