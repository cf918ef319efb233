# SPDX-License-Identifier: Apache-2.0
"""What a kernel file says about itself in its first lines."""

from __future__ import annotations

import re

from conv3d_codegen.errors import RequestError
from conv3d_codegen.geometry import ConvGeometry

# The header's line `# Regenerate: python -m conv3d_codegen emit --key KEY [OPTIONS]`.
_REGENERATE = re.compile(r"^# .*\bemit --key (?P<key>\S+)", re.MULTILINE)


def key_of(source: str) -> str | None:
    """Return the geometry key that a kernel's header names, or None."""
    found = _REGENERATE.search(source)
    return found["key"] if found else None


def geometry_of(source: str, filename: str) -> ConvGeometry:
    """Return the geometry that a kernel was made for.

    Raises:
        RequestError: no header line names a key, or the key is malformed.
    """
    key = key_of(source)
    if key is None:
        raise RequestError(
            "no-key",
            f"{filename} does not say which geometry it is for; a kernel file has a line "
            "'# Regenerate: python -m conv3d_codegen emit --key KEY', or pass the geometry",
        )
    return ConvGeometry.parse(key)
