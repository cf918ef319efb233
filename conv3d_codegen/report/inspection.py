# SPDX-License-Identifier: Apache-2.0
"""Everything a reviewer wants to know about a kernel file, from its text alone."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from conv3d_codegen.api import emit
from conv3d_codegen.report.outline import outline
from conv3d_codegen.targets import target
from conv3d_codegen.verify import geometry_of, verify_source

if TYPE_CHECKING:
    from conv3d_codegen.api import Kernel
    from conv3d_codegen.geometry import ConvGeometry
    from conv3d_codegen.report.outline import Outline
    from conv3d_codegen.verify import VerifyReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """A kernel as text, as run and checked, beside what is emitted for its geometry today."""

    filename: str
    source: str
    geometry: ConvGeometry
    outline: Outline
    report: VerifyReport
    emitted: Kernel

    @property
    def is_as_emitted(self) -> bool:
        """Whether the text is what its geometry gives today, with default options."""
        return self.source == self.emitted.source

    @property
    def sha256(self) -> str:
        """Identity of the text."""
        return hashlib.sha256(self.source.encode()).hexdigest()

    @property
    def facts(self) -> list[tuple[str, str]]:
        """The numbers to read first, with what they are measured against."""
        run, spec = self.report.run, target(self.geometry.target)
        counts, makespan = run.counts, run.timeline.makespan_us
        text = "as emitted today" if self.is_as_emitted else "not what is emitted for this key"
        return [
            ("text", text),
            ("instructions", f"{counts.text:,} written, {counts.executed:,} executed"),
            (
                "makespan",
                f"{makespan:.1f} us (modelled), floor {self.emitted.plan.floor_us:.1f} us",
            ),
            ("PE use", f"{self.report.pe_utilisation:.1%} of peak by useful MACs"),
            (
                "SBUF peak",
                f"{run.sbuf_peak_bytes:,} of {spec.sbuf_bytes_per_partition:,} bytes/partition",
            ),
            ("PSUM peak", f"{run.psum_peak_banks} of {spec.psum_banks} banks"),
            ("DMA in", f"{counts.dma_in_bytes:,} bytes"),
            ("DMA out", f"{counts.dma_out_bytes:,} bytes"),
            ("short runs", f"{counts.short_run_share:.1%} of DMA bytes in runs under 512 bytes"),
        ]

    def as_json(self) -> dict[str, Any]:
        """Return everything but the source as plain values."""
        run = self.report.run
        return {
            "file": self.filename,
            "sha256": self.sha256,
            "key": self.geometry.key(),
            "as_emitted": self.is_as_emitted,
            "docstring": self.outline.docstring,
            "plan": self.emitted.plan.to_dict(),
            "sections": [asdict(section) for section in self.outline.sections],
            "instructions": self.outline.instructions,
            "sbuf_peak_bytes": run.sbuf_peak_bytes,
            "psum_peak_banks": run.psum_peak_banks,
            "busy_us": dict(run.timeline.busy_us),
            "verify": self.report.as_json(),
        }


def inspect_source(
    source: str, geometry: ConvGeometry | None = None, *, filename: str = "<kernel>"
) -> Inspection:
    """Read, run and check the text of a kernel, also one edited by hand.

    Raises:
        RequestError: the text is no kernel file, or names no geometry and none is given.
    """
    contents = outline(source, filename)
    geometry = geometry or geometry_of(source, filename)
    return Inspection(
        filename=filename,
        source=source,
        geometry=geometry,
        outline=contents,
        report=verify_source(source, geometry, filename=filename),
        emitted=emit(geometry),
    )
