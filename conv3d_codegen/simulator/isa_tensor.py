# SPDX-License-Identifier: Apache-2.0
"""TensorE: nc_matmul, and nc_transpose on either of its engines."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from conv3d_codegen.simulator.operands import (
    PSUM_ONLY,
    SBUF_ONLY,
    access,
    are_tensors,
    check_elementwise,
    check_on_chip,
    member,
)
from conv3d_codegen.simulator.psum import check_bank, note_accumulation, note_opening
from conv3d_codegen.simulator.tensors import PSUM
from conv3d_codegen.targets.cost import matmul_ns, transpose_ns

if TYPE_CHECKING:
    from conv3d_codegen.simulator.core import Core
    from conv3d_codegen.simulator.element_types import Cells
    from conv3d_codegen.simulator.operands import Args
    from conv3d_codegen.simulator.tensors import NkiTensor

_FULL_WIDTH = frozenset({"float32", "tfloat32"})
# PE tiles are 32, 64 or 128 rows or columns (nc_matmul docstring); the vector engine transposes
# blocks of 32 × 32.
_TILE_EXTENTS = (32, 64, 128)
_ROW_GROUP = 32
_VECTOR_BLOCK = 32
_MATMUL_FREE_AXES = 3


@dataclass(slots=True)
class _Matmul:
    """One nc_matmul call with its arguments sorted out."""

    core: Core
    line: int
    dst: NkiTensor
    stationary: NkiTensor
    moving: NkiTensor
    double_row: bool

    def violate(self, rule: str, message: str) -> None:
        self.core.violate(self.line, rule, f"nc_matmul: {message}")

    @property
    def columns(self) -> int:
        """N: free elements of the result."""
        return self.dst.free_elements

    @property
    def rows(self) -> int:
        """K: partitions that contract."""
        return self.stationary.shape[0]


def nc_matmul(core: Core, line: int, args: Args) -> None:
    """dst[M, N] (+)= stationary[K, M].T @ moving[K, N]."""
    dst, stationary, moving = args["dst"], args["stationary"], args["moving"]
    if not are_tensors(core, line, "nc_matmul", dst=dst, stationary=stationary, moving=moving):
        core.skip(dst, line)
        return
    if args.get("is_transpose"):
        _transpose_matmul(core, line, args)
        return
    mode = member(core, line, args.get("perf_mode"), "matmul_perf_mode", "none")
    call = _Matmul(core, line, dst, stationary, moving, mode == "double_row")
    rows = _tile_rows(call, args)
    _check_places(call)
    _check_dtypes(call)
    if not _check_shapes(call):
        core.skip(dst, line)
        return
    check_bank(core, line, "nc_matmul", dst)
    _accumulate(call, args.get("accumulate"))
    macs = call.rows * (2 if call.double_row else 1) * dst.shape[0] * call.columns
    core.counts.macs += macs
    core.counts.matmul_columns += call.columns
    dtype = "float32" if "float32" in {stationary.dtype.name, moving.dtype.name} else "bfloat16"
    ns = matmul_ns(
        core.spec,
        call.columns,
        stationary_columns=dst.shape[0],
        dtype=dtype,
        moving=access(moving),
    )
    core.record("nc_matmul", "tensor", line, ns, (stationary, moving), (dst,), rows=rows)


def _check_places(call: _Matmul) -> None:
    """Memories, ranks and start partitions."""
    core, line = call.core, call.line
    for role, operand in (("stationary", call.stationary), ("moving", call.moving)):
        check_on_chip(core, line, f"nc_matmul {role}", operand, SBUF_ONLY, _MATMUL_FREE_AXES)
    check_on_chip(core, line, "nc_matmul dst", call.dst, PSUM_ONLY, _MATMUL_FREE_AXES)


def _check_dtypes(call: _Matmul) -> None:
    spec = call.core.spec
    names = [call.stationary.dtype.name, call.moving.dtype.name]
    for name in names:
        if name not in spec.matmul_operand_dtypes:
            call.violate("dtype", f"{name} operands are not possible on {spec.name}")
    if len({name in _FULL_WIDTH for name in names}) > 1:
        call.violate("dtype", f"{names[0]} × {names[1]}: fp32 and tf32 pair only with each other")
    if {"float8_e4m3", "float8_e4m3fn"} <= set(names):
        call.violate("dtype", "float8_e4m3 and float8_e4m3fn do not pair")
    if call.double_row and not all(name.startswith("float8") for name in names):
        call.violate("dtype", "double_row needs fp8 operands")
    if call.double_row and not spec.double_row:
        call.violate("matmul-mode", f"double_row is not possible on {spec.name}")
    if call.dst.dtype.name not in spec.matmul_max_columns:
        accepted = ", ".join(spec.matmul_max_columns)
        call.violate("dtype", f"dst is {call.dst.dtype.name}, must be {accepted}")


def _check_shapes(call: _Matmul) -> bool:
    """Sizes, and whether the shapes allow the product."""
    spec, dst, stationary, moving = call.core.spec, call.dst, call.stationary, call.moving
    pairs = (2,) if call.double_row else ()
    columns = moving.shape[1 + len(pairs) :]
    if (
        len(stationary.shape) != 2 + len(pairs)
        or stationary.shape[1:-1] != pairs
        or moving.shape != (stationary.shape[0], *pairs, *columns)
        or dst.shape != (stationary.shape[-1], *columns)
        or (call.double_row and len(columns) != 1)  # the documented forms have no further axes
    ):
        shapes = f"stationary {stationary.shape}, moving {moving.shape}, dst {dst.shape}"
        form = "[K, 2, M], [K, 2, N], [M, N]" if call.double_row else "[K, M], [K, N...], [M, N...]"
        call.violate("shape", f"{shapes}; must be {form}")
        return False
    limit = spec.matmul_max_columns.get(dst.dtype.name, min(spec.matmul_max_columns.values()))
    if call.columns > limit:
        call.violate("matmul-size", f"{call.columns} columns, at most {limit} are possible")
    return True


def _tile_rows(call: _Matmul, args: Args) -> tuple[int, int]:
    """Find the row groups of the PE that work, and check the PE tile against the operands."""
    position, size = args.get("tile_position") or (0, 0), args.get("tile_size") or (128, 128)
    spec = call.core.spec
    if bool(args.get("tile_position")) != bool(args.get("tile_size")):
        call.violate("matmul-tile", "tile_position and tile_size go together")
    for what, start, extent in (
        ("row", position[0], size[0]),
        ("column", position[1], size[1]),
    ):
        if extent not in _TILE_EXTENTS or start % extent or start + extent > spec.partitions:
            call.violate("matmul-tile", f"{what} tile of {extent} at {start}")
    if size[1] != spec.matmul_max_stationary_columns and not spec.column_tiling:
        call.violate("matmul-tile", f"column tiling is not enabled on {spec.name}")
    for role, operand in (("stationary", call.stationary), ("moving", call.moving)):
        first = operand.region.first_partition
        if first != position[0] or operand.shape[0] > size[0]:
            call.violate(
                "matmul-tile",
                f"{role} on partitions {first} to {first + operand.shape[0] - 1} does not lie on"
                f" the tile of {size[0]} rows at {position[0]}",
            )
    first = call.dst.region.first_partition if call.dst.storage.memory.is_on_chip else 0
    if first != position[1] or call.dst.shape[0] > size[1]:
        call.violate(
            "matmul-tile", f"dst starts at partition {first}, its column tile at {position[1]}"
        )
    if call.double_row and size[1] != spec.matmul_max_stationary_columns:
        call.violate("matmul-mode", "double_row and column tiling exclude each other")
    return position[0] // _ROW_GROUP, (position[0] + size[0]) // _ROW_GROUP


def _product(call: _Matmul, stationary: Cells, moving: Cells) -> Cells:
    """Compute the product in fp32, in the destination's shape."""
    columns = call.stationary.shape[-1]
    if call.double_row:
        stationary = stationary.reshape(-1, columns)
        moving = moving.reshape(2 * moving.shape[0], -1)
    else:
        moving = moving.reshape(moving.shape[0], -1)
    product: Cells = np.matmul(stationary.T, moving)
    return product.reshape(call.dst.shape)


