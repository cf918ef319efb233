# SPDX-License-Identifier: Apache-2.0
"""oneDNN's notation: benchdnn problem descriptors, alone or on its command lines, and verbose logs.

    --deconv --dir=BWD_W --dt=bf16 g1mb2ic16id8oc32od8kd3pd1n"name"
    onednn_verbose,v1,primitive,exec,cpu,convolution,...,mb2_ic16oc32_ih7oh7kh3sh1dh0ph1_iw7...

A descriptor states missing axes and numbers by rules of its own: the numbers of one axis stand for
all axes behind it, output and padding follow from each other, and dilation counts the gaps.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conv3d_codegen.importers.collect import Collector, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from conv3d_codegen.importers.collect import Imported

_NUMBER = r"(?:mb|g|ic|oc|[iokspd][dhw])\d+"
_DESCRIPTOR = re.compile(rf"(?P<numbers>(?:_*{_NUMBER})+)_*(?:n(?P<name>.*))?")
_MEMORY = re.compile(r"(?:^|[ _])(src|bia)[_:](\w+?):")

_DTYPES = {"f32": "fp32", "bf16": "bf16", "f16": "fp16"}
_DEFAULT_BATCH = 2

# What a direction computes, in benchdnn's and in verbose spelling; forward ones compute nothing.
_DIRECTIONS = {
    "BWD_D": ("dx",),
    "BWD_W": ("dw",),
    "BWD_WB": ("dw", "db"),
    "backward_data": ("dx",),
    "backward_weights": ("dw",),
}


@dataclass(frozen=True, slots=True)
class Knobs:
    """The benchdnn options that say something about the problem."""

    transposed: bool = False
    directions: tuple[str, ...] = ()
    dtype: str = "f32"
    batch: int = 0  # 0: as the descriptor says

    @property
    def gradients(self) -> set[str]:
        """What the directions compute together."""
        return {name for direction in self.directions for name in _DIRECTIONS.get(direction, ())}


def read_benchdnn(text: str, model: str) -> Imported:
    """Read every descriptor and every verbose convolution of a text.

    Knobs hold for the descriptors after them, on the same and on later lines, as in batch files.
    """
    found = Collector(model)
    knobs = Knobs()
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if re.match(r"(one)?dnnl?_verbose,", stripped):
            _read_verbose(found, number, stripped.split(","))
        elif not stripped.startswith("#"):
            for word in stripped.split():
                if word.startswith("--"):
                    knobs = _turned(knobs, *word[2:].partition("=")[::2])
                else:
                    _read_descriptor(found, number, word, knobs)
    return found.imported()


def _turned(knobs: Knobs, name: str, value: str) -> Knobs:
    """Return the knobs after one more option."""
    if name in {"conv", "deconv"}:
        return Knobs(transposed=name == "deconv")
    if name == "reset":
        return Knobs(transposed=knobs.transposed)
    directions, dtype, batch = knobs.directions, knobs.dtype, knobs.batch
    if name == "dir":
        directions = tuple(value.split(","))
    elif name in {"dt", "cfg"}:
        dtype = value.partition(",")[0].partition(":")[0]
    elif name == "mb":
        batch = int(value) if value.isdigit() else 0
    return Knobs(knobs.transposed, directions, dtype, batch)


def _read_verbose(found: Collector, number: int, fields: list[str]) -> None:
    primitives = {"convolution", "deconvolution"} & set(fields)
    descriptors = [field for field in fields if _is_problem(_DESCRIPTOR.fullmatch(field))]
    if not primitives or not descriptors:
        return
    types = dict(pair for field in fields for pair in _MEMORY.findall(field))
    directions = tuple(field for field in fields if field in _DIRECTIONS)
    if directions == ("backward_weights",) and types.get("bia", "undef") != "undef":
        directions = ("BWD_WB",)
    knobs = Knobs("deconvolution" in primitives, directions, types.get("src", "f32"))
    _read_descriptor(found, number, descriptors[-1], knobs)


def _read_descriptor(found: Collector, number: int, word: str, knobs: Knobs) -> None:
    match = _DESCRIPTOR.fullmatch(word)
    if not _is_problem(match):
        return
    assert match is not None
    if knobs.dtype not in _DTYPES:
        found.skip(number, f"{word}: {knobs.dtype} is none of {', '.join(_DTYPES)}")
        return
    stated = {name: int(digits) for name, digits in re.findall(r"([a-z]+)(\d+)", match["numbers"])}
    try:
        problem = _problem(stated, knobs, (match["name"] or "").strip("\"'"))
    except ValueError as error:
        found.skip(number, f"{word}: {error}")
    else:
        found.add(number, problem)


def _is_problem(match: re.Match[str] | None) -> bool:
    return match is not None and "ic" in match["numbers"] and "oc" in match["numbers"]


def _problem(stated: Mapping[str, int], knobs: Knobs, name: str) -> Problem:
    given = [axis for axis in "dhw" if stated.get(f"i{axis}")]
    if not given:
        raise ValueError("no axis has an input extent")
    axes = [_Axis.of(stated, letter, knobs.transposed) for letter in given]
    rank = "whd".index(given[0]) + 1
    axes += axes[-1:] * (rank - len(axes))
    batch = knobs.batch or stated.get("mb", _DEFAULT_BATCH)
    steps = {
        "stride": [axis.stride for axis in axes],
        "dilation": [axis.dilation for axis in axes],
        "padding": [pad for axis in axes for pad in (axis.before, max(axis.after, 0))],
        "groups": stated.get("g", 1),
        "transposed": knobs.transposed,
        "dtype": _DTYPES[knobs.dtype],
    }
    if knobs.transposed:  # what the padding behind lacks is added to the output
        steps["output_padding"] = [max(-axis.after, 0) for axis in axes]
    return Problem(
        shape=(batch, stated["ic"], *(axis.size for axis in axes)),
        filters=(stated["oc"], *(axis.kernel for axis in axes)),
        steps=steps,
        gradients=knobs.gradients,
        out=tuple(axis.out for axis in axes) if all(axis.out for axis in axes) else (),
        name=name.replace("/", "."),
    )


@dataclass(frozen=True, slots=True)
class _Axis:
    size: int
    kernel: int
    stride: int
    dilation: int
    before: int
    after: int  # negative: the last positions of the wide side take part in no window
    out: int  # 0: not stated

    @classmethod
    def of(cls, stated: Mapping[str, int], letter: str, transposed: bool) -> _Axis:
        """Complete the numbers of one axis."""

        def number(what: str, default: int) -> int:
            return stated.get(f"{what}{letter}", default)

        size, kernel, stride = number("i", 0), number("k", 0), number("s", 1)
        dilation = number("d", 0) + 1
        if kernel < 1 or stride < 1:
            raise ValueError(f"k{letter}{kernel} s{letter}{stride}: kernel or stride below 1")
        extent = (kernel - 1) * dilation + 1
        out, padding = number("o", 0), number("p", -1)
        if out == 0:
            before = after = max(padding, 0)
        else:
            narrow, wide = (size, out) if transposed else (out, size)
            total = (narrow - 1) * stride + extent - wide
            before = max(total // 2, 0) if padding < 0 else padding
            after = total - before
        return cls(size, kernel, stride, dilation, before, after, out)
