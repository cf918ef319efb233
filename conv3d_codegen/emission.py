# SPDX-License-Identifier: Apache-2.0
"""Emission in the form that caches and packs keep: a kernel as plain values.

Emitting takes the planner and sympy, seconds to import, which those who find their kernel in a
store should not pay for. So they are imported on the first call here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from conv3d_codegen import __version__
from conv3d_codegen.cache import FileInfo, KernelInfo, StoredKernel, recipe

if TYPE_CHECKING:
    from conv3d_codegen.api import Kernel
    from conv3d_codegen.geometry import ConvGeometry
    from conv3d_codegen.planner.options import EmitOptions

GENERATOR = f"conv3d_codegen {__version__}"


def emit_stored(geometry: ConvGeometry, options: EmitOptions) -> StoredKernel:
    """Emit a kernel; deterministic like `conv3d_codegen.api.emit`."""
    kernel: Kernel = import_module("conv3d_codegen.api").emit(geometry, options)
    info = KernelInfo(
        key=kernel.key,
        options=options,
        recipe=recipe(geometry, options),
        generator=GENERATOR,
        file=FileInfo.of(f"{kernel.name}.py", kernel.source.encode()),
        summary=summarize(kernel),
    )
    return StoredKernel(info, kernel.source)


def summarize(kernel: Kernel) -> dict[str, Any]:
    """Return the numbers of a plan that tables show and comparisons start with."""
    plan = kernel.plan
    counts = plan.counts
    header = import_module("conv3d_codegen.emitter.header").Header(plan)
    return {
        "plan": header.plan_digest,
        "instructions": counts.instructions,
        "macs": counts.macs,
        "dma_bytes": counts.dma_bytes_in + counts.dma_bytes_out,
        "sbuf_peak_bytes": counts.sbuf_peak_bytes,
        "psum_peak_banks": counts.psum_peak_banks,
        "bound": plan.times.bound,
        "busy_us": round(plan.times.busiest_ns / 1000, 3),
        "floor_us": round(plan.floor_us, 3),
    }
