# SPDX-License-Identifier: Apache-2.0
"""MIOpenDriver command lines, alone or inside MIOpen's log.

Flags and their defaults are those of `MIOpenDriver conv --help`; flags about how to run and check
are passed over. A line may be anything else, as logs are: only driver lines are read.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from conv3d_codegen.importers.collect import Collector, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from conv3d_codegen.importers.collect import Imported

_COMMAND = re.compile(r"(?:^|MIOpenDriver\S*\s+)(?P<base>conv(?:fp|bfp|int)?\d*)\s+(?P<flags>-.*)")
_DTYPES = {"conv": "fp32", "convfp16": "fp16", "convbfp16": "bf16"}

# Long name → (short name, default).
_FLAGS = {
    "spatial_dim": ("_", "2"),
    "forw": ("F", "0"),
    "batchsize": ("n", "100"),
    "in_channels": ("c", "3"),
    "in_d": ("!", "32"),
    "in_h": ("H", "32"),
    "in_w": ("W", "32"),
    "out_channels": ("k", "32"),
    "fil_d": ("@", "3"),
    "fil_h": ("y", "3"),
    "fil_w": ("x", "3"),
    "conv_stride_d": ("#", "1"),
    "conv_stride_h": ("u", "1"),
    "conv_stride_w": ("v", "1"),
    "pad_d": ("$", "0"),
    "pad_h": ("p", "0"),
    "pad_w": ("q", "0"),
    "trans_output_pad_d": ("%", "0"),
    "trans_output_pad_h": ("Y", "0"),
    "trans_output_pad_w": ("X", "0"),
    "dilation_d": ("^", "1"),
    "dilation_h": ("l", "1"),
    "dilation_w": ("j", "1"),
    "group_count": ("g", "1"),
    "mode": ("m", "conv"),
    "pad_mode": ("z", "default"),
    "bias": ("b", "0"),
}
_LONG_NAMES = {short: name for name, (short, _) in _FLAGS.items()}

# Bits of --forw; 0 stands for all of them.
_BACKWARD_DATA, _BACKWARD_WEIGHTS = 2, 4


def read_miopen(text: str, model: str) -> Imported:
    """Read every MIOpenDriver convolution of a text."""
    found = Collector(model)
    for number, line in enumerate(text.splitlines(), 1):
        command = _COMMAND.search(line.strip())
        if command is None:
            continue
        if command["base"] not in _DTYPES:
            found.skip(number, f"{command['base']} is none of {', '.join(_DTYPES)}")
            continue
        try:
            problem = _problem(_DTYPES[command["base"]], _flags(command["flags"]))
        except ValueError as error:
            found.skip(number, str(error))
        else:
            found.add(number, problem)
    return found.imported()


def _flags(text: str) -> dict[str, str]:
    """Return all flags by their long names, given or default."""
    values = {name: default for name, (_, default) in _FLAGS.items()}
    words = text.split()
    for flag, value in pairwise(words):
        if flag.startswith("--"):
            values[flag[2:]] = value
        elif len(flag) == 2 and flag[0] == "-":
            values[_LONG_NAMES.get(flag[1], flag)] = value
    return values


def _problem(dtype: str, flags: Mapping[str, str]) -> Problem:
    rank = int(flags["spatial_dim"])
    axes = "dhw"[-rank:]

    def numbers(name: str) -> tuple[int, ...]:
        return tuple(int(flags[f"{name}_{axis}"]) for axis in axes)

    size, kernel, stride, dilation = map(numbers, ("in", "fil", "conv_stride", "dilation"))
    is_transposed = flags["mode"] == "trans"
    padding = numbers("pad")
    if not is_transposed and 1 in (max(dilation), max(kernel)):  # else the mode is not looked at
        padding = _padding(flags["pad_mode"], padding, list(zip(size, kernel, stride, strict=True)))
    steps = {
        "stride": stride,
        "dilation": dilation,
        "padding": padding,
        "groups": max(int(flags["group_count"]), 1),
        "transposed": is_transposed,
        "output_padding": numbers("trans_output_pad") if is_transposed else 0,
        "dtype": dtype,
    }
    return Problem(
        shape=(int(flags["batchsize"]), int(flags["in_channels"]), *size),
        filters=(int(flags["out_channels"]), *kernel),
        steps=steps,
        gradients=_gradients(int(flags["forw"]), has_bias=int(flags["bias"]) != 0),
    )


def _padding(
    mode: str, given: tuple[int, ...], axes: list[tuple[int, int, int]]
) -> tuple[int, ...]:
    """Return the padding of each axis (size, kernel, stride): both ends are alike in MIOpen."""
    if mode == "same":
        return tuple(
            max(kernel - (size % stride or stride), 0) // 2 for size, kernel, stride in axes
        )
    return (0,) * len(axes) if mode == "valid" else given


def _gradients(passes: int, *, has_bias: bool) -> list[str]:
    gradients = []
    if passes == 0 or passes & _BACKWARD_DATA:
        gradients.append("dx")
    if passes == 0 or passes & _BACKWARD_WEIGHTS:
        gradients += ["dw", "db"] if has_bias else ["dw"]
    return gradients
