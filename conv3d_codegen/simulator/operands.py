# SPDX-License-Identifier: Apache-2.0
"""Checks that many instructions share: where operands lie and what access pattern they have."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from conv3d_codegen.simulator.indexing import merged_axes
from conv3d_codegen.simulator.tensors import PSUM, SBUF, Memory, NkiTensor
from conv3d_codegen.targets.cost import Access

if TYPE_CHECKING:
    from conv3d_codegen.simulator.core import Core

Args = dict[str, Any]

ON_CHIP = (SBUF, PSUM)
SBUF_ONLY = (SBUF,)
PSUM_ONLY = (PSUM,)
# GpSimd cannot reach PSUM on any generation (architecture guides).
_ENGINE_MEMORIES = {"gpsimd": SBUF_ONLY, "vector": ON_CHIP, "scalar": ON_CHIP}


class EnumMember:
    """A member of an enumeration of `nki.isa`, such as `nisa.engine.vector`."""

    __slots__ = ("enum", "name")

    def __init__(self, enum: str, name: str) -> None:
        self.enum = enum
        self.name = name

    def __repr__(self) -> str:
        return f"nisa.{self.enum}.{self.name}"


def are_tensors(core: Core, line: int, kind: str, **operands: Any) -> bool:
    """Whether all operands are tensors; says which is not."""
    fits = True
    for role, operand in operands.items():
        if not isinstance(operand, NkiTensor):
            got = type(operand).__name__
            core.violate(line, "operand-type", f"{kind} {role}: a tensor is needed, got {got}")
            fits = False
    return fits


def member(core: Core, line: int, value: Any, enum: str, default: str) -> str:
    """Return the name of an enumeration argument, the default if it is absent or wrong."""
    if value is None:
        return default
    if isinstance(value, EnumMember) and value.enum == enum:
        return value.name
    core.violate(line, "operand-type", f"nisa.{enum} is needed, got {value!r}")
    return default


def pick_engine(core: Core, line: int, kind: str, args: Args, allowed: tuple[str, ...]) -> str:
    """Choose the engine that executes: the one named, or the first allowed where none is."""
    name = member(core, line, args.get("engine"), "engine", "unknown")
    if name == "unknown":
        return allowed[0]
    if name not in allowed:
        listed = ", ".join(allowed)
        core.violate(line, "engine", f"{kind} cannot run on {name}; accepted: {listed}")
        return allowed[0]
    return name


def check_on_chip(
    core: Core,
    line: int,
    label: str,
    tensor: NkiTensor,
    memories: tuple[Memory, ...],
    max_free_axes: int,
) -> None:
    """Check an operand of a compute engine: memory, start partition, rank and strides."""
    if tensor.storage.memory not in memories:
        accepted = " or ".join(memory.name for memory in memories)
        core.violate(
            line,
            "operand-buffer",
            f"{label}: {tensor.name} lies in {tensor.storage.memory.name}, must be in {accepted}",
        )
        if not tensor.storage.memory.is_on_chip:
            return
    first = tensor.region.first_partition
    if first and not is_legal_start(first, tensor.shape[0]):
        core.violate(
            line,
            "start-partition",
            f"{label}: {tensor.shape[0]} partitions of {tensor.name} start at {first}",
        )
    shape, strides = tensor.shape[1:], tensor.strides[1:]
    if len(shape) > max_free_axes and len(merged_axes(shape, strides)) > max_free_axes:
        core.violate(
            line,
            "access-rank",
            f"{label}: {tensor.name} needs {len(merged_axes(shape, strides))} free dimensions,"
            f" {max_free_axes} are possible",
        )
    if tensor.free_elements > core.spec.max_access_elements:
        core.violate(
            line,
            "access-size",
            f"{label}: {tensor.name} has {tensor.free_elements} elements per partition",
        )
    if max(strides) > core.spec.max_access_stride and any(
        stride > core.spec.max_access_stride and count > 1
        for count, stride in zip(shape, strides, strict=True)
    ):
        core.violate(line, "access-stride", f"{label}: {tensor.name} has strides {strides}")


def check_elementwise(
    core: Core, line: int, kind: str, engine: str, dst: NkiTensor, *sources: NkiTensor
) -> bool:
    """Check the operands of an element-by-element instruction; False if shapes do not allow it."""
    memories = _ENGINE_MEMORIES[engine]
    free_axes = _FREE_AXES.get(kind, 3)
    check_on_chip(core, line, f"{kind} dst", dst, memories, free_axes)
    fits = True
    for source in sources:
        check_on_chip(core, line, f"{kind} source", source, memories, free_axes)
        if source.shape != dst.shape:
            core.violate(
                line,
                "shape",
                f"{kind}: {dst.name} {dst.shape} cannot hold {source.name} {source.shape}",
            )
            fits = False
    return fits


# Free dimensions by instruction: reports of public kernels agree with every official example.
_FREE_AXES = {"tensor_copy": 4, "memset": 4, "tensor_reduce": 4}


def is_legal_start(first: int, count: int) -> bool:
    """Start partition rule: above 64 partitions 0, above 32 also 64, else multiples of 32."""
    if count > 64:
        return first == 0
    return first % (64 if count > 32 else 32) == 0


@lru_cache(maxsize=256)
def _access(memory: str, itemsize: int, is_float: bool, inner_stride: int) -> Access:
    return Access(memory, itemsize, is_float, inner_stride)


def access(tensor: NkiTensor) -> Access:
    """Describe what the operand's memory traffic costs."""
    stride = 1
    for extent, candidate in zip(
        reversed(tensor.shape[1:]), reversed(tensor.strides[1:]), strict=True
    ):
        if extent > 1:
            stride = candidate
            break
    dtype = tensor.storage.dtype
    return _access(tensor.storage.memory.name, dtype.bytes, dtype.is_float, max(stride, 1))
