# SPDX-License-Identifier: Apache-2.0
"""Building a pack from layers: kernels that are in the cache are taken, the rest is emitted."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conv3d_codegen.cache import KernelCache, recipe
from conv3d_codegen.emission import emit_stored
from conv3d_codegen.errors import MalformedPack
from conv3d_codegen.packs.manifest import Manifest
from conv3d_codegen.packs.pack import load_pack
from conv3d_codegen.packs.workers import Failure, emit_all
from conv3d_codegen.packs.write import pack_entry, pack_member, write_pack
from conv3d_codegen.planner.options import EmitOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from concurrent.futures import Executor
    from pathlib import Path

    from conv3d_codegen.geometry import ConvGeometry
    from conv3d_codegen.layers import Layer
    from conv3d_codegen.packs.pack import Pack, PackMember

    Progress = Callable[[int, int, str], object]
    Names = Mapping[ConvGeometry, tuple[str, ...]]  # the layers of each geometry

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LayerFailure:
    """Layers without a kernel, and why."""

    layers: tuple[str, ...]
    key: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What a build did: kernels emitted now, kernels found in the cache, layers that failed."""

    pack: Pack
    emitted: int
    found: int
    failures: tuple[LayerFailure, ...]


def build_pack(
    layers: Iterable[Layer],
    path: Path,
    *,
    options: EmitOptions | None = None,
    cache: KernelCache | None = None,
    workers: int | Executor = 1,
    progress: Progress = lambda done, total, name: None,
) -> BuildReport:
    """Write a pack with a kernel for every layer; layers of one geometry share theirs.

    Every kernel goes to the cache as soon as it is there, so a build that was interrupted goes on
    where it was. A layer that fails is reported, and missing from the pack.

    Args:
        layers: what the pack is for.
        path: the pack's file; what an earlier pack there holds is not made again.
        options: of emission.
        cache: where kernels are found and kept; the user's by default.
        workers: a number of processes, or an executor; see `emit_all`.
        progress: called with kernels done, kernels in all, and the key that was done.

    Raises:
        CacheUnwritable: the cache cannot be written to.
        OSError: the pack cannot be written.
    """
    options, cache = options or EmitOptions(), cache or KernelCache()
    names = _names_by_geometry(layers)
    earlier = _earlier_pack(path)
    if earlier is not None:
        _take_over(earlier, names, options, cache)
    missing = [geometry for geometry in names if cache.peek(geometry, options) is None]
    found = len(names) - len(missing)
    progress(found, len(names), "")
    failures: list[LayerFailure] = []
    for done, (geometry, outcome) in enumerate(emit_all(missing, options, workers), found + 1):
        if isinstance(outcome, Failure):
            failed = names.pop(geometry)
            failures.append(LayerFailure(failed, geometry.key(), outcome.code, outcome.message))
        else:
            cache.put(outcome)
        progress(done, found + len(missing), geometry.key())
    failures.sort(key=lambda failure: failure.key)
    if earlier is not None and _is_up_to_date(earlier, names, options, cache):
        pack = earlier
    else:
        pack = write_pack(path, _members(names, options, cache))
    return BuildReport(pack, len(missing) - len(failures), found, tuple(failures))


def _names_by_geometry(layers: Iterable[Layer]) -> dict[ConvGeometry, tuple[str, ...]]:
    names: dict[ConvGeometry, dict[str, None]] = {}
    for layer in layers:
        names.setdefault(layer.geometry, {})[layer.name] = None
    return {geometry: tuple(found) for geometry, found in names.items()}


def _earlier_pack(path: Path) -> Pack | None:
    """Load the pack that is to be replaced, if there is one and it is whole."""
    if not path.exists():
        return None
    try:
        pack = load_pack(path)
        pack.check()
    except MalformedPack as error:
        log.warning("%s; it is built anew", error)
        return None
    return pack


def _take_over(pack: Pack, names: Names, options: EmitOptions, cache: KernelCache) -> None:
    """Put into the cache what a pack holds and would be made again just so."""
    for geometry in names:
        entry = pack.manifest.by_key.get(geometry.key())
        if entry is None or entry.info.recipe != recipe(geometry, options):
            continue
        if entry.compiled or cache.peek(geometry, options) is None:
            _take_over_member(pack.member(entry.info.key), cache)


def _take_over_member(member: PackMember, cache: KernelCache) -> None:
    info = member.entry.info
    cache.put(member.kernel)
    known = {artifact.compiler for artifact in cache.artifacts(info.geometry, info.options)}
    for artifact in member.artifacts:
        if artifact.compiler not in known:
            cache.put_artifact(member.kernel, artifact)


def _is_up_to_date(pack: Pack, names: Names, options: EmitOptions, cache: KernelCache) -> bool:
    """Whether a pack is what would be written; it has been checked as a whole."""
    entries = []
    for geometry, layers in names.items():
        info = cache.peek(geometry, options)
        if info is None:
            return False
        entries.append(pack_entry(info, layers, cache.artifacts(geometry, options)))
    return pack.manifest == Manifest.of(entries)


def _members(names: Names, options: EmitOptions, cache: KernelCache) -> Iterator[PackMember]:
    """Read kernels and what was compiled from them, by key; what vanished is made again."""
    for geometry in sorted(names, key=lambda geometry: geometry.key()):
        kernel = cache.fetch(geometry, options, emit_stored)
        yield pack_member(kernel, names[geometry], cache.artifacts(geometry, options))
