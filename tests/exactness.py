# SPDX-License-Identifier: Apache-2.0
"""What every kernel must do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conv3d_codegen.verify import verify_geometry

if TYPE_CHECKING:
    from conv3d_codegen.geometry import ConvGeometry


def assert_exact(geometry: ConvGeometry) -> None:
    """Emit the kernel of a geometry, run it, and ask for exact results and no broken rule."""
    report = verify_geometry(geometry)
    assert not report.violations, geometry.key()
    assert all(check.exact for check in report.gradients), geometry.key()
