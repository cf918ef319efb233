# SPDX-License-Identifier: Apache-2.0
"""The NKI instructions that kernels are made of, as data.

One constructor per instruction in use. Argument names are those of `nki.isa` (NKI 0.3 to 0.7); every argument is passed
by keyword, because positions moved between releases.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from conv3d_codegen.program.views import PatternView, SliceView, move

if TYPE_CHECKING:
    from collections.abc import Mapping

    from conv3d_codegen.program.views import RunTimeOffset, View

Engine = Literal["vector", "scalar", "gpsimd"]

CORE = "core"  # in a kernel of two cores, the variable that says which one runs


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name of the NKI modules used as an argument, such as `nl.add`."""

    text: str


Argument = object  # View | Symbol | int | float | bool | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Instruction:
    """One call `nisa.NAME(ARGUMENT=…)`; `writes` and `reads` name its tensor arguments."""

    name: str
    arguments: tuple[tuple[str, Argument], ...]
    writes: tuple[View, ...]
    reads: tuple[View, ...]
    engine: str

    def argument(self, name: str) -> Argument:
        """Look one argument up by name."""
        return dict(self.arguments)[name]


def _engine_argument(engine: Engine) -> tuple[str, Argument]:
    return ("engine", Symbol(f"nisa.engine.{engine}"))


def matmul(
    dst: View, stationary: View, moving: View, *, accumulate: bool, double_row: bool = False
) -> Instruction:
    """Compute dst[M, N] (+)= stationary[K, M].T @ moving[K, N]; overwrites dst unless accumulate.

    double_row: operands are 8-bit floats, [K, 2, M] and [K, 2, N], and contract over both leading axes.
    """
    arguments = (
        ("dst", dst),
        ("stationary", stationary),
        ("moving", moving),
        ("accumulate", accumulate),
        *((("perf_mode", Symbol("nisa.matmul_perf_mode.double_row")),) if double_row else ()),
    )
    return Instruction("nc_matmul", arguments, (dst,), (stationary, moving), "tensor")


def transpose(dst: View, data: View) -> Instruction:
    """Compute dst[F, P] = data[P, F].T on the tensor engine; the free axes of data count as one."""
    arguments = (("dst", dst), ("data", data), ("engine", Symbol("nisa.engine.tensor")))
    return Instruction("nc_transpose", arguments, (dst,), (data,), "tensor")


def dma_copy(dst: View, src: View) -> Instruction:
    """Set dst = src between HBM and SBUF."""
    return Instruction("dma_copy", (("dst", dst), ("src", src)), (dst,), (src,), "dma")


def tensor_copy(dst: View, src: View, engine: Engine) -> Instruction:
    """Set dst = src with a cast, SBUF or PSUM on either side."""
    arguments = (("dst", dst), ("src", src), _engine_argument(engine))
    return Instruction("tensor_copy", arguments, (dst,), (src,), engine)


def memset(dst: View, value: float, engine: Engine) -> Instruction:
    """Set dst = value everywhere."""
    arguments = (("dst", dst), ("value", value), _engine_argument(engine))
    return Instruction("memset", arguments, (dst,), (), engine)


def tensor_add(dst: View, data1: View, data2: View, engine: Engine) -> Instruction:
    """Set dst = data1 + data2 in fp32; at most one of the two in PSUM."""
    return _tensor_tensor(dst, (data1, data2), "nl.add", engine)


def tensor_multiply(dst: View, data1: View, data2: View, engine: Engine) -> Instruction:
    """Set dst = data1 · data2 in fp32; at most one of the two in PSUM."""
    return _tensor_tensor(dst, (data1, data2), "nl.multiply", engine)


def _tensor_tensor(dst: View, data: tuple[View, View], op: str, engine: Engine) -> Instruction:
    arguments = (
        ("dst", dst),
        ("data1", data[0]),
        ("data2", data[1]),
        ("op", Symbol(op)),
        _engine_argument(engine),
    )
    return Instruction("tensor_tensor", arguments, (dst,), data, engine)


def exchange(dst: View, src: View) -> Instruction:
    """Set dst = the other core's src, which runs the same instruction; SBUF on both sides."""
    other = Symbol(f"1 - {CORE}")
    arguments = (
        ("src", src),
        ("dst", dst),
        ("send_to_rank", other),
        ("recv_from_rank", other),
        ("pipe_id", 0),
    )
    return Instruction("sendrecv", arguments, (dst,), (src,), "dma")


def reduce_add(dst: View, data: View) -> Instruction:
    """Compute dst[P, 1] = sum of data over all its free axes, in fp32 on the vector engine."""
    rank = len(data.shape)
    axis: Argument = tuple(range(1, rank)) if rank > 2 else 1
    arguments = (
        ("dst", dst),
        ("op", Symbol("nl.add")),
        ("data", data),
        ("axis", axis),
    )
    return Instruction("tensor_reduce", arguments, (dst,), (data,), "vector")


def reduce_last(dst: View, data: View) -> Instruction:
    """Set dst = sum of data over its last axis, in fp32 on the vector engine."""
    arguments = (
        ("dst", dst),
        ("op", Symbol("nl.add")),
        ("data", data),
        ("axis", len(data.shape) - 1),
    )
    return Instruction("tensor_reduce", arguments, (dst,), (data,), "vector")


def affine_select(
    dst: View, data: View, pattern: tuple[tuple[int, int], ...], *, row_step: int, offset: int
) -> Instruction:
    """Set dst = data where offset + partition · row_step + nested counters >= 0, and 0 elsewhere."""
    pairs = ", ".join(f"[{step}, {count}]" for step, count in pattern)
    arguments = (
        ("dst", dst),
        ("pattern", Symbol(f"[{pairs}]")),
        ("channel_multiplier", row_step),
        ("on_true_tile", data),
        ("on_false_value", 0.0),
        ("cmp_op", Symbol("nl.greater_equal")),
        ("offset", offset),
    )
    return Instruction("affine_select", arguments, (dst,), (data,), "gpsimd")


def iota(dst: View, pattern: tuple[tuple[int, int], ...]) -> Instruction:
    """Compute dst[0, i] = the i-th value of nested counters: (step, count) pairs, outermost first."""
    pairs = ", ".join(f"[{step}, {count}]" for step, count in pattern)
    arguments = (("dst", dst), ("pattern", Symbol(f"[{pairs}]")), ("offset", 0))
    return Instruction("iota", arguments, (dst,), (), "gpsimd")


def moved(instruction: Instruction, moves: Mapping[str, RunTimeOffset]) -> Instruction:
    """Let an instruction's HBM operands start further on, by name of the tensor."""

    def at(view: View) -> View:
        by = moves.get(view.buffer.storage.name)
        return move(view, by) if by is not None else view

    return replace(
        instruction,
        arguments=tuple(
            (name, at(value) if isinstance(value, SliceView | PatternView) else value)
            for name, value in instruction.arguments
        ),
        writes=tuple(at(view) for view in instruction.writes),
        reads=tuple(at(view) for view in instruction.reads),
    )
