# SPDX-License-Identifier: Apache-2.0
"""Integers and lists of them, in the forms that users write them."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, SupportsIndex

from conv3d_codegen.errors import NotAnInteger, WrongCount

if TYPE_CHECKING:
    from collections.abc import Sequence


def as_integer(name: str, value: SupportsIndex) -> int:
    """Return a plain int for any kind of integer but a bool."""
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise _not_integer(name, value)
    return operator.index(value)


def as_integers(name: str, values: Sequence[SupportsIndex], length: int) -> tuple[int, ...]:
    """Return plain ints, as many as there have to be."""
    if len(values) != length:
        raise WrongCount(f"{spelled(name)} {comma(values)}", f"{len(values)} numbers", f"{length}")
    return tuple(as_integer(name, value) for value in values)


def spread_over_axes(name: str, value: int | Sequence[int], rank: int) -> tuple[int, ...]:
    """Repeat one number, or one per axis, to one per axis; padding to two (before, after)."""
    try:
        values = (value,) if isinstance(value, SupportsIndex) else tuple(value)
    except TypeError:
        raise _not_integer(name, value) from None
    ends = 2 if name == "padding" else 1
    if len(values) == 1:
        return values * (rank * ends)
    if len(values) == rank:
        return tuple(number for number in values for _ in range(ends))
    if len(values) == rank * ends:
        return values
    counts = dict.fromkeys((1, rank, rank * ends))
    raise WrongCount(
        f"{spelled(name)} {comma(values)}",
        f"{len(values)} numbers for {rank} axes",
        f"{' or '.join(map(str, counts))} numbers",
    )


def comma(values: Sequence[Any]) -> str:
    """Write a list as on the command line."""
    return ",".join(map(str, values))


def spelled(name: str) -> str:
    """Write a field's name in words."""
    return name.replace("_", " ")


def _not_integer(name: str, value: object) -> NotAnInteger:
    return NotAnInteger(f"{spelled(name)} {value!r}", "not an integer", "integers")
