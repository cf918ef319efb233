# SPDX-License-Identifier: Apache-2.0
"""Element-by-element instructions and reductions: Vector, Scalar and GpSimd.

Where `engine=` is not given the compiler chooses; the simulator takes the first engine that the
instruction's documentation lists.
"""

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
    pick_engine,
)
from conv3d_codegen.simulator.operators import BINARY, BITWISE, REDUCTIONS, UNARY, Operator
from conv3d_codegen.simulator.tensors import PSUM, NkiTensor
from conv3d_codegen.targets import cost

if TYPE_CHECKING:
    from conv3d_codegen.simulator.core import Core
    from conv3d_codegen.simulator.element_types import Cells
    from conv3d_codegen.simulator.operands import Args


def tensor_copy(core: Core, line: int, args: Args) -> None:
    """Dst = src, cast to dst's type."""
    dst, src = args["dst"], args["src"]
    if not are_tensors(core, line, "tensor_copy", dst=dst, src=src):
        core.skip(dst, line)
        return
    engine = pick_engine(core, line, "tensor_copy", args, ("vector", "scalar", "gpsimd"))
    if not check_elementwise(core, line, "tensor_copy", engine, dst, src):
        core.skip(dst, line)
        return
    values = core.load(src, line)
    core.store(dst, lambda: values, line)
    ns = cost.copy_ns(core.spec, engine, dst.free_elements, access(src), access(dst))
    core.record("tensor_copy", engine, line, ns, (src,), (dst,))


def memset(core: Core, line: int, args: Args) -> None:
    """Dst = value."""
    dst, value = args["dst"], args["value"]
    if not are_tensors(core, line, "memset", dst=dst):
        return
    engine = pick_engine(core, line, "memset", args, ("vector", "gpsimd"))
    check_elementwise(core, line, "memset", engine, dst)
    wanted = float if dst.dtype.is_float else int
    if type(value) is not wanted:
        core.violate(
            line, "memset-value", f"memset of {dst.dtype} with {value!r}: needs {wanted.__name__}"
        )
    core.store(dst, lambda: np.asarray(value, dst.dtype.held), line)
    ns = cost.memset_ns(core.spec, engine, dst.free_elements, access(dst), zero=value == 0)
    core.record("memset", engine, line, ns, (), (dst,))


def tensor_tensor(core: Core, line: int, args: Args) -> None:
    """Dst = data1 op data2."""
    dst, data1, data2 = args["dst"], args["data1"], args["data2"]
    if not are_tensors(core, line, "tensor_tensor", dst=dst, data1=data1, data2=data2):
        core.skip(dst, line)
        return
    whole = all(t.dtype.name in {"int32", "uint32"} for t in (dst, data1, data2))
    touches_psum = PSUM in {dst.storage.memory, data1.storage.memory, data2.storage.memory}
    order = ("gpsimd", "vector") if whole and not touches_psum else ("vector", "gpsimd")
    engine = pick_engine(core, line, "tensor_tensor", args, order)
    _check_psum_inputs(core, line, "tensor_tensor", data1, data2)
    fits = check_elementwise(core, line, "tensor_tensor", engine, dst, data1, data2)
    operator = _binary(core, line, "tensor_tensor", args["op"])
    if not fits or operator is None:
        core.skip(dst, line)
        return
    left, right = core.load(data1, line), core.load(data2, line)
    if args["op"].name in BITWISE and (data1.dtype.is_float or data2.dtype.is_float):
        core.violate(line, "dtype", f"tensor_tensor: {args['op']} needs integers")
    elif engine != "gpsimd" and args["op"].name not in BITWISE:
        left, right = _as_fp32(left), _as_fp32(right)
    core.store(dst, lambda: operator(left, right), line)
    inputs = (access(data1), access(data2))
    ns = cost.tensor_tensor_ns(core.spec, engine, dst.free_elements, inputs, access(dst))
    core.record("tensor_tensor", engine, line, ns, (data1, data2), (dst,))


def tensor_scalar(core: Core, line: int, args: Args) -> None:
    """Dst = (data op0 operand0) op1 operand1, operands constants or one column per partition."""
    dst, data = args["dst"], args["data"]
    if not are_tensors(core, line, "tensor_scalar", dst=dst, data=data):
        core.skip(dst, line)
        return
    names = {op.name for op in (args["op0"], args.get("op1")) if isinstance(op, Operator)}
    allowed = ["vector"]
    if names <= {"multiply", "add"}:
        allowed.append("scalar")
    if names == {"rsqrt"}:
        allowed.append("gpsimd")
    engine = pick_engine(core, line, "tensor_scalar", args, tuple(allowed))
    if not check_elementwise(core, line, "tensor_scalar", engine, dst, data):
        core.skip(dst, line)
        return
    reads = [data]
    values = _as_fp32(core.load(data, line))
    for number in ("0", "1"):
        if args.get(f"op{number}") is not None:
            values = _apply_scalar(core, line, args, number, values, reads)
    core.store(dst, lambda: values, line)
    ns = cost.copy_ns(core.spec, engine, dst.free_elements, access(data), access(dst))
    core.record("tensor_scalar", engine, line, ns, reads, (dst,))


