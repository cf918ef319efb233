# SPDX-License-Identifier: Apache-2.0
"""dx of all channels: whole blocks of them one way, the last ones another way if that leaves fewer idle columns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conv3d_codegen.lower.slabs import NOTHING

if TYPE_CHECKING:
    from conv3d_codegen.lower.dgrad import DgradLowering
    from conv3d_codegen.lower.windows import Box, Window


@dataclass(frozen=True, slots=True)
class DgradParts:
    """The ways in the order of their channels; all of them read the same windows of dy."""

    parts: tuple[DgradLowering, ...]

    def load_ahead(self, most: float = math.inf) -> None:
        """Load so many bytes per partition of resident filters; turning or spreading them out is left for later."""
        for part in self.parts:
            most = part.load_ahead(most)

    def prepare(self) -> None:
        """Prepare all filters once, where they stay resident."""
        for part in self.parts:
            part.prepare()

    def prepare_first(self) -> None:
        """Prepare those of the first channels; the others follow before they are used."""
        self.parts[0].prepare(0)

    def slab(self, box: Box, windows: tuple[Window, ...]) -> None:
        """Compute and store the dx rows of one slab; box is in dx rows, windows are dy per channel block."""
        for part in self.parts:
            part.slab(box, windows)

    def dy_box(self, box: Box) -> Box:
        """Dy rows that the dx rows of a box need."""
        needed = NOTHING
        for part in self.parts:
            needed = needed.union(part.dy_box(box))
        return needed
