# SPDX-License-Identifier: Apache-2.0
"""DMA: dma_copy, dma_transpose, dma_compute."""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

import numpy as np

from conv3d_codegen.simulator.indexing import merged_axes
from conv3d_codegen.simulator.operands import are_tensors, member
from conv3d_codegen.simulator.tensors import PSUM, NkiTensor
from conv3d_codegen.targets import cost

if TYPE_CHECKING:
    from conv3d_codegen.simulator.core import Core
    from conv3d_codegen.simulator.operands import Args

_MAX_AXES = 5
# Axis orders that dma_transpose knows, by rank.
_TRANSPOSE_AXES = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}


def dma_copy(core: Core, line: int, args: Args) -> None:
    """Dst = src between HBM and SBUF."""
    dst, src = args["dst"], args["src"]
    if not are_tensors(core, line, "dma_copy", dst=dst, src=src):
        core.skip(dst, line)
        return
    _check_modes(core, line, args, dst, src)
    if not _check_operands(core, line, "dma_copy", dst, src):
        core.skip(dst, line)
        return
    values = core.load(src, line)
    core.store(dst, lambda: values, line)
    _record_copy(core, line, "dma_copy", dst, (src,))


def dma_transpose(core: Core, line: int, args: Args) -> None:
    """Dst = src with its axes permuted in one of the orders that the engines know."""
    dst, src = args["dst"], args["src"]
    if not are_tensors(core, line, "dma_transpose", dst=dst, src=src):
        core.skip(dst, line)
        return
    for operand in (dst, src):
        _check_memory(core, line, "dma_transpose", operand)
    known = _TRANSPOSE_AXES.get(src.ndim)
    axes = tuple(args.get("axes") or known or ())
    if known is None or axes != known:
        core.violate(line, "shape", f"dma_transpose: axes {axes} for rank {src.ndim}")
    if dst.dtype is not src.dtype or dst.dtype.bytes not in {2, 4}:
        core.violate(line, "dtype", f"dma_transpose: {src.dtype} to {dst.dtype}")
    if not dst.storage.memory.is_on_chip:
        core.violate(line, "dma-memory", "dma_transpose: dst must lie in SBUF")
    if axes != known or dst.shape != tuple(src.shape[axis] for axis in axes):
        core.violate(line, "shape", f"dma_transpose: {src.shape} by {axes} is not {dst.shape}")
        core.skip(dst, line)
        return
    values = core.load(src, line)
    core.store(dst, lambda: values.transpose(axes), line)
    from_hbm = not src.storage.memory.is_on_chip
    size = src.size * src.dtype.bytes
    ns = cost.dma_transpose_busy_ns(core.spec, size, from_hbm=from_hbm)
    _count_bytes(core, dst, (src,), size)
    core.record("dma_transpose", "dma", line, ns, (src,), (dst,), shared_ns=ns)


def dma_compute(core: Core, line: int, args: Args) -> None:
    """Dst = sum of the sources, added in fp32; dst may be one of them."""
    dst, sources = args["dst"], args["srcs"]
    named = {f"srcs[{number}]": source for number, source in enumerate(sources)}
    if not are_tensors(core, line, "dma_compute", dst=dst, **named):
        core.skip(dst, line)
        return
    if getattr(args["reduce_op"], "name", "") != "add":
        core.violate(line, "unsupported", f"dma_compute with reduce_op={args['reduce_op']!r}")
    if any(scale != 1.0 for scale in args.get("scales") or ()) or len(sources) > 16:
        core.violate(line, "operand-type", "dma_compute adds up to 16 sources with scales of 1.0")
    fits = [_check_operands(core, line, "dma_compute", dst, source) for source in sources]
    if not all(fits):
        core.skip(dst, line)
        return
    values = [core.load(source, line) for source in sources]
    core.put(dst, lambda: np.asarray(sum(cells.astype(np.float32) for cells in values)))
    updates = any(s.storage is dst.storage and s.region == dst.region for s in sources)
    core.mark_written(dst, line, updates=updates)
    _record_copy(core, line, "dma_compute", dst, tuple(sources))


def _check_modes(core: Core, line: int, args: Args, dst: NkiTensor, src: NkiTensor) -> None:
    mode = member(core, line, args.get("dge_mode"), "dge_mode", "unknown")
    if mode == "hwdge" and dst.dtype is not src.dtype:
        core.violate(line, "dtype", f"dma_copy: hwdge cannot convert {src.dtype} to {dst.dtype}")
    engine = member(core, line, args.get("engine"), "engine", "unknown")
    if engine != "unknown" and (engine not in {"sync", "scalar"} or mode != "hwdge"):
        core.violate(line, "engine", "dma_copy: engine= is sync or scalar, with dge_mode.hwdge")


def _check_memory(core: Core, line: int, kind: str, tensor: NkiTensor) -> None:
    if tensor.storage.memory is PSUM:
        core.violate(line, "dma-memory", f"{kind}: {tensor.name} lies in PSUM")


def _check_operands(core: Core, line: int, kind: str, dst: NkiTensor, src: NkiTensor) -> bool:
    for operand in (dst, src):
        _check_memory(core, line, kind, operand)
        if len(operand.shape) > _MAX_AXES:
            axes = len(merged_axes(operand.shape, operand.strides))
            if axes > _MAX_AXES:
                core.violate(
                    line, "access-rank", f"{kind}: {operand.name} has {axes} dimensions, 5 possible"
                )
    if dst.shape != src.shape:
        core.violate(line, "shape", f"{kind}: {dst.name} {dst.shape} from {src.name} {src.shape}")
        return False
    return True


def contiguous_run(tensor: NkiTensor) -> int:
    """Elements that follow each other at the end of the view, within one partition on chip."""
    run = 1
    first = 1 if tensor.storage.memory.is_on_chip else 0
    for extent, stride in zip(
        reversed(tensor.shape[first:]), reversed(tensor.strides[first:]), strict=True
    ):
        if extent != 1:
            if stride != run:
                break
            run *= extent
    return run


def _record_copy(
    core: Core, line: int, kind: str, dst: NkiTensor, sources: tuple[NkiTensor, ...]
) -> None:
    """Price and count transfers from each source to the destination."""
    ns = shared = 0.0
    for src in sources:
        run = gcd(contiguous_run(dst), contiguous_run(src))
        itemsize = max(dst.dtype.bytes, src.dtype.bytes)
        descriptors = dst.size // run
        partitions = max(
            [t.shape[0] for t in (dst, src) if t.storage.memory.is_on_chip],
            default=core.spec.partitions,
        )
        ns += cost.dma_ns(core.spec, run * itemsize, descriptors, partitions)
        shared += cost.dma_busy_ns(core.spec, run * itemsize, descriptors)
        core.counts.add_run(run * itemsize, dst.size * itemsize)
    _count_bytes(core, dst, sources, dst.size * dst.dtype.bytes)
    core.record(kind, "dma", line, ns, sources, (dst,), shared_ns=shared)


def _count_bytes(core: Core, dst: NkiTensor, sources: tuple[NkiTensor, ...], written: int) -> None:
    counts = core.counts
    from_hbm = [s for s in sources if not s.storage.memory.is_on_chip]
    counts.dma_in_bytes += sum(s.size * s.dtype.bytes for s in from_hbm)
    if not dst.storage.memory.is_on_chip:
        counts.dma_out_bytes += written
    elif not from_hbm:
        counts.dma_onchip_bytes += written
