# SPDX-License-Identifier: Apache-2.0
"""Kernels kept on this machine, found again by the digest of everything that shaped their text.

On disk, below the cache folder:

    CACHEDIR.TAG                        tells backup programs to leave the folder out
    v1/TARGET/NAME-RECIPE12/            an entry: NAME.py, meta.json
    v1/TARGET/NAME-RECIPE12/compiled/COMPILER/    its compiled files, meta.json
    v1/locks/                           one empty file per entry that was ever made
    v1/damaged/                         entries that failed their checksums, set aside

A folder appears under its name in one step, complete; meta.json is its last file and holds the
checksums of the others. A reader checks them before it hands anything out.
"""

from __future__ import annotations

from conv3d_codegen.cache.recipes import recipe
from conv3d_codegen.cache.records import Artifact, FileInfo, KernelInfo, StoredKernel
from conv3d_codegen.cache.store import KernelCache

__all__ = ["Artifact", "FileInfo", "KernelCache", "KernelInfo", "StoredKernel", "recipe"]
