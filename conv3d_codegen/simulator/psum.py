# SPDX-License-Identifier: Apache-2.0
"""PSUM's rules for matmul destinations: banks, and which elements hold an open accumulation.

A matmul with `accumulate=False` opens its destination; only opened elements may be accumulated
into. Opening starts a group on whole 2 KiB banks, so that of two accumulations that share a bank
and partitions only the one opened last can go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from conv3d_codegen.simulator.cell_map import Region
from conv3d_codegen.simulator.tensors import PSUM

if TYPE_CHECKING:
    from conv3d_codegen.simulator.core import Core
    from conv3d_codegen.simulator.tensors import NkiTensor


def _banks(core: Core, dst: NkiTensor) -> tuple[int, int]:
    """First and last bank of the tensor that the destination touches."""
    region = dst.region
    last = region.offset + sum(
        stride * (count - 1) for stride, count in zip(region.strides, region.shape, strict=True)
    )
    per_bank = core.spec.psum_bank_bytes // dst.dtype.bytes
    return region.offset // per_bank, last // per_bank


def _bank_region(core: Core, dst: NkiTensor) -> Region:
    first, last = _banks(core, dst)
    region = dst.region
    return Region(region.first_partition, region.end_partition, first, (last - first + 1,), (1,))


def check_bank(core: Core, line: int, kind: str, dst: NkiTensor) -> None:
    """Check that a PE result lies in as many banks as the target's matmuls may span."""
    if dst.storage.memory is not PSUM:
        return
    first, last = _banks(core, dst)
    possible = core.spec.matmul_dst_bytes // core.spec.psum_bank_bytes
    if last - first >= possible:
        core.violate(
            line,
            "psum-bank",
            f"{kind}: dst {dst.name} spans banks {first} to {last} of its tensor,"
            f" {possible} possible",
        )


def note_opening(core: Core, dst: NkiTensor) -> None:
    """Note that a PE instruction overwrites the destination."""
    storage = dst.storage
    if storage.opened is None or storage.opened_banks is None:
        return
    core.chains += 1
    storage.opened.view(dst.region).fill(core.chains)
    storage.opened_banks.view(_bank_region(core, dst)).fill(core.chains)


def note_accumulation(core: Core, line: int, dst: NkiTensor) -> None:
    """Note that a matmul adds: its elements must be open, and opened last in their bank."""
    storage = dst.storage
    if storage.opened is None or storage.opened_banks is None:
        return
    serials = storage.opened.view(dst.region)
    oldest = serials.min()
    if oldest == 0:
        core.violate(
            line,
            "accumulate-before-open",
            f"nc_matmul accumulates into elements of {dst.name} that no matmul overwrote before",
        )
    elif oldest != storage.opened_banks.view(_bank_region(core, dst)).max():
        core.violate(
            line,
            "psum-chain",
            f"nc_matmul accumulates into {dst.name} after another accumulation was opened in the"
            " same bank",
        )
