# SPDX-License-Identifier: Apache-2.0
"""Compiles a kernel's text to what the device loads."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from conv3d_codegen.cache import Artifact
from conv3d_codegen.compile.sandbox import LOG, KernelText, Limits, run_job
from conv3d_codegen.compile.toolchain import find_toolchain
from conv3d_codegen.emission import emit_stored

if TYPE_CHECKING:
    from collections.abc import Mapping

    from conv3d_codegen.cache import KernelCache, StoredKernel
    from conv3d_codegen.geometry import ConvGeometry
    from conv3d_codegen.plan.options import EmitOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """What compiling a kernel came to. `problem` is empty if it worked.

    `files` are NAME.neff, if it worked, and the compiler's log.
    """

    key: str
    compiler: str
    files: Mapping[str, bytes] = field(default_factory=dict)
    problem: str = ""
    from_cache: bool = False


def compile_kernel(kernel: StoredKernel, limits: Limits | None = None) -> Compilation:
    """Compile a kernel with the installed toolchain; no device is needed.

    Raises:
        RequestError: there is no toolchain that compiles these kernels.
    """
    compiler = find_toolchain(compiler=True).fingerprint
    info = kernel.info
    neff = f"{info.name}.neff"
    text = KernelText(info.name, kernel.source, info.geometry)
    with tempfile.TemporaryDirectory(prefix="conv3d_codegen_") as place:
        folder = Path(place)
        done = run_job("compile", text, folder, limits or Limits())
        files = {LOG: done.log.encode()}
        problem = done.problem
        if not problem and not (folder / neff).exists():
            problem = "the compiler wrote no NEFF"
        if not problem:
            files[neff] = (folder / neff).read_bytes()
    return Compilation(key=info.key, compiler=compiler, files=files, problem=problem)


def compile_cached(
    geometry: ConvGeometry,
    options: EmitOptions,
    cache: KernelCache,
    limits: Limits | None = None,
) -> Compilation:
    """Return what this version of the compiler made of a kernel, compiling it at most once.

    Raises:
        RequestError: there is no toolchain that compiles these kernels, or the cache is read-only.
    """
    compiler = find_toolchain(compiler=True).fingerprint
    kernel = cache.fetch(geometry, options, emit_stored)
    for known in cache.artifacts(geometry, options):
        if known.compiler == compiler:
            return Compilation(
                key=kernel.info.key, compiler=compiler, files=known.files, from_cache=True
            )
    made = compile_kernel(kernel, limits)
    if not made.problem:
        cache.put_artifact(kernel, Artifact(compiler, made.files))
    return made
