# SPDX-License-Identifier: Apache-2.0
"""ScalarE: activation with scale, bias and the engine's accumulators."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from conv3d_codegen.simulator.operands import (
    ON_CHIP,
    access,
    are_tensors,
    check_elementwise,
    check_on_chip,
    member,
)
from conv3d_codegen.simulator.operators import ACTIVATIONS, Operator
from conv3d_codegen.simulator.tensors import NkiTensor
from conv3d_codegen.targets import cost

if TYPE_CHECKING:
    from conv3d_codegen.simulator.core import Core
    from conv3d_codegen.simulator.element_types import Cells
    from conv3d_codegen.simulator.operands import Args


def activation(core: Core, line: int, args: Args) -> None:
    """Dst = op(data * scale + bias), optionally summed into reduce_res."""
    dst, data = args["dst"], args["data"]
    if not are_tensors(core, line, "activation", dst=dst, data=data):
        core.skip(dst, line)
        return
    fits = check_elementwise(core, line, "activation", "scalar", dst, data)
    name = args["op"].name if isinstance(args["op"], Operator) else ""
    if name not in ACTIVATIONS:
        core.violate(line, "unsupported", f"activation with op={args['op']!r}")
    if not fits or name not in ACTIVATIONS:
        core.skip(dst, line)
        return
    reads = [data]
    values = core.load(data, line).astype(np.float32)
    values = values * _factor(core, line, "scale", args.get("scale", 1.0), values, reads)
    if args.get("bias") is not None:
        values = values + _factor(core, line, "bias", args["bias"], values, reads)
    result = ACTIVATIONS[name](values)
    core.store(dst, lambda: result, line)
    writes = [dst]
    if _reduce(core, line, args, result):
        writes.append(args["reduce_res"])
    ns = cost.activation_ns(
        core.spec, dst.free_elements, access(data), access(dst), reduces=len(writes) > 1
    )
    core.record("activation", "scalar", line, ns, reads, writes)


def _factor(
    core: Core, line: int, label: str, value: Any, values: Cells, reads: list[NkiTensor]
) -> Any:
    """Read a constant, or one number per partition."""
    if isinstance(value, (int, float)):
        return np.float32(value)
    if not isinstance(value, NkiTensor) or prod(value.shape[1:]) != 1:
        core.violate(line, "operand-type", f"activation {label}: a number or a (P, 1) tensor")
        return np.float32(0.0 if label == "bias" else 1.0)
    if value.shape[0] != values.shape[0]:
        core.violate(line, "shape", f"activation {label}: {value.shape} for {values.shape}")
        return np.float32(0.0 if label == "bias" else 1.0)
    if value.dtype.name == "tfloat32":
        core.violate(line, "dtype", f"activation {label} cannot be tfloat32")
    check_on_chip(core, line, f"activation {label}", value, ON_CHIP, 3)
    reads.append(value)
    return core.load(value, line).reshape((values.shape[0],) + (1,) * (values.ndim - 1))


def _reduce(core: Core, line: int, args: Args, result: Cells) -> bool:
    """Sum over the free axes into reduce_res; only the self-contained command is executed."""
    target = args.get("reduce_res")
    command = member(core, line, args.get("reduce_cmd"), "reduce_cmd", "idle")
    if target is None and command == "idle":
        return False
    operator = args.get("reduce_op")
    if command != "reset_reduce" or getattr(operator, "name", "") != "add" or target is None:
        core.violate(
            line, "unsupported", "activation reduces only with reduce_op=nl.add, reset_reduce"
        )
        return False
    if not are_tensors(core, line, "activation", reduce_res=target):
        return False
    if target.shape != (result.shape[0], 1):
        core.violate(line, "shape", f"activation reduce_res must be ({result.shape[0]}, 1)")
        return False
    total = result.reshape(result.shape[0], -1).sum(axis=1, dtype=np.float32)
    core.store(target, lambda: total.reshape(-1, 1), line)
    return True
