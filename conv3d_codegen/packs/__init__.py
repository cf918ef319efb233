# SPDX-License-Identifier: Apache-2.0
"""Packs: kernels for the layers of a model in one file, to be shipped and loaded elsewhere.

A pack is a zip archive:

    kernels/NAME.py                     one file per geometry
    compiled/NAME/COMPILER/FILE         what compilers made of it, where they were run
    manifest.json                       keys, checksums, options, summaries, layers' names

The same inputs give the same bytes. Nothing in a pack is believed before it is checked: members
are what the manifest lists, neither more nor less, and each has the SHA-256 that is stated there.
"""

from __future__ import annotations

from conv3d_codegen.packs.installed import installed_packs
from conv3d_codegen.packs.pack import Pack, load_pack

__all__ = ["Pack", "installed_packs", "load_pack"]
