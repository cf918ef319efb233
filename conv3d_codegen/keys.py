# SPDX-License-Identifier: Apache-2.0
"""The readable key of a geometry, as text and back.

A key is a fixed head that names every number, then a tail of the fields that differ from their
defaults:

    conv3d-n1-ci64-co128-i8x14x14-k3x3x3-s2x2x2-p1.1.1.1.1.1-d1x1x1-bf16-trn2[-g4][-t]...

The prefix gives the user's rank, and spatial lists have that many numbers. Keys outlive the
program that wrote them (caches, packs, file names), so they only ever grow at the tail: a new
field becomes a new tail segment, omitted where it has its default, and no old key changes its
meaning.

This module knows text and field names; what the values may be is `ConvGeometry`'s to say.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from conv3d_codegen.errors import MalformedKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

EXAMPLE = "conv3d-n1-ci64-co128-i8x14x14-k3x3x3-s2x2x2-p1.1.1.1.1.1-d1x1x1-bf16-trn2"


@dataclass(frozen=True, slots=True)
class _Segment:
    """One field between two hyphens: how its value is written and what text it may be."""

    field: str
    pattern: re.Pattern[str]  # the first group is the value's text
    write: Callable[[Any], str]
    read: Callable[[str], Any]
    default: Any = None


def _plain(value: Any) -> str:
    return str(value)


def _joined(separator: str) -> Callable[[Sequence[Any]], str]:
    return lambda values: separator.join(map(str, values))


def _numbers(separator: str) -> Callable[[str], tuple[int, ...]]:
    return lambda text: tuple(map(int, text.split(separator)))


# More than any accepted number needs, and few enough for Python's own limit on reading digits.
_DIGITS = r"\d{1,20}"


def _number(field: str, prefix: str, default: int | None = None) -> _Segment:
    pattern = re.compile(f"{prefix}({_DIGITS})", re.ASCII)
    return _Segment(field, pattern, lambda value: f"{prefix}{value}", int, default)


def _list(field: str, prefix: str, separator: str, default: Any = None) -> _Segment:
    pattern = re.compile(f"{prefix}({_DIGITS}(?:[{separator}]{_DIGITS})*)", re.ASCII)
    join = _joined(separator)
    return _Segment(
        field, pattern, lambda value: prefix + join(value), _numbers(separator), default
    )


def _word(field: str, prefix: str = "", default: str | None = None) -> _Segment:
    pattern = re.compile(rf"{re.escape(prefix)}([a-z0-9_]+)", re.ASCII)
    return _Segment(field, pattern, lambda value: prefix + value, _plain, default)


def _choice(field: str, layouts: Sequence[str], default: str) -> _Segment:
    pattern = re.compile(f"({'|'.join(layouts).lower()})", re.ASCII)
    return _Segment(field, pattern, str.lower, str.upper, default)


_HEAD = (
    _number("batch", "n"),
    _number("in_channels", "ci"),
    _number("out_channels", "co"),
    _list("input_size", "i", "x"),
    _list("kernel_size", "k", "x"),
    _list("stride", "s", "x"),
    _list("padding", "p", "."),
    _list("dilation", "d", "x"),
    _word("dtype"),
    _word("target"),
)

_GRADIENT = "d[xwb]"

_TAIL = (
    _number("groups", "g", 1),
    _Segment("transposed", re.compile("(t)"), lambda _: "t", lambda _: True, False),
    _list("output_padding", "op", "x", (0, 0, 0)),
    _Segment(
        "gradients",
        re.compile(rf"({_GRADIENT}(?:\.{_GRADIENT})*)"),
        _joined("."),
        lambda text: tuple(text.split(".")),
        ("dx", "dw", "db"),
    ),
    _word("out_dtype", "out."),  # its default is the geometry's dtype
    _word("math", "math.", "full"),
    _choice("layout", ("NCDHW", "NDHWC"), "NCDHW"),
    _choice("filter_layout", ("DHWCN", "OIDHW", "ODHWI"), "DHWCN"),
    _number("lnc", "lnc", 1),
    _word("dy_dtype", "dy.", ""),  # empty: the geometry's dtype
    _word("filter_dtype", "w.", ""),
)

# Value of a spatial field on the axes that a lower rank does not have.
_UNIT_AXIS = {
    "input_size": (1,),
    "kernel_size": (1,),
    "stride": (1,),
    "dilation": (1,),
    "padding": (0, 0),
    "output_padding": (0,),
}


def lift(field: str, rank: int, values: Sequence[int]) -> tuple[int, ...]:
    """Put unit axes in front of a spatial field of the user's rank to make it 3-D."""
    return _UNIT_AXIS[field] * (3 - rank) + tuple(values)


def lower(field: str, rank: int, values: Sequence[int]) -> tuple[int, ...]:
    """Drop the axes from a 3-D spatial field that the user's rank does not have."""
    return tuple(values)[len(_UNIT_AXIS[field]) * (3 - rank) :]


def format_key(fields: Mapping[str, Any]) -> str:
    """Write the key of a valid geometry's fields."""
    rank = fields["rank"]

    def text(segment: _Segment) -> str:
        value = fields[segment.field]
        if segment.field in _UNIT_AXIS:
            value = lower(segment.field, rank, value)
        return segment.write(value)

    def is_default(segment: _Segment) -> bool:
        default = fields["dtype"] if segment.default is None else segment.default
        return bool(fields[segment.field] == default)

    tail = (segment for segment in _TAIL if not is_default(segment))
    return "-".join([f"conv{rank}d", *map(text, _HEAD), *map(text, tail)])


def parse_key(key: str) -> dict[str, Any]:
    """Read the fields that a key spells out, unchecked beyond their form."""
    kind, *parts = key.split("-")
    match = re.fullmatch(r"conv([123])d", kind, re.ASCII)
    if match is None:
        raise _malformed(key, f"{kind!r} is not conv1d, conv2d or conv3d")
    if len(parts) < len(_HEAD):
        raise _malformed(key, f"{_HEAD[len(parts)].field} is missing")
    rank = int(match[1])
    fields: dict[str, Any] = {"rank": rank}
    for segment, part in zip(_HEAD, parts, strict=False):
        if not _read(segment, part, rank, fields):
            raise _malformed(key, f"{part!r} is not {segment.field} of a {rank}-D problem")
    for part in parts[len(_HEAD) :]:
        unused = (segment for segment in _TAIL if segment.field not in fields)
        if not any(_read(segment, part, rank, fields) for segment in unused):
            raise _malformed(key, f"{part!r} is not known, or repeated")
    return fields


def _read(segment: _Segment, part: str, rank: int, fields: dict[str, Any]) -> bool:
    """Put the part's value into `fields` if the part is this segment."""
    match = segment.pattern.fullmatch(part)
    if match is None:
        return False
    value = segment.read(match[1])
    if segment.field in _UNIT_AXIS:
        if len(value) != rank * len(_UNIT_AXIS[segment.field]):
            return False
        value = lift(segment.field, rank, value)
    fields[segment.field] = value
    return True


def _malformed(key: str, problem: str) -> MalformedKey:
    return MalformedKey(f"key {key}", problem, f"keys such as {EXAMPLE}")
