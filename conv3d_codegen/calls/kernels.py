# SPDX-License-Identifier: Apache-2.0
"""Where the kernel of a geometry comes from: packs, then this machine's cache, then the emitter."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from conv3d_codegen.cache import KernelCache
from conv3d_codegen.emission import emit_stored
from conv3d_codegen.packs import installed_packs
from conv3d_codegen.planner.options import EmitOptions

if TYPE_CHECKING:
    from conv3d_codegen.geometry import ConvGeometry
    from conv3d_codegen.packs import Pack

_used: list[Pack] = []


def add_pack(pack: Pack) -> None:
    """Look into this pack first from now on."""
    _used.insert(0, pack)


def find_source(geometry: ConvGeometry) -> str:
    """Return the text of the geometry's kernel.

    Raises:
        RequestError: a pack lists the kernel, and it is damaged there.
    """
    for pack in (*_used, *_installed()):
        kernel = pack.find(geometry)
        if kernel is not None:
            return kernel.source
    return KernelCache().fetch(geometry, EmitOptions(), emit_stored).source


@cache
def _installed() -> tuple[Pack, ...]:
    return installed_packs()
