# SPDX-License-Identifier: Apache-2.0
"""Writers that are killed at random moments; run by test_processes.py.

A program of its own, because only a process without threads may fork safely.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from itertools import count
from pathlib import Path

from conv3d_codegen.cache import Artifact, KernelCache
from conv3d_codegen.cache.entry import delete_folder
from conv3d_codegen.cache.upkeep import verify_cache
from stored_kernels import OPTIONS, geometry, stored

KEYS = 4
KILLS = 200
EXPECTED = {key: stored(geometry(key)) for key in range(1, KEYS + 1)}
COMPILED = Artifact("cc", {"kernel.neff": b"code" * 500, "log.txt": b"fine"})


def write_for_ever(cache: KernelCache) -> None:
    """Write kernels and compiled files, and delete them again."""
    for number in count():
        key = number % KEYS + 1
        cache.put_artifact(EXPECTED[key], COMPILED)
        for entry in cache.root.glob(f"*/conv3d_n{key}_*"):
            delete_folder(entry)


def check(cache: KernelCache) -> tuple[int, int]:
    """Read everything; return how many kernels and compiled files were there."""
    if problems := verify_cache(cache):
        raise SystemExit(f"damaged: {problems}")
    kernels = artifacts = 0
    for key, expected in EXPECTED.items():
        found = cache.get(geometry(key), OPTIONS)
        if found not in (None, expected):
            raise SystemExit(f"a wrong read of {key}")
        kernels += found is not None
        compiled = cache.artifacts(geometry(key), OPTIONS)
        if compiled not in ((), (COMPILED,)):
            raise SystemExit(f"a wrong artifact of {key}")
        artifacts += len(compiled)
    return kernels, artifacts


def main(folder: str) -> None:
    """Kill writers at random moments, and read after each; print what was seen."""
    cache = KernelCache(Path(folder, "cache"))
    generator = random.Random(5)
    totals = [0, 0]
    for _ in range(KILLS):
        child = os.fork()
        if child == 0:
            write_for_ever(cache)
        time.sleep(generator.uniform(0.001, 0.015))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        totals = [total + seen for total, seen in zip(totals, check(cache), strict=True)]
    left = len(list(cache.root.glob("*/.*"))) + len(list(cache.root.glob("*/*/compiled/.*")))
    print(*totals, left)


if __name__ == "__main__":
    main(sys.argv[1])
