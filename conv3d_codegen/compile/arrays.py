# SPDX-License-Identifier: Apache-2.0
"""Arrays between processes, in files that keep ml_dtypes' types (numpy's own format loses them)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import ml_dtypes  # noqa: F401 (teaches numpy the names of its types)
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    Array = np.ndarray[Any, np.dtype[Any]]


def write_arrays(folder: Path, arrays: Sequence[Array]) -> None:
    """Write arrays into a new folder."""
    folder.mkdir()
    for number, array in enumerate(arrays):
        (folder / f"{number}.bin").write_bytes(np.ascontiguousarray(array).tobytes())
    forms = [{"dtype": array.dtype.name, "shape": array.shape} for array in arrays]
    (folder / "forms.json").write_text(json.dumps(forms), encoding="utf-8")


def read_arrays(folder: Path) -> tuple[Array, ...]:
    """Read what `write_arrays` wrote."""
    forms = json.loads((folder / "forms.json").read_text(encoding="utf-8"))
    return tuple(
        np.fromfile(folder / f"{number}.bin", np.uint8)
        .view(np.dtype(form["dtype"]))
        .reshape(form["shape"])
        for number, form in enumerate(forms)
    )
