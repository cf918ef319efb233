# SPDX-License-Identifier: Apache-2.0
"""Compiles kernels to what the device loads, each at most once per version of the compiler."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from conv3d_codegen.cache import Artifact, recipe
from conv3d_codegen.compile.sandbox import LOG, KernelText, Limits, run_job
from conv3d_codegen.compile.toolchain import find_toolchain
from conv3d_codegen.packs.write import pack_member, write_pack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from conv3d_codegen.cache import KernelCache, StoredKernel
    from conv3d_codegen.packs import Pack
    from conv3d_codegen.packs.pack import PackMember

    Progress = Callable[[int, int, str], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """What compiling a kernel came to. `problem` is empty if it worked.

    `files` are NAME.neff, if it worked, and the compiler's log.
    """

    key: str
    name: str
    compiler: str
    files: Mapping[str, bytes] = field(default_factory=dict)
    problem: str = ""
    from_cache: bool = False

    @property
    def artifact(self) -> Artifact:
        """What caches and packs keep of it."""
        return Artifact(self.compiler, self.files)


def compile_kernel(
    kernel: StoredKernel, cache: KernelCache, limits: Limits | None = None
) -> Compilation:
    """Compile a kernel, or find what this version of the compiler made of it before.

    Success is kept in the cache. No device is needed.

    Raises:
        RequestError: there is no toolchain that compiles these kernels, or the cache is read-only.
    """
    compiler = find_toolchain(compiler=True).fingerprint
    info = kernel.info
    # The cache's entry is of what this installation emits: a kernel of a pack may be another.
    is_cachable = info.recipe == recipe(info.geometry, info.options)
    if is_cachable:
        for known in cache.artifacts(info.geometry, info.options):
            if known.compiler == compiler:
                return Compilation(
                    key=info.key,
                    name=info.name,
                    compiler=compiler,
                    files=known.files,
                    from_cache=True,
                )
    made = _compile(kernel, compiler, limits or Limits())
    if is_cachable and not made.problem:
        cache.put_artifact(kernel, made.artifact)
    return made


def compile_pack(
    pack: Pack,
    cache: KernelCache,
    limits: Limits | None = None,
    progress: Progress = lambda done, total, name: None,
) -> tuple[Compilation, ...]:
    """Compile the kernels of a pack and put the results into it, in the place of its file.

    A kernel that fails is reported and stays in the pack as it was.

    Raises:
        RequestError: there is no toolchain that compiles these kernels, the pack is damaged, or
            the cache is read-only.
    """
    compiler = find_toolchain(compiler=True).fingerprint
    wanted = [
        entry.info.key
        for entry in pack.manifest.entries
        if compiler not in {compiled.compiler for compiled in entry.compiled}
    ]
    made = []
    for done, key in enumerate(wanted):
        progress(done, len(wanted), key)
        made.append(compile_kernel(pack.member(key).kernel, cache, limits))
    progress(len(wanted), len(wanted), "")
    artifacts = {one.key: one.artifact for one in made if not one.problem}
    if artifacts:
        write_pack(pack.path, _with_artifacts(pack, artifacts))
    return tuple(made)


def _with_artifacts(pack: Pack, artifacts: Mapping[str, Artifact]) -> Iterator[PackMember]:
    for member in pack.members():
        added = artifacts.get(member.entry.info.key)
        held = member.artifacts if added is None else (*member.artifacts, added)
        yield pack_member(member.kernel, member.entry.layers, held)


def _compile(kernel: StoredKernel, compiler: str, limits: Limits) -> Compilation:
    info = kernel.info
    text = KernelText(info.name, kernel.source, info.geometry)
    with tempfile.TemporaryDirectory(prefix="conv3d_codegen_") as place:
        done = run_job("compile", text, Path(place), limits)
        neff = Path(place) / f"{info.name}.neff"
        files = {LOG: done.log.encode()}
        problem = done.problem
        if not problem and not neff.exists():
            problem = "the compiler wrote no NEFF"
        if not problem:
            files[neff.name] = neff.read_bytes()
    return Compilation(
        key=info.key, name=info.name, compiler=compiler, files=files, problem=problem
    )
