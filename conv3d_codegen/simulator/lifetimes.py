# SPDX-License-Identifier: Apache-2.0
"""When on-chip tensors live: from their first write to their last use, in program order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from conv3d_codegen.simulator.tensors import PSUM

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conv3d_codegen.simulator.rules import ViolationLog
    from conv3d_codegen.simulator.tensors import Storage
    from conv3d_codegen.simulator.trace import Step
    from conv3d_codegen.targets import TargetSpec


@dataclass(slots=True)
class Lifetime:
    """Positions in the trace, both included."""

    storage: Storage
    first: int
    last: int


def lifetimes(trace: Sequence[Step]) -> dict[int, Lifetime]:
    """Find the lifetime of every tensor the trace touches, by the storage's index."""
    found: dict[int, Lifetime] = {}
    for position, step in enumerate(trace):
        for storage, _ in (*step.writes, *step.reads):
            known = found.get(storage.index)
            if known is None:
                found[storage.index] = Lifetime(storage, position, position)
            else:
                known.last = position
    return found


def sbuf_bytes(storage: Storage, spec: TargetSpec) -> int:
    """Bytes per partition that an SBUF tensor occupies."""
    unit = spec.onchip_alignment
    return -(-storage.bytes_per_partition // unit) * unit


def psum_banks(storage: Storage, spec: TargetSpec) -> int:
    """PSUM banks that a tensor occupies: whole ones."""
    return -(-storage.bytes_per_partition // spec.psum_bank_bytes)


@dataclass(frozen=True, slots=True)
class MemoryPeaks:
    """The most that was live at once on one core."""

    sbuf_bytes: int
    psum_banks: int


def memory_peaks(
    trace: Sequence[Step], living: dict[int, Lifetime], spec: TargetSpec, log: ViolationLog
) -> MemoryPeaks:
    """Find the peaks of SBUF and PSUM; where one does not fit, report the line of the peak."""
    changes = {"sbuf": [0] * (len(trace) + 1), "psum": [0] * (len(trace) + 1)}
    for lifetime in living.values():
        storage = lifetime.storage
        if not storage.memory.is_on_chip:
            continue
        in_psum = storage.memory is PSUM
        amount = psum_banks(storage, spec) if in_psum else sbuf_bytes(storage, spec)
        changes[storage.memory.name][lifetime.first] += amount
        changes[storage.memory.name][lifetime.last + 1] -= amount
    limits = {"sbuf": spec.sbuf_bytes_per_partition, "psum": spec.psum_banks}
    peaks = {"sbuf": 0, "psum": 0}
    for memory, deltas in changes.items():
        level = at = 0
        for position, delta in enumerate(deltas):
            level += delta
            if level > peaks[memory]:
                peaks[memory], at = level, position
        if peaks[memory] > limits[memory]:
            unit = "banks" if memory == "psum" else "bytes per partition"
            log.add(
                trace[at].line,
                f"{memory}-capacity",
                f"{peaks[memory]} {unit} are live here, {limits[memory]} exist",
            )
    return MemoryPeaks(peaks["sbuf"], peaks["psum"])
