# SPDX-License-Identifier: Apache-2.0
"""Work that nobody waits for fills the gaps of work that somebody does."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from conv3d_codegen.api import plan
from conv3d_codegen.geometry import ConvGeometry
from conv3d_codegen.lower.balance import balance
from conv3d_codegen.lower.builder import Builder
from conv3d_codegen.lower.kernel import lower
from conv3d_codegen.program.instructions import (
    Instruction,
    matmul,
    reduce_add,
    tensor_copy,
)
from conv3d_codegen.program.price import instruction_ns
from conv3d_codegen.program.program import Section
from conv3d_codegen.program.views import Buffer
from conv3d_codegen.targets import target

if TYPE_CHECKING:
    from collections.abc import Iterable

TRN2 = target("trn2")


def instructions(sections: Iterable[Section]) -> list[Instruction]:
    return [item for section in sections for item in section.items if isinstance(item, Instruction)]


def test_sums_of_db_are_spread_over_the_slab() -> None:
    """No two of them follow each other: evictions that matmuls wait for would queue behind them."""
    geometry = ConvGeometry.from_shapes((1, 64, 4, 28, 28), (64, 3, 1, 1), padding=(1, 0, 0))
    chosen = plan(geometry)
    program = lower(geometry, chosen.problem, chosen.schedule)
    kinds = [
        instruction.name
        for instruction in instructions(program.sections)
        if instruction.engine != "dma"
    ]
    sums = [number for number, name in enumerate(kinds) if name == "tensor_reduce"][:-1]
    assert len(sums) > 2
    assert all(after - before > 1 for before, after in pairwise(sums))


def test_copies_go_where_they_are_done_first() -> None:
    """Vector is the faster one for 16 bits in PSUM, but here it has sums to do."""
    operand = Buffer("operand", (128, 512), "bf16", "sbuf")
    landing = Buffer("landing", (128, 512), "bf16", "psum")
    copied = Buffer("copied", (128, 512), "bf16", "sbuf")
    part = Buffer("part", (128, 1), "fp32", "sbuf")
    copy = tensor_copy(copied.whole(), landing.whole(), "vector")
    busy = Section("busy", (), [*[reduce_add(part.whole(), operand.whole())] * 3, copy])
    balance([busy], TRN2, Builder(TRN2, "bf16").tensor_ns)
    assert instructions([busy])[-1].engine == "scalar"
    idle = Section("idle", (), [copy])
    balance([idle], TRN2, Builder(TRN2, "bf16").tensor_ns)
    assert instructions([idle])[-1].engine == "vector"


def test_time_of_the_tensor_engine_lets_others_catch_up() -> None:
    """After long matmuls, sums that were ahead of a copy are done."""
    operand = Buffer("operand", (128, 512), "bf16", "sbuf")
    landing = Buffer("landing", (128, 512), "fp32", "psum")
    turned = Buffer("turned", (128, 512), "bf16", "psum")
    part = Buffer("part", (128, 1), "fp32", "sbuf")
    total = reduce_add(part.whole(), operand.whole())
    product = matmul(landing.whole(), operand[:, 0:128], operand.whole(), accumulate=False)
    times = int(instruction_ns(total, TRN2) / instruction_ns(product, TRN2)) + 1
    copy = tensor_copy(operand.whole(), turned.whole(), "vector")
    section = Section("both", (), [total, *[product] * times, copy])
    balance([section], TRN2, Builder(TRN2, "bf16").tensor_ns)
    assert instructions([section])[-1].engine == "vector"
