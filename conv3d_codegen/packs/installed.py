# SPDX-License-Identifier: Apache-2.0
"""Packs that were installed as wheels."""

from __future__ import annotations

import logging
from importlib import metadata
from pathlib import Path

from conv3d_codegen.errors import MalformedPack
from conv3d_codegen.packs.pack import Pack, load_pack

log = logging.getLogger(__name__)

ENTRY_POINTS = "conv3d_codegen.packs"
PACK_FILE = "kernels.pack"


def installed_packs() -> tuple[Pack, ...]:
    """Load the installed packs, by name; one that is damaged is logged and left out.

    An entry point of the group names the folder that holds the pack. Nothing of the package is
    imported: it is data.
    """
    found = []
    for entry_point in sorted(metadata.entry_points(group=ENTRY_POINTS)):
        if entry_point.dist is None:
            continue
        path = Path(str(entry_point.dist.locate_file(entry_point.value))) / PACK_FILE
        try:
            found.append(load_pack(path))
        except (MalformedPack, OSError) as error:
            log.warning("installed pack %s is ignored: %s", entry_point.name, error)
    return tuple(found)
