# SPDX-License-Identifier: Apache-2.0
"""Sixteen processes that read and write the same kernels; run by test_processes.py.

A program of its own, because only a process without threads may fork safely.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from conv3d_codegen.cache import KernelCache, StoredKernel
from stored_kernels import OPTIONS, geometry, stored

if TYPE_CHECKING:
    from conv3d_codegen.geometry import ConvGeometry
    from conv3d_codegen.planner.options import EmitOptions

PROCESSES = 16
KEYS = 8
ROUNDS = 60


def hammer(cache: KernelCache, emitted: Path, seed: int) -> None:
    """Fetch kernels in random order and check each; log what had to be emitted."""

    def emit(problem: ConvGeometry, options: EmitOptions) -> StoredKernel:
        with emitted.open("a") as stream:
            stream.write(f"{problem.batch}\n")
        return stored(problem, options)

    generator = random.Random(seed)
    expected = {key: stored(geometry(key)) for key in range(1, KEYS + 1)}
    for _ in range(ROUNDS):
        key = generator.randint(1, KEYS)
        if cache.fetch(geometry(key), OPTIONS, emit) != expected[key]:
            raise SystemExit(f"a wrong read of {key}")


def main(folder: str) -> None:
    """Fork the processes and fail if one of them fails."""
    cache, emitted = KernelCache(Path(folder, "cache")), Path(folder, "emitted")
    children = []
    for seed in range(PROCESSES):
        child = os.fork()
        if child == 0:
            hammer(cache, emitted, seed)
            os._exit(0)
        children.append(child)
    if any(os.waitpid(child, 0)[1] for child in children):
        raise SystemExit("a process failed")


if __name__ == "__main__":
    main(sys.argv[1])
