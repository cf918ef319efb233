# SPDX-License-Identifier: Apache-2.0
"""The operator objects of `nki.language` (`op=nl.add`), as numpy functions.

Vector and Scalar compute in fp32 whatever the operands' types are; GpSimd keeps 32-bit integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from conv3d_codegen.simulator.element_types import Cells


class Operator:
    """An operator by name, such as `nl.add`."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"nl.{self.name}"

    def __call__(self, *_: object, **__: object) -> None:
        """Refuse: `nl.add(x, y)` is a convenience that the emitted subset does without."""
        raise TypeError(f"nl.{self.name} is executed only as an operator of an instruction")


def _comparison(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: function(a, b).astype(np.float32)


def _logical(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: function(a != 0, b != 0).astype(np.float32)


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "power": np.power,
    "equal": _comparison(np.equal),
    "not_equal": _comparison(np.not_equal),
    "greater": _comparison(np.greater),
    "greater_equal": _comparison(np.greater_equal),
    "less": _comparison(np.less),
    "less_equal": _comparison(np.less_equal),
    "logical_and": _logical(np.logical_and),
    "logical_or": _logical(np.logical_or),
    "logical_xor": _logical(np.logical_xor),
}
BITWISE: dict[str, Callable[[Any, Any], Any]] = {
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "left_shift": np.left_shift,
    "right_shift": np.right_shift,
}
REDUCTIONS: dict[str, Callable[..., Any]] = {
    "add": np.add.reduce,
    "maximum": np.maximum.reduce,
    "minimum": np.minimum.reduce,
    "multiply": np.multiply.reduce,
}


def _sigmoid(x: Cells) -> Cells:
    return 1.0 / (1.0 + np.exp(-x))


UNARY: dict[str, Callable[[Any], Any]] = {
    "abs": np.abs,
    "square": np.square,
    "relu": lambda x: np.maximum(x, 0.0),
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "reciprocal": lambda x: 1.0 / x,
}
ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    **UNARY,
    "copy": lambda x: x,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "arctan": np.arctan,
    "sign": np.sign,
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "silu": lambda x: x * _sigmoid(x),
    "softplus": lambda x: np.logaddexp(x, 0.0),
}
# All operator objects that may be passed as op=.
NAMES = frozenset(BINARY) | frozenset(BITWISE) | frozenset(ACTIVATIONS) | {"bypass", "invert"}
