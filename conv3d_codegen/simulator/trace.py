# SPDX-License-Identifier: Apache-2.0
"""What was executed: one `Step` per instruction, and the totals."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from conv3d_codegen.simulator.cell_map import Region
    from conv3d_codegen.simulator.tensors import Storage

# Upper ends of the run-length buckets, in bytes; the last bucket is open.
RUN_BUCKETS = (64, 256, 512, 2048)
SHORT_RUN_BYTES = 512
# Kinds of steps that are no instructions of an engine: all engines of a core meet between
# iterations of a hardware loop, and the cores of a run meet at a barrier.
BARRIER = "loop barrier"
CORE_BARRIER = "core_barrier"


class Operand(NamedTuple):
    """A tensor access of an instruction."""

    storage: Storage
    region: Region


class Step(NamedTuple):
    """One executed instruction.

    `ns` is how long the engine works on it. For transfers `shared_ns` is the part of all DMA
    engines' time it takes. `rows` are the PE's row groups (of 32) that a matmul uses.
    """

    kind: str
    engine: str
    line: int
    ns: float
    reads: tuple[Operand, ...]
    writes: tuple[Operand, ...]
    shared_ns: float = 0.0
    rows: tuple[int, int] = (0, 4)


@dataclass(slots=True)
class Counts:
    """Totals of a run, over all cores.

    `executed` counts every execution, `text` the body of a hardware loop once. `matmul_columns` are
    those that matmuls moved, `macs` what the rows and columns in use did with them.
    """

    executed: int = 0
    text: int = 0
    by_kind: Counter[str] = field(default_factory=Counter)
    by_engine: Counter[str] = field(default_factory=Counter)
    macs: int = 0
    matmul_columns: int = 0
    dma_in_bytes: int = 0
    dma_out_bytes: int = 0
    dma_onchip_bytes: int = 0
    dma_descriptors: int = 0
    # Bytes by upper end of the run-length bucket; 0 stands for the open last bucket.
    dma_bytes_by_run: Counter[int] = field(default_factory=Counter)

    @property
    def dma_bytes(self) -> int:
        """Bytes of all transfers."""
        return self.dma_in_bytes + self.dma_out_bytes + self.dma_onchip_bytes

    @property
    def short_run_share(self) -> float:
        """Share of the bytes that move in runs shorter than 512 bytes."""
        short = sum(
            size for end, size in self.dma_bytes_by_run.items() if 0 < end <= SHORT_RUN_BYTES
        )
        total = self.dma_bytes_by_run.total()
        return short / total if total else 0.0

    def add_run(self, run_bytes: int, total_bytes: int) -> None:
        """Count a transfer's bytes under their run length."""
        bucket = next((end for end in RUN_BUCKETS if run_bytes < end), 0)
        self.dma_bytes_by_run[bucket] += total_bytes
        self.dma_descriptors += total_bytes // run_bytes

    def add(self, other: Counts) -> None:
        """Add another core's totals."""
        for name in (
            "executed",
            "text",
            "macs",
            "matmul_columns",
            "dma_in_bytes",
            "dma_out_bytes",
            "dma_onchip_bytes",
            "dma_descriptors",
        ):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.by_kind.update(other.by_kind)
        self.by_engine.update(other.by_engine)
        self.dma_bytes_by_run.update(other.dma_bytes_by_run)
