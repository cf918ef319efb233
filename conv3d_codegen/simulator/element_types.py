# SPDX-License-Identifier: Apache-2.0
"""NKI's element types: how values are held during simulation and rounded when written.

Floats of every width are held in float32, which represents all of them exactly; integers are held
as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Cells = npt.NDArray[Any]

# A tfloat32 keeps 10 of float32's 23 mantissa bits.
_TF32_DROPPED_BITS = 13


@dataclass(frozen=True, slots=True)
class ElementType:
    """One element type; `numpy` is the declared type, `held` the one used while simulating."""

    name: str
    bytes: int
    numpy: np.dtype[Any]
    held: np.dtype[Any]
    is_float: bool

    def __repr__(self) -> str:
        return self.name

    def store(self, cells: Cells, values: Cells) -> None:
        """Write values into cells, rounded as the hardware rounds on write-back."""
        if self.numpy == self.held and self.name != "tfloat32":
            if values.dtype == self.held or self.is_float:
                cells[...] = values
            else:
                cells[...] = self._to_integer(values)
        elif self.name == "tfloat32":
            cells[...] = _round_tf32(values)
        else:
            cells[...] = values.astype(self.numpy)

    def _to_integer(self, values: Cells) -> Cells:
        """To integers: nearest even, saturating."""
        if self.numpy.kind == "b":
            return np.not_equal(values, 0)
        limits = np.iinfo(self.numpy)
        return np.clip(np.rint(values.astype(np.float64)), limits.min, limits.max)


def _round_tf32(values: Cells) -> Cells:
    bits = values.astype(np.float32).view(np.uint32)
    half_less_one = np.uint32((1 << (_TF32_DROPPED_BITS - 1)) - 1)
    odd = (bits >> _TF32_DROPPED_BITS) & np.uint32(1)
    mask = np.uint32(0xFFFFFFFF << _TF32_DROPPED_BITS & 0xFFFFFFFF)
    return ((bits + half_less_one + odd) & mask).view(np.float32)


def _float(name: str, scalar: Any) -> ElementType:
    declared = np.dtype(scalar)
    return ElementType(name, declared.itemsize, declared, np.dtype(np.float32), is_float=True)


def _integer(name: str, scalar: Any) -> ElementType:
    declared = np.dtype(scalar)
    return ElementType(name, declared.itemsize, declared, declared, is_float=False)


ELEMENT_TYPES = {
    element_type.name: element_type
    for element_type in (
        _float("float32", np.float32),
        _float("tfloat32", np.float32),
        _float("bfloat16", ml_dtypes.bfloat16),
        _float("float16", np.float16),
        _float("float8_e4m3", ml_dtypes.float8_e4m3),
        _float("float8_e4m3fn", ml_dtypes.float8_e4m3fn),
        _float("float8_e5m2", ml_dtypes.float8_e5m2),
        _integer("bool_", np.bool_),
        _integer("int8", np.int8),
        _integer("uint8", np.uint8),
        _integer("int16", np.int16),
        _integer("uint16", np.uint16),
        _integer("int32", np.int32),
        _integer("uint32", np.uint32),
    )
}

_BY_NUMPY = {element_type.numpy: element_type for element_type in reversed(ELEMENT_TYPES.values())}


def element_type_of(declared: np.dtype[Any]) -> ElementType | None:
    """NKI's type for a numpy array's, or None where NKI has none."""
    return _BY_NUMPY.get(declared)
