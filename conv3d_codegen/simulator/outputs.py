# SPDX-License-Identifier: Apache-2.0
"""What a kernel returned: as numpy arrays, checked to be complete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from conv3d_codegen.simulator.tensors import OUTPUT, SHARED_HBM, NkiTensor

if TYPE_CHECKING:
    from conv3d_codegen.simulator.core import Core
    from conv3d_codegen.simulator.element_types import Cells
    from conv3d_codegen.simulator.tensors import Storage


def collect_outputs(core: Core, returned: Any) -> tuple[Cells, ...]:
    """Return the kernel's results in their declared types; none if it stopped or has no values."""
    if returned is None:
        return ()
    outputs = []
    for tensor in returned if isinstance(returned, tuple) else (returned,):
        if not isinstance(tensor, NkiTensor):
            core.violate(0, "output-buffer", f"returned {type(tensor).__name__}, not a tensor")
            continue
        _check(core, tensor.storage)
        if core.keeps_values:
            outputs.append(tensor.array.astype(tensor.dtype.numpy))
    return tuple(outputs)


def _check(core: Core, storage: Storage) -> None:
    if storage.memory is not SHARED_HBM or storage.role != "scratch":
        core.violate(
            storage.line, "output-buffer", f"{storage.name} is not a tensor made in shared_hbm"
        )
        return
    storage.role = OUTPUT
    if storage.rewritten_line:
        core.violate(
            storage.rewritten_line, "write-once", f"elements of {storage.name} are written again"
        )
    maps = [cells for cells in storage.written if cells is not None]
    for cells in maps[1:]:
        maps[0].merge(cells)
    missing = maps[0].count(False)
    if missing:
        ((_, _, written),) = maps[0].rows()
        first = np.unravel_index(int(written.argmin()), storage.shape)
        core.violate(
            storage.line,
            "output-unwritten",
            f"{missing} of {storage.free} elements of {storage.name} are never written, the first"
            f" at {tuple(int(index) for index in first)}",
        )