def _accumulate(call: _Matmul, accumulate: bool | None) -> None:
    """Overwrite or add, keeping track of which elements hold an open accumulation."""
    core, line, dst = call.core, call.line, call.dst
    stationary, moving = core.load(call.stationary, line), core.load(call.moving, line)
    if accumulate is None:
        call.violate("matmul-mode", "accumulate= must be True or False")
        opened = dst.storage.opened
        accumulate = opened is not None and bool(opened.view(dst.region).all())
    if accumulate:
        note_accumulation(core, line, dst)
    else:
        note_opening(core, dst)

    def total() -> Cells:
        product = _product(call, stationary, moving)
        return np.add(dst.array, product, out=product) if accumulate else product

    core.put(dst, total)
    core.mark_written(dst, line, opens=True)


def _transpose_matmul(core: Core, line: int, args: Args) -> None:
    """nc_matmul(is_transpose=True): stationary is the data, moving an identity."""
    dst, data, identity = args["dst"], args["stationary"], args["moving"]
    if args.get("accumulate"):
        core.violate(line, "matmul-mode", "nc_matmul: a transpose cannot accumulate")
    values = core.load(identity, line)
    square = values.shape == (data.shape[0],) * 2
    if not square or (core.keeps_values and not np.array_equal(values, np.eye(data.shape[0]))):
        core.violate(line, "shape", "nc_matmul: is_transpose needs an identity as moving operand")
    if identity.dtype is not data.dtype:
        core.violate(line, "dtype", "nc_matmul: identity and data must have one type")
    check_on_chip(core, line, "nc_matmul moving", identity, SBUF_ONLY, _MATMUL_FREE_AXES)
    _tensor_transpose(core, line, "nc_matmul", dst, (data, identity))


