# SPDX-License-Identifier: Apache-2.0
"""Making one pack of several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from conv3d_codegen.errors import ConflictingPacks
from conv3d_codegen.packs.write import pack_member, write_pack

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from conv3d_codegen.packs.pack import Pack, PackMember

Preference = Literal["first", "last"]


def merge_packs(packs: Sequence[Pack], path: Path, prefer: Preference | None = None) -> Pack:
    """Write a pack with the kernels of all packs, their layers and what was compiled.

    Args:
        packs: what to merge.
        path: the new pack's file, which may be that of one of them.
        prefer: which pack decides where two hold different kernels of one geometry.

    Raises:
        ConflictingPacks: there are such kernels, and `prefer` is None.
        MalformedPack: a pack is damaged.
    """
    ranked = packs[::-1] if prefer == "last" else packs
    if prefer is None:
        _check_agreement(packs)
    return write_pack(path, _merged(ranked))


def _check_agreement(packs: Sequence[Pack]) -> None:
    texts: dict[str, tuple[str, Pack]] = {}
    for pack in packs:
        for entry in pack.manifest.entries:
            key, sha256 = entry.info.key, entry.info.file.sha256
            earlier, holder = texts.setdefault(key, (sha256, pack))
            if earlier != sha256:
                raise ConflictingPacks(
                    f"{holder.path} and {pack.path}",
                    f"different kernels of {key}",
                    "--prefer first or --prefer last",
                )


def _merged(packs: Sequence[Pack]) -> Iterator[PackMember]:
    """Read members by key; the first pack that has a kernel decides what its text is."""
    for key in sorted({key for pack in packs for key in pack.manifest.by_key}):
        held = [pack.member(key) for pack in packs if key in pack.manifest.by_key]
        text = held[0].entry.info.file.sha256
        same = [member for member in held if member.entry.info.file.sha256 == text]
        layers = dict.fromkeys(name for member in same for name in member.entry.layers)
        artifacts = {a.compiler: a for member in reversed(same) for a in member.artifacts}
        yield pack_member(held[0].kernel, layers, artifacts.values())