def scalar_tensor_tensor(core: Core, line: int, args: Args) -> None:
    """Dst = (data op0 operand0) op1 operand1, operand1 a full tile."""
    dst, data, tile = args["dst"], args["data"], args["operand1"]
    kind = "scalar_tensor_tensor"
    if not are_tensors(core, line, kind, dst=dst, data=data, operand1=tile):
        core.skip(dst, line)
        return
    _check_psum_inputs(core, line, kind, data, tile)
    operator = _binary(core, line, kind, args["op1"])
    if not check_elementwise(core, line, kind, "vector", dst, data, tile) or operator is None:
        core.skip(dst, line)
        return
    reads = [data, tile]
    left = _apply_scalar(core, line, args, "0", _as_fp32(core.load(data, line)), reads)
    right = _as_fp32(core.load(tile, line))
    first, second = (right, left) if args.get("reverse1") else (left, right)
    core.store(dst, lambda: operator(first, second), line)
    inputs = (access(data), access(tile))
    ns = cost.scalar_tensor_tensor_ns(core.spec, dst.free_elements, inputs, access(dst))
    core.record(kind, "vector", line, ns, reads, (dst,))


def tensor_reduce(core: Core, line: int, args: Args) -> None:
    """Dst = data reduced over trailing free axes."""
    dst, data, axis = args["dst"], args["data"], args["axis"]
    if not are_tensors(core, line, "tensor_reduce", dst=dst, data=data):
        core.skip(dst, line)
        return
    for label, operand in (("dst", dst), ("data", data)):
        check_on_chip(core, line, f"tensor_reduce {label}", operand, ON_CHIP, 4)
    axes = tuple(sorted(axis)) if isinstance(axis, tuple) else (axis,)
    reduction = REDUCTIONS.get(getattr(args["op"], "name", ""))
    if reduction is None:
        core.violate(line, "unsupported", f"tensor_reduce with op={args['op']!r}")
    trailing = tuple(range(data.ndim - len(axes), data.ndim))
    if axes != trailing or axes[0] == 0:
        core.violate(line, "shape", f"tensor_reduce: axis {axis} must be the trailing free axes")
    kept = data.shape[: -len(axes)]
    keepdims = kept + (1,) * len(axes)
    accepted = {keepdims} if args.get("keepdims") else {kept if len(kept) > 1 else (*kept, 1)}
    if dst.shape not in accepted or reduction is None or axes != trailing:
        if dst.shape not in accepted:
            core.violate(line, "shape", f"tensor_reduce: {data.shape} over {axis} gives {kept}")
        core.skip(dst, line)
        return
    values = core.load(data, line)

    def reduce() -> Cells:
        result: Cells = reduction(_as_fp32(values).reshape(*kept, -1), axis=-1)
        return np.reshape(-result if args.get("negate") else result, dst.shape)

    core.store(dst, reduce, line)
    ns = cost.reduce_ns(core.spec, data.free_elements, access(data), access(dst))
    core.record("tensor_reduce", "vector", line, ns, (data,), (dst,))


def _as_fp32(values: Cells) -> Cells:
    return values if values.dtype == np.float32 else values.astype(np.float32)


def _check_psum_inputs(core: Core, line: int, kind: str, *inputs: NkiTensor) -> None:
    if all(tensor.storage.memory is PSUM for tensor in inputs):
        names = " and ".join(tensor.name for tensor in inputs)
        core.violate(line, "two-psum-inputs", f"{kind}: {names} both lie in PSUM")


def _binary(core: Core, line: int, kind: str, op: Any) -> Any:
    """Find the numpy function of a two-operand operator, None if there is none."""
    name = op.name if isinstance(op, Operator) else ""
    function = BINARY.get(name) or BITWISE.get(name)
    if function is None:
        core.violate(line, "operand-type", f"{kind}: {op!r} is not an operator of two operands")
    return function


def _apply_scalar(
    core: Core, line: int, args: Args, number: str, values: Cells, reads: list[NkiTensor]
) -> Cells:
    """One `op operand` step of tensor_scalar; appends an operand tile to the reads."""
    op, operand = args[f"op{number}"], args.get(f"operand{number}")
    name = op.name if isinstance(op, Operator) else ""
    if name in UNARY:
        return np.asarray(UNARY[name](values))
    function = _binary(core, line, "tensor_scalar", op)
    if function is None:
        return values
    if isinstance(operand, NkiTensor):
        if prod(operand.shape[1:]) != 1 or operand.shape[0] != values.shape[0]:
            core.violate(line, "shape", f"operand{number} must be ({values.shape[0]}, 1)")
            return values
        if operand.dtype.name != "float32":
            core.violate(line, "dtype", f"operand{number} must be float32, is {operand.dtype}")
        check_on_chip(core, line, f"operand{number}", operand, ON_CHIP, 3)
        reads.append(operand)
        column = _as_fp32(core.load(operand, line))
        operand = column.reshape((values.shape[0],) + (1,) * (values.ndim - 1))
    elif isinstance(operand, (int, float)):
        operand = np.float32(operand)
    else:
        core.violate(line, "operand-type", f"operand{number} is {operand!r}")
        return values
    reverse = args.get(f"reverse{number}")
    return np.asarray(function(operand, values) if reverse else function(values, operand))
