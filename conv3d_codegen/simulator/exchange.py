# SPDX-License-Identifier: Apache-2.0
"""What the physical cores of one logical core share: HBM tensors, barriers and exchanges."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from conv3d_codegen.simulator.cell_map import CellMap
from conv3d_codegen.simulator.tensors import SHARED_HBM, Storage

if TYPE_CHECKING:
    from conv3d_codegen.simulator.core import Core
    from conv3d_codegen.simulator.element_types import Cells, ElementType


class Exchange:
    """Shared by all cores of a run."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._tensors: list[list[tuple[Storage, Cells]]] = [[] for _ in range(size)]

    def shared_tensor(
        self, core: Core, name: str, shape: tuple[int, ...], dtype: ElementType, line: int
    ) -> tuple[Storage, Cells]:
        """The next shared tensor of a core: the same storage as the other core's."""
        storage = Storage(name, shape, dtype, SHARED_HBM, line)
        storage.written = [CellMap(1, storage.free, np.bool_) for _ in range(self.size)]
        cells = storage.new_cells()
        return storage, cells
