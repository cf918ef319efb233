# SPDX-License-Identifier: Apache-2.0
"""Compares what a kernel returned with the reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from conv3d_codegen.dtypes import dtype
from conv3d_codegen.reference import conv_backward_reference, float_bound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conv3d_codegen.geometry import ConvGeometry
    from conv3d_codegen.verify.inputs import Array, InputKind, Operands


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientCheck:
    """How one gradient compares with the reference.

    `exact` says that every element equals the reference rounded once to the output type.
    `bound_use` is the largest error as a share of what rounding alone can cause; normal inputs
    only. `problem` names what makes a comparison of values impossible.
    """

    name: str
    exact: bool = False
    passed: bool = False
    wrong_elements: int = 0
    max_error: float = 0.0
    bound_use: float | None = None
    problem: str = ""

    @property
    def verdict(self) -> str:
        """The result in a few words."""
        if self.problem or self.exact:
            return self.problem or "exact"
        error = f"max error {self.max_error:.3g}"
        if self.bound_use is not None:
            error += f", {self.bound_use:.1%} of what rounding can cause"
        return error if self.passed else f"WRONG in {self.wrong_elements:,} elements, {error}"


def check_gradients(
    geometry: ConvGeometry, operands: Operands, kind: InputKind, outputs: Sequence[Array]
) -> tuple[GradientCheck, ...]:
    """Compare the gradients that a kernel returned, in the geometry's order."""
    exact = kind == "integers"
    wide = np.int64 if exact else np.float64
    dy, x, w = (array.astype(wide) for array in (operands.dy, operands.x, operands.w))
    reference = conv_backward_reference(geometry, dy, x, w)
    checks = []
    for position, name in enumerate(geometry.gradients):
        got = outputs[position] if position < len(outputs) else None
        problem = _interface_problem(geometry, name, got)
        if got is None or problem:
            checks.append(GradientCheck(name=name, problem=problem))
        elif exact:
            checks.append(_check_exact(name, got, reference[name]))
        else:
            bound = float_bound(geometry, name, dy, x, w)
            checks.append(_check_bound(name, got, reference[name], bound))
    return tuple(checks)


def _interface_problem(geometry: ConvGeometry, name: str, got: Array | None) -> str:
    """Say why `got` cannot be this gradient at all, if so."""
    shapes = {"dx": geometry.dx_shape, "dw": geometry.dw_shape, "db": geometry.db_shape}
    shape, to_type = shapes[name], dtype(geometry.out_dtype).numpy
    if got is None:
        return "not returned"
    if got.shape != shape or got.dtype != to_type:
        return f"returned {got.dtype}{list(got.shape)}, expected {to_type}{list(shape)}"
    return ""


def _check_exact(name: str, got: Array, reference: Array) -> GradientCheck:
    """Ask for equality with the integer reference, rounded once; zeros have no sign here."""
    largest = int(np.abs(reference).max(initial=0))
    assert largest < 2**24, f"the integers of {name} reach {largest}, past what fp32 holds exactly"
    expected = reference.astype(np.float32).astype(got.dtype)
    equal = (got == expected) | (np.isnan(got) & np.isnan(expected))
    wrong = int(equal.size - np.count_nonzero(equal))
    return GradientCheck(
        name=name,
        exact=wrong == 0,
        passed=wrong == 0,
        wrong_elements=wrong,
        max_error=_largest(np.where(equal, 0, _error(got, expected))),
    )


def _check_bound(name: str, got: Array, reference: Array, bound: Array) -> GradientCheck:
    """Ask for an error no larger than rounding can cause, element by element."""
    error = _error(got, reference)
    within = error <= bound
    wrong = int(error.size - np.count_nonzero(within))
    share = np.divide(error, bound, out=np.zeros_like(error), where=bound > 0)
    return GradientCheck(
        name=name,
        exact=bool(np.array_equal(got, reference.astype(got.dtype))),
        passed=wrong == 0,
        wrong_elements=wrong,
        max_error=_largest(error),
        bound_use=_largest(share),
    )


def _error(got: Array, expected: Array) -> Array:
    """Return the absolute difference, infinite where one side is not a number."""
    with np.errstate(invalid="ignore"):
        error = np.abs(got.astype(np.float64) - expected.astype(np.float64))
    return np.where(np.isnan(error), np.inf, error)


def _largest(values: Array) -> float:
    return float(values.max(initial=0.0))
