# SPDX-License-Identifier: Apache-2.0
"""Two cores in one kernel: where their parts start, what they exchange, and which of them stores.

Both run the same instructions. What differs is the variable `core`, 0 or 1, which moves the access patterns of tensors
that are shared by halves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from conv3d_codegen.program.instructions import CORE, exchange, tensor_add
from conv3d_codegen.program.program import Assignment
from conv3d_codegen.program.views import Buffer

if TYPE_CHECKING:
    from conv3d_codegen.lower.builder import Builder
    from conv3d_codegen.planner.problem import Problem


def select_outputs(
    builder: Builder, problem: Problem, outputs: dict[str, Buffer]
) -> dict[str, Buffer]:
    """Give the tensors to store to: of results that both cores hold, the second core's copy is scratch."""
    if problem.cores == 1:
        return dict(outputs)
    share = "everything" if problem.share == "nothing" else f"half of the {problem.share}"
    builder.section("cores", f"Each of the two cores computes {share}.")
    builder.assign(Assignment(CORE, "nl.program_id(0)"))
    chosen = dict(outputs)
    duplicates = [name for name in outputs if name in problem.duplicates]
    if duplicates:
        builder.comment("both cores have these results in full: the first one stores them")
    for name in duplicates:
        output = outputs[name]
        spare = builder.allocate(f"{name}_spare", output.shape, output.dtype, "private_hbm")
        stored = f"{name}_stored"
        builder.assign(Assignment(stored, f"{name} if {CORE} == 0 else {spare.name}"))
        chosen[name] = Buffer(stored, output.shape, output.dtype, "hbm")
    return chosen


def add_other_core(builder: Builder, part: Buffer) -> Buffer:
    """Add the other core's sum to this one's; both end up with the same bits."""
    mine = part
    if part.space == "psum":
        mine = builder.allocate("core_sum", part.shape, "fp32", "sbuf")
        builder.copy(mine.whole(), part.whole())
    theirs = builder.allocate("core_other", part.shape, "fp32", "sbuf")
    builder.add(exchange(theirs.whole(), mine.whole()))
    total = builder.allocate("core_total", part.shape, "fp32", "sbuf")
    builder.add(tensor_add(total.whole(), mine.whole(), theirs.whole(), "vector"))
    return total
