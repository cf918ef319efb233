# SPDX-License-Identifier: Apache-2.0
"""Where the kernel of a geometry comes from: this machine's cache, or the emitter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conv3d_codegen.cache import KernelCache
from conv3d_codegen.emission import emit_stored
from conv3d_codegen.plan.options import EmitOptions

if TYPE_CHECKING:
    from conv3d_codegen.geometry import ConvGeometry


def find_source(geometry: ConvGeometry) -> str:
    """Return the text of the geometry's kernel."""
    return KernelCache().fetch(geometry, EmitOptions(), emit_stored).source
