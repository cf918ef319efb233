# SPDX-License-Identifier: Apache-2.0
"""Two physical cores of one logical core: core_barrier and sendrecv."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conv3d_codegen.simulator.exchange import Meeting
from conv3d_codegen.simulator.operands import SBUF_ONLY, are_tensors, check_on_chip, member
from conv3d_codegen.simulator.tensors import SHARED_HBM
from conv3d_codegen.simulator.trace import CORE_BARRIER
from conv3d_codegen.targets.cost import dma_busy_ns

if TYPE_CHECKING:
    from conv3d_codegen.simulator.core import Core
    from conv3d_codegen.simulator.operands import Args
    from conv3d_codegen.simulator.tensors import NkiTensor

_ENGINES = ("gpsimd", "tensor", "vector", "scalar", "sync")
_RANKS = (0, 1)
# Bytes per partition that the GpSimd variant moves, by element size (sendrecv docstring).
_GPSIMD_LIMIT = {4: 1024, 2: 512, 1: 256}
_MAX_AXES = 4


def core_barrier(core: Core, line: int, args: Args) -> None:
    """Wait until both cores are here; what one wrote to shared HBM is then seen by the other."""
    data = args["data"]
    if not are_tensors(core, line, "core_barrier", data=data):
        return
    if data.storage.memory is not SHARED_HBM or tuple(args["cores"]) != _RANKS:
        core.violate(line, "core-exchange", "core_barrier: data in shared_hbm, cores=(0, 1)")
    engine = member(core, line, args.get("engine"), "engine", "gpsimd")
    if engine not in _ENGINES:
        core.violate(line, "engine", f"core_barrier cannot block {engine}")
    core.record(CORE_BARRIER, "gpsimd", line, 0.0, (), ())
    core.exchange.meet(Meeting(core, line, "core_barrier"))


def sendrecv(core: Core, line: int, args: Args) -> None:
    """Exchange SBUF tiles with the other core."""
    src, dst = args["src"], args["dst"]
    if not are_tensors(core, line, "sendrecv", src=src, dst=dst):
        core.skip(dst, line)
        return
    for label, operand in (("src", src), ("dst", dst)):
        check_on_chip(core, line, f"sendrecv {label}", operand, SBUF_ONLY, _MAX_AXES)
    if src.shape != dst.shape:
        core.violate(line, "shape", f"sendrecv: {src.shape} into {dst.shape}")
        core.skip(dst, line)
        return
    if src.dtype is not dst.dtype:
        core.violate(line, "dtype", f"sendrecv: {src.dtype} into {dst.dtype}")
    peer = 1 - core.rank
    if (args["send_to_rank"], args["recv_from_rank"]) != (peer, peer):
        core.violate(line, "core-exchange", "sendrecv: both ranks must be the other core's")
    _check_gpsimd(core, line, args, src)
    core.mark_meeting(line)
    core.exchange.meet(Meeting(core, line, f"sendrecv {args['pipe_id']}", sent=src, received=dst))
    run = src.free_elements * src.dtype.bytes
    ns = dma_busy_ns(core.spec, run, src.shape[0])
    core.counts.dma_onchip_bytes += src.size * src.dtype.bytes
    core.counts.add_run(run, src.size * src.dtype.bytes)
    core.record("sendrecv", "dma", line, ns, (src,), (dst,), shared_ns=ns)


def _check_gpsimd(core: Core, line: int, args: Args, src: NkiTensor) -> None:
    engine = member(core, line, args.get("dma_engine"), "dma_engine", "dma")
    size = src.free_elements * src.dtype.bytes
    limit = _GPSIMD_LIMIT[src.dtype.bytes]
    if engine == "gpsimd_dma" and size > limit:
        core.violate(line, "shape", f"sendrecv by gpsimd_dma: {size} bytes, at most {limit}")
