# SPDX-License-Identifier: Apache-2.0
"""Hardware tables: one `TargetSpec` per supported generation."""

from __future__ import annotations

from types import MappingProxyType

from conv3d_codegen.errors import UnknownTarget
from conv3d_codegen.targets.spec import TargetSpec
from conv3d_codegen.targets.trn2 import TRN2
from conv3d_codegen.targets.trn3 import TRN3

TARGETS = MappingProxyType({spec.name: spec for spec in (TRN2, TRN3)})


def target(name: str) -> TargetSpec:
    """Look up the table of that name; `UnknownTarget` for any other."""
    try:
        return TARGETS[name]
    except KeyError:
        raise UnknownTarget(f"target {name}", "no such target", ", ".join(TARGETS)) from None


__all__ = ["TARGETS", "TargetSpec", "target"]
