# SPDX-License-Identifier: Apache-2.0
"""How two packs differ: kernels of one alone, and kernels whose text or plan is another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conv3d_codegen.packs.manifest import PackEntry
    from conv3d_codegen.packs.pack import Pack


@dataclass(frozen=True, slots=True)
class ChangedKernel:
    """A kernel that two packs hold in different forms: values by name, in A and in B."""

    key: str
    differences: dict[str, tuple[Any, Any]]


@dataclass(frozen=True, slots=True)
class PackDifference:
    """Keys that one pack alone holds, and kernels that both hold in different forms."""

    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    changed: tuple[ChangedKernel, ...]

    def __bool__(self) -> bool:
        return bool(self.only_a or self.only_b or self.changed)


def compare_packs(a: Pack, b: Pack) -> PackDifference:
    """Compare manifests; the checksums in them stand for the texts."""
    entries_a, entries_b = a.manifest.by_key, b.manifest.by_key
    changed = []
    for key in sorted(entries_a.keys() & entries_b.keys()):
        facts_a, facts_b = _facts(entries_a[key]), _facts(entries_b[key])
        names = dict.fromkeys((*facts_a, *facts_b))
        differences = {
            name: (facts_a.get(name), facts_b.get(name))
            for name in names
            if facts_a.get(name) != facts_b.get(name)
        }
        if differences:
            changed.append(ChangedKernel(key, differences))
    return PackDifference(
        only_a=tuple(sorted(entries_a.keys() - entries_b.keys())),
        only_b=tuple(sorted(entries_b.keys() - entries_a.keys())),
        changed=tuple(changed),
    )


def _facts(entry: PackEntry) -> dict[str, Any]:
    """Return what counts as a difference: not the recipe, for what it made is compared."""
    plain = entry.info.to_plain()
    return {
        **entry.info.summary,
        **plain["options"],
        "sha256": entry.info.file.sha256[:12],
        "layers": ", ".join(entry.layers),
        "compiled by": ", ".join(compiled.compiler for compiled in entry.compiled),
    }
