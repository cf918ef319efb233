# SPDX-License-Identifier: Apache-2.0
"""Inputs whose right answer is known.

Integers: every value is an integer of magnitude at most m, so every product is one of magnitude at
most m², and every partial sum of L products, in whatever order and grouping a kernel adds them, one
of magnitude at most m²·L. With m exactly representable in the input type and m²·L < 2**24, each of
them is exact in fp32, whose significand has 24 bits. The kernel's result, rounded once when it is
written, must therefore equal the int64 reference rounded once to the same type: bit for bit, not
within a tolerance. m is as large as this allows (at most 15), so that sums do not fit a narrower
accumulator: a kernel that stages partial sums in bf16 is found out.

Normal: standard normal values rounded to the input type; the answer is then known within a bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import ml_dtypes
import numpy as np

from conv3d_codegen.dtypes import dtype
from conv3d_codegen.errors import RequestError

if TYPE_CHECKING:
    from conv3d_codegen.geometry import ConvGeometry

Array = np.ndarray[Any, np.dtype[Any]]
InputKind = Literal["integers", "normal"]

EXACT_SUM_LIMIT = 2**24  # integers below this are exact in fp32
LARGEST_INTEGER = 15


@dataclass(frozen=True, slots=True)
class Operands:
    """The three arguments of a kernel, in their input types."""

    dy: Array
    x: Array
    w: Array


def make_inputs(geometry: ConvGeometry, kind: InputKind, seed: int) -> Operands:
    """Fill dy, x and w; the same arguments give the same values on every machine."""
    random = np.random.default_rng(seed)
    magnitude = integer_magnitude(geometry)
    types = {name: dtype(given).numpy for name, given in geometry.input_dtypes.items()}

    def fill(name: str, shape: tuple[int, ...]) -> Array:
        to_type = types[name]
        if kind == "integers":
            return random.integers(-magnitude, magnitude, shape, endpoint=True).astype(to_type)
        return random.standard_normal(shape, np.float32).astype(to_type)

    return Operands(
        dy=fill("dy", geometry.dy_shape),
        x=fill("x", geometry.x_shape),
        w=fill("filters", geometry.filter_shape),
    )


def integer_magnitude(geometry: ConvGeometry) -> int:
    """Return the largest m with which every sum of the geometry is exact.

    Raises:
        RequestError: the reduction is too long even for m = 1.
    """
    length = longest_reduction(geometry)
    if length >= EXACT_SUM_LIMIT:
        raise RequestError(
            "reduction-too-long",
            f"a sum of {length} terms is not exact in fp32 whatever the integers; "
            f"accepted: fewer than {EXACT_SUM_LIMIT} terms, or --inputs normal",
        )
    exact = math.isqrt((EXACT_SUM_LIMIT - 1) // length)
    bits = min(dtype(name).significand_bits for name in geometry.input_dtypes.values())
    representable = 1 << bits
    magnitude = min(LARGEST_INTEGER, exact, representable)
    largest = _largest(dtype(geometry.out_dtype).numpy)
    while magnitude > 1 and 4 * _deviation(magnitude, length) > largest:
        magnitude -= 1
    return magnitude


def longest_reduction(geometry: ConvGeometry) -> int:
    """Return the most products that one element of a requested gradient sums."""
    # dx sums over taps and output channels. dw sums over the positions of the smaller of dy and x,
    # db over those of dy: the larger of the two bounds both, also for transposed convolutions.
    taps = math.prod(geometry.kernel_size)
    positions = max(math.prod(geometry.output_size), math.prod(geometry.input_size))
    lengths = {
        "dx": taps * geometry.out_channels // geometry.groups,
        "dw": geometry.batch * positions,
        "db": geometry.batch * positions,
    }
    return max(lengths[name] for name in geometry.gradients)


def _largest(to_type: np.dtype[Any]) -> float:
    finfo: Any = ml_dtypes.finfo  # knows numpy's types too, but has no annotations
    return float(finfo(to_type).max)


def _deviation(magnitude: int, length: int) -> float:
    """Return the standard deviation of a sum of products of uniform integers."""
    return magnitude * (magnitude + 1) / 3 * math.sqrt(length)
