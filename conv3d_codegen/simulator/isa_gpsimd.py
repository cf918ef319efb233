# SPDX-License-Identifier: Apache-2.0
"""GpSimd: iota and affine_select."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from conv3d_codegen.simulator.operands import SBUF_ONLY, are_tensors, check_on_chip
from conv3d_codegen.simulator.operators import BINARY, Operator
from conv3d_codegen.targets.cost import select_ns

if TYPE_CHECKING:
    from conv3d_codegen.simulator.core import Core
    from conv3d_codegen.simulator.element_types import Cells
    from conv3d_codegen.simulator.operands import Args
    from conv3d_codegen.simulator.tensors import NkiTensor

_MAX_PAIRS = 4
_COMPARISONS = frozenset({"equal", "not_equal", "greater", "greater_equal", "less", "less_equal"})


def iota(core: Core, line: int, args: Args) -> None:
    """Dst = Compute offset + partition * channel_multiplier + the pattern's affine value."""
    dst = args["dst"]
    if not are_tensors(core, line, "iota", dst=dst):
        return
    check_on_chip(core, line, "iota dst", dst, SBUF_ONLY, _MAX_PAIRS)
    values = _affine(core, line, "iota", args, dst)
    if values is None:
        core.skip(dst, line)
        return
    core.store(dst, lambda: values, line)
    core.record("iota", "gpsimd", line, select_ns(core.spec, dst.free_elements), (), (dst,))


def affine_select(core: Core, line: int, args: Args) -> None:
    """Dst = on_true_tile where cmp_op(affine, 0) holds, on_false_value elsewhere."""
    dst, tile, value = args["dst"], args["on_true_tile"], args["on_false_value"]
    if not are_tensors(core, line, "affine_select", dst=dst, on_true_tile=tile):
        core.skip(dst, line)
        return
    for label, operand in (("dst", dst), ("on_true_tile", tile)):
        check_on_chip(core, line, f"affine_select {label}", operand, SBUF_ONLY, _MAX_PAIRS)
    operator = args.get("cmp_op")
    name = operator.name if isinstance(operator, Operator) else "equal"
    if name not in _COMPARISONS or not isinstance(value, (int, float)):
        core.violate(line, "operand-type", "affine_select: a comparison and a number are needed")
        core.skip(dst, line)
        return
    affine = _affine(core, line, "affine_select", args, dst)
    if affine is None or tile.shape != dst.shape:
        core.violate(line, "shape", f"affine_select: {tile.shape} into {dst.shape}")
        core.skip(dst, line)
        return
    values = core.load(tile, line)
    core.store(dst, lambda: np.where(BINARY[name](affine, 0) != 0, values, np.float32(value)), line)
    ns = select_ns(core.spec, dst.free_elements)
    core.record("affine_select", "gpsimd", line, ns, (tile,), (dst,))


def _affine(core: Core, line: int, kind: str, args: Args, dst: NkiTensor) -> Cells | None:
    """Compute offset + partition * channel_multiplier + pattern, in the shape of dst."""
    pattern: list[Any] = [tuple(pair) for pair in args["pattern"]]
    counts = tuple(count for _, count in pattern)
    if len(pattern) > _MAX_PAIRS:
        core.violate(line, "access-rank", f"{kind}: {len(pattern)} pairs, {_MAX_PAIRS} possible")
    if prod(counts) != dst.free_elements:
        core.violate(line, "shape", f"{kind}: pattern {pattern} for dst {dst.shape}")
        return None
    values = np.full(counts, args.get("offset", 0), np.int64)
    for axis, (step, count) in enumerate(pattern):
        ramp = step * np.arange(count)
        values += ramp.reshape((-1,) + (1,) * (len(counts) - axis - 1))
    partitions = args.get("channel_multiplier", 0) * np.arange(dst.shape[0])
    total: Cells = partitions[:, None] + values.reshape(1, -1)
    return total.reshape(dst.shape)
