# SPDX-License-Identifier: Apache-2.0
"""Element types: one table with the names every stage uses for them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class DType:
    """An element type.

    `significand_bits` counts the implicit leading one, so the unit roundoff of round-to-nearest
    is 2**-significand_bits. `min_exponent` is the power of two of the smallest subnormal.
    """

    name: str
    nki: str
    bytes: int
    significand_bits: int
    min_exponent: int
    numpy_module: str
    numpy_name: str

    @property
    def numpy(self) -> np.dtype[Any]:
        """The numpy dtype (ml_dtypes for what numpy lacks); numpy is imported on first use."""
        scalar_type = getattr(import_module(self.numpy_module), self.numpy_name)
        return cast("np.dtype[Any]", import_module("numpy").dtype(scalar_type))

    @property
    def unit_roundoff(self) -> float:
        """Largest relative error of one rounding to this type."""
        return 2.0**-self.significand_bits

    @property
    def smallest_subnormal(self) -> float:
        """Spacing of the values around zero."""
        return 2.0**self.min_exponent


_TABLE = (
    #     name        nki                bytes  significand  min_exponent  numpy
    DType("bf16", "nl.bfloat16", 2, 8, -133, "ml_dtypes", "bfloat16"),
    DType("fp16", "nl.float16", 2, 11, -24, "numpy", "float16"),
    DType("fp32", "nl.float32", 4, 24, -149, "numpy", "float32"),
    # NKI's float8_e4m3 is the IEEE-style one with infinities and a maximum of 240 (NKI data type
    # table), not OCP's e4m3fn with 448.
    DType("fp8_e4m3", "nl.float8_e4m3", 1, 4, -9, "ml_dtypes", "float8_e4m3"),
    DType("fp8_e5m2", "nl.float8_e5m2", 1, 3, -16, "ml_dtypes", "float8_e5m2"),
)

# The types of HBM tensors.
DTYPES = {row.name: row for row in _TABLE}

# Types that no HBM argument or result has. tf32: 32 bits of storage of which 1 + 8 + 10 count (NKI data
# type table); int32 holds offsets.
_INTERNAL = {
    "tf32": DType("tf32", "nl.tfloat32", 4, 11, -136, "numpy", "float32"),
    "int32": DType("int32", "nl.int32", 4, 31, 0, "numpy", "int32"),
}


def dtype(name: str) -> DType:
    """Look up a type by name; geometries hold only names that exist."""
    return _INTERNAL.get(name) or DTYPES[name]


def compute_dtype(name: str, math: str) -> str:
    """Name the type that matmuls read where tensors have a type and math asks for less than all of fp32.

    8-bit floats are bf16 on chip: every value of theirs is one of bf16's, and the tensor engine
    transposes 16 bits.
    """
    if dtype(name).bytes == 1:
        return "bf16"
    return name if math == "full" else math