def nc_transpose(core: Core, line: int, args: Args) -> None:
    """dst[F, P] = data[P, F].T; the engine follows from the destination where none is named."""
    dst, data = args["dst"], args["data"]
    if not are_tensors(core, line, "nc_transpose", dst=dst, data=data):
        core.skip(dst, line)
        return
    name = member(core, line, args.get("engine"), "engine", "unknown")
    if name == "unknown":
        name = "tensor" if dst.storage.memory is PSUM else "vector"
    if name == "tensor":
        _tensor_transpose(core, line, "nc_transpose", dst, (data,))
    elif name == "vector":
        _vector_transpose(core, line, dst, data)
    else:
        core.violate(line, "engine", f"nc_transpose cannot run on {name}; accepted: tensor, vector")
        core.skip(dst, line)


def _tensor_transpose(
    core: Core, line: int, kind: str, dst: NkiTensor, reads: tuple[NkiTensor, ...]
) -> None:
    """Transpose the first of the tensors read into PSUM."""
    data = reads[0]
    check_on_chip(core, line, f"{kind} data", data, SBUF_ONLY, _MATMUL_FREE_AXES)
    check_on_chip(core, line, f"{kind} dst", dst, PSUM_ONLY, _MATMUL_FREE_AXES)
    if data.region.first_partition or dst.region.first_partition:
        core.violate(line, "matmul-tile", f"{kind}: data and dst must start at partition 0")
    if data.dtype.bytes == 1 and dst.strides[-1] != 2:
        core.violate(line, "dtype", f"{kind}: fp8 results need a dst of step 2 (16 bits each)")
    check_bank(core, line, kind, dst)
    if not _store_transposed(core, line, kind, dst, data):
        return
    note_opening(core, dst)
    core.mark_written(dst, line)
    ns = transpose_ns(core.spec, data.shape[0], data.free_elements, itemsize=data.dtype.bytes)
    core.record(kind, "tensor", line, ns, reads, (dst,))


def _vector_transpose(core: Core, line: int, dst: NkiTensor, data: NkiTensor) -> None:
    check_elementwise(core, line, "nc_transpose", "vector", dst)
    check_elementwise(core, line, "nc_transpose", "vector", data)
    if max(data.shape[0], data.free_elements) > _VECTOR_BLOCK:
        core.violate(line, "shape", "nc_transpose: the vector engine transposes up to 32 × 32")
    if not _store_transposed(core, line, "nc_transpose", dst, data):
        return
    core.mark_written(dst, line)
    ns = transpose_ns(
        core.spec, data.shape[0], data.free_elements, itemsize=data.dtype.bytes, engine="vector"
    )
    core.record("nc_transpose", "vector", line, ns, (data,), (dst,))


def _store_transposed(core: Core, line: int, kind: str, dst: NkiTensor, data: NkiTensor) -> bool:
    columns = data.free_elements
    limit = core.spec.partitions
    if dst.dtype is not data.dtype:
        core.violate(
            line, "dtype", f"{kind}: dst is {dst.dtype}, data {data.dtype}; both must be one type"
        )
    if prod(dst.shape[1:]) != data.shape[0] or dst.shape[0] != columns or columns > limit:
        core.violate(
            line, "shape", f"{kind}: data {data.shape} does not transpose into dst {dst.shape}"
        )
        core.skip(dst, line)
        return False
    values = core.load(data, line)
    core.put(dst, lambda: values.reshape(data.shape[0], columns).T.reshape(dst.shape))
    return True
