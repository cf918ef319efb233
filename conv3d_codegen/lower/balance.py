# SPDX-License-Identifier: Apache-2.0
"""Shares the copies of a finished kernel between Vector and Scalar, in the order in which they stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conv3d_codegen.program.instructions import Instruction, tensor_copy
from conv3d_codegen.program.price import instruction_ns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conv3d_codegen.program.program import Section
    from conv3d_codegen.targets import TargetSpec


def balance(sections: Sequence[Section], spec: TargetSpec) -> None:
    """Give each copy to the engine that would be done with it first.

    Results are taken to be there as soon as the tensor engine has worked on all that stands before; what Vector has to
    do besides, sums and additions, is counted.
    """
    free = {"vector": 0.0, "scalar": 0.0}
    now = 0.0
    for section in sections:
        for number, item in enumerate(section.items):
            if not isinstance(item, Instruction):
                continue
            if item.engine == "tensor":
                now += instruction_ns(item, spec)
            elif item.name == "tensor_copy":
                (dst,), (src,) = item.writes, item.reads
                options = (tensor_copy(dst, src, "vector"), tensor_copy(dst, src, "scalar"))
                ends = [max(now, free[o.engine]) + instruction_ns(o, spec) for o in options]
                end, copy = min(zip(ends, options, strict=True), key=lambda row: row[0])
                section.items[number], free[copy.engine] = copy, end
            elif item.engine in free:
                free[item.engine] = max(now, free[item.engine]) + instruction_ns(item, spec)
