# SPDX-License-Identifier: Apache-2.0
"""Other tools' notations of convolutions, read into layers. One module per notation."""

from __future__ import annotations

from conv3d_codegen.importers.collect import Imported, Skipped

__all__ = ["Imported", "Skipped"]
