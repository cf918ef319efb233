# SPDX-License-Identifier: Apache-2.0
"""Shares the copies of a finished kernel between Vector and Scalar, in the order in which they stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conv3d_codegen.program.instructions import Instruction, tensor_copy
from conv3d_codegen.program.price import access, instruction_ns
from conv3d_codegen.program.views import elements_per_partition
from conv3d_codegen.targets.cost import copy_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from conv3d_codegen.program.instructions import Engine
    from conv3d_codegen.program.program import Item, Section
    from conv3d_codegen.targets import TargetSpec


def balance(
    sections: Sequence[Section], spec: TargetSpec, tensor_ns: Callable[[Item], float]
) -> None:
    """Give each copy to the engine that would be done with it first.

    Results are taken to be there as soon as the tensor engine has worked on all that stands before, by tensor_ns; what
    Vector has to do besides, sums and additions, is counted.
    """
    free: dict[Engine, float] = {"vector": 0.0, "scalar": 0.0}
    now = 0.0
    for section in sections:
        for number, item in enumerate(section.items):
            if not isinstance(item, Instruction):
                continue
            if item.engine == "tensor":
                now += tensor_ns(item)
            elif item.name == "tensor_copy":
                (dst,), (src,) = item.writes, item.reads
                columns, accesses = elements_per_partition(src), (access(src), access(dst))
                ends = {
                    engine: max(now, time) + copy_ns(spec, engine, columns, *accesses)
                    for engine, time in free.items()
                }
                engine = min(ends, key=lambda name: ends[name])
                free[engine] = ends[engine]
                section.items[number] = tensor_copy(dst, src, engine)
            elif item.engine == "vector":
                free["vector"] = max(now, free["vector"]) + instruction_ns(item, spec)
