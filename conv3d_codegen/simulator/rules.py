# SPDX-License-Identifier: Apache-2.0
"""The rules a kernel is held to, by stable id, and the record of where it breaks them."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

RULES = MappingProxyType(
    {
        # the text
        "syntax": "the file parses as Python",
        "subset": "only the Python subset that NKI's parser and tracer front ends both accept",
        "imports": "imports are exactly nki, nki.isa as nisa, nki.language as nl",
        "kernel-function": "one function carries @nki.jit, with plain positional parameters",
        "unknown-name": "every name of the NKI modules exists in every version asked for",
        "unsupported": "the bundled simulator can execute the call",
        "signature": "arguments exist in every version asked for and none is missing",
        "keywords": "instruction arguments are passed by keyword",
        "python-error": "the kernel runs without a Python exception",
        # tensors and views
        "tensor-shape": "extents are positive; on chip two axes or more, 128 partitions at most",
        "tensor-name": "every tensor and instruction name is unique",
        "slice-range": "slices lie inside the tensor, with positive steps",
        "partition-step": "partitions of a view follow each other without gaps",
        "reshape": "reshape keeps the element count and the partition axis of a contiguous tensor",
        "ap-base": "ap is called on whole tensors",
        "ap-pattern": "an ap pattern stays inside its tensor and starts with the partition pair",
        "broadcast-write": "nothing is written through a stride of 0",
        # operands
        "operand-type": "instruction operands are tensors, enums and numbers of the right kind",
        "operand-buffer": "every operand lies in a memory that its engine reaches",
        "start-partition": "partition starts: 0; 0 or 64 up to 64; a multiple of 32 up to 32",
        "access-rank": "free dimensions of an operand, contiguous neighbours merged, fit its field",
        "access-stride": "strides of on-chip operands fit 16-bit signed fields",
        "access-size": "compute operands have up to 65536 elements per partition",
        "shape": "shapes of the operands fit each other",
        "dtype": "element types fit the instruction",
        "engine": "engine= names an engine that can do it",
        "two-psum-inputs": "one Vector instruction reads at most one tensor from PSUM",
        "memset-value": "the value of memset has the type class of its destination",
        "dma-memory": "DMA moves between HBM and SBUF, never PSUM",
        # matmul and PSUM
        "matmul-size": "K and M up to 128, N up to what the destination's type allows",
        "matmul-tile": "tile_position and tile_size name legal PE tiles that the operands lie on",
        "matmul-mode": "flags of one matmul go together",
        "psum-bank": "a matmul's destination lies in one PSUM bank",
        "accumulate-before-open": "matmuls accumulate only where an overwriting matmul opened",
        "psum-chain": "one accumulation is open per PSUM bank and partition",
        # memory
        "sbuf-capacity": "live SBUF tensors fit a partition",
        "psum-capacity": "live PSUM tensors fit 8 banks, each at most 16 KiB",
        "poison-read": "every element read has been written",
        # results
        "write-once": "every output element is written exactly once",
        "output-unwritten": "every output element is written",
        "output-buffer": "only shared_hbm tensors are returned",
        "output-size": "no output exceeds 4 GiB",
        "input-written": "inputs are not written",
        # loops and cores
        "loop-scope": "tensors declared in a hardware loop are not used outside",
        "loop-register": "a loop register is used only as scalar_offset",
        "loop-form": "hardware loops have integer bounds and a positive step, outside no_reorder",
        "core-exchange": "both cores meet at the same barriers and exchanges",
    }
)


@dataclass(frozen=True, slots=True, order=True)
class Violation:
    """A rule broken at a line of the kernel file."""

    line: int
    rule: str
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.rule}: {self.message}"


class KernelStoppedError(Exception):
    """Execution cannot go on; the reason is already recorded."""


class ViolationLog:
    """Collects violations, the first of each rule and line."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, str], Violation] = {}

    def add(self, line: int, rule: str, message: str) -> None:
        """Record one; repeats of a rule at the same line say nothing new."""
        assert rule in RULES, rule
        self._found.setdefault((line, rule), Violation(line, rule, message))

    def extend(self, violations: tuple[Violation, ...]) -> None:
        """Record several."""
        for violation in violations:
            self.add(violation.line, violation.rule, violation.message)

    def sorted(self) -> tuple[Violation, ...]:
        """All of them by line, then rule."""
        return tuple(sorted(self._found.values()))
