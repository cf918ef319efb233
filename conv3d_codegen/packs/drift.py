# SPDX-License-Identifier: Apache-2.0
"""Whether the kernels of a pack are what would be emitted now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conv3d_codegen.packs.workers import Failure, emit_all

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from conv3d_codegen.geometry import ConvGeometry
    from conv3d_codegen.packs.pack import Pack
    from conv3d_codegen.planner.options import EmitOptions


def find_drift(
    pack: Pack,
    workers: int | Executor = 1,
    progress: Callable[[int, int, str], object] = lambda done, total, name: None,
) -> tuple[str, ...]:
    """Emit every kernel again, by the options it was emitted with; return a line per difference.

    No cache is asked, so a pack without differences is one that this version made, whoever sent it.
    """
    groups: dict[EmitOptions, list[ConvGeometry]] = {}
    for entry in pack.manifest.entries:
        groups.setdefault(entry.info.options, []).append(entry.info.geometry)
    lines = []
    done = 0
    for options, geometries in groups.items():
        for geometry, outcome in emit_all(geometries, options, workers):
            key = geometry.key()
            done += 1
            progress(done, len(pack), key)
            if isinstance(outcome, Failure):
                lines.append(f"{key}: not emitted now, {outcome.code}: {outcome.message}")
            elif outcome.info.file != pack.manifest.by_key[key].info.file:
                lines.append(f"{key}: another text is emitted now")
    return tuple(sorted(lines))
