# SPDX-License-Identifier: Apache-2.0
"""The rules a convolution has to keep, each with its error.

They take plain values, so that whoever holds numbers (the geometry itself, a reader of files) can
ask for one rule. Axes are named D, H, W in the messages.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from conv3d_codegen.dtypes import DTYPES
from conv3d_codegen.errors import (
    DilationNotPositive,
    EmptyOutput,
    GroupsError,
    KernelExceedsInput,
    MathNeedsFp32,
    MixedDtypes,
    NothingToCompute,
    NumberTooLarge,
    OutputPaddingNotTransposed,
    OutputPaddingRange,
    OutputTooLarge,
    PaddingNegative,
    RankError,
    RuleError,
    SizeNotPositive,
    StrideNotPositive,
    TensorTooLarge,
    UnknownDtype,
    UnknownGradient,
    UnknownLnc,
    UnknownMath,
    UnknownTarget,
    ZeroBatch,
)
from conv3d_codegen.geometry.layouts import SPATIAL
from conv3d_codegen.geometry.numbers import comma, spelled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from conv3d_codegen.geometry.axes import AxisGeometry

GRADIENTS = ("dx", "dw", "db")
MATHS = ("full", "tf32", "bf16")
TARGETS = ("trn2", "trn3")
LNCS = (1, 2)

# Integers of a kernel's text are 32 bits wide (NKI language guide), and so are element offsets.
LARGEST_INTEGER = 2**31 - 1
# "Output tensor over 4 GB" is compiler error NCC_EVRF024 (Neuron compiler error reference).
LARGEST_OUTPUT_BYTES = 2**32


def check_rank(rank: int, given: str | None = None) -> None:
    """Refuse anything but 1, 2 or 3 spatial axes; `given` is what the rank was read from."""
    if rank not in {1, 2, 3}:
        raise RankError(given or f"rank {rank}", f"{rank} spatial axes", "1, 2 or 3 spatial axes")


def check_unit_axes(rank: int, axes: Sequence[tuple[int, ...]]) -> None:
    """Axes that the rank does not have are unit axes: extents and steps 1, paddings 0."""
    for name, axis in zip(SPATIAL, axes[: 3 - rank], strict=False):
        if axis != (1, 1, 1, 1, 0, 0, 0):
            raise RankError(
                f"rank {rank} with {name} values {axis}",
                f"a problem of rank {rank} has no axis {name}",
                "size, kernel, stride, dilation 1 and paddings 0 on that axis",
            )


def check_counts(batch: int, channels: Mapping[str, int], groups: int) -> None:
    """Channels and groups are positive, and groups divide both channel counts."""
    if batch < 0:
        raise SizeNotPositive(f"batch {batch}", "a batch cannot be negative", "integers >= 1")
    for name, count in channels.items():
        if count < 1:
            raise SizeNotPositive(f"{name} {count}", "no channels", "integers >= 1")
    if groups < 1:
        raise GroupsError(f"groups {groups}", "groups must be positive", "integers >= 1")
    for name, count in channels.items():
        if count % groups:
            raise GroupsError(
                f"groups {groups} with {name} {count}",
                f"groups do not divide {name}",
                f"common divisors of {' and '.join(map(str, channels.values()))}",
            )


def check_batch(batch: int) -> None:
    """Refuse an empty batch: it needs no kernel."""
    if batch == 0:
        raise ZeroBatch(
            "batch 0", "no kernel is needed: dx is empty, dw and db are zero", "batches >= 1"
        )


def check_each(name: str, values: Sequence[int], least: int, error: type[RuleError]) -> None:
    """Every value is at least `least`."""
    if any(value < least for value in values):
        raise error(
            f"{name} {comma(values)}",
            f"a value is below {least}",
            f"integers >= {least}",
        )


def check_spatial(
    input_size: Sequence[int],
    kernel_size: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
) -> None:
    """Extents and steps are positive, paddings are not negative."""
    check_each("input size", input_size, 1, SizeNotPositive)
    check_each("kernel size", kernel_size, 1, SizeNotPositive)
    check_each("stride", stride, 1, StrideNotPositive)
    check_each("dilation", dilation, 1, DilationNotPositive)
    check_each("padding", padding, 0, PaddingNegative)


def check_magnitudes(values: Mapping[str, Sequence[int]]) -> None:
    """Every number fits the 32-bit integers of NKI."""
    for name, numbers in values.items():
        if max(numbers) > LARGEST_INTEGER:
            raise NumberTooLarge(
                f"{spelled(name)} {comma(numbers)}",
                "NKI's integers have 32 bits",
                f"numbers up to {LARGEST_INTEGER}",
            )


def check_output_padding(
    transposed: bool, values: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> None:
    """Output padding belongs to transposed convolutions, and stays below the larger step."""
    given = f"output padding {comma(values)}"
    if not transposed and any(values):
        raise OutputPaddingNotTransposed(
            given, "an ordinary convolution has no output padding", "0, or a transposed convolution"
        )
    limits = [max(pair) for pair in zip(stride, dilation, strict=True)]
    inside = all(0 <= v < limit for v, limit in zip(values, limits, strict=True))
    if transposed and not inside:
        raise OutputPaddingRange(
            given,
            "output padding has to be below the larger of stride and dilation",
            f"0 to {','.join(str(limit - 1) for limit in limits)}",
        )


def check_windows(axes: Sequence[AxisGeometry]) -> None:
    """On every axis the padded input holds at least one dilated kernel."""
    for name, axis in zip(SPATIAL, axes, strict=True):
        padded = axis.size + axis.pad_before + axis.pad_after
        if padded < axis.extent:
            raise KernelExceedsInput(
                f"axis {name}: input {axis.size}, padding {axis.pad_before}+{axis.pad_after}, "
                f"kernel {axis.kernel}, dilation {axis.dilation}",
                f"the padded input has {padded} positions, the dilated kernel spans {axis.extent}",
                "input + padding >= (kernel - 1) * dilation + 1",
            )


def check_output_size(output_size: Sequence[int]) -> None:
    """Refuse a transposed convolution without output."""
    if min(output_size) < 1:
        raise EmptyOutput(
            f"output size {'x'.join(map(str, output_size))}",
            "the padding removes the whole output of the transposed convolution",
            "(input - 1) * stride + (kernel - 1) * dilation + output padding + 1 > padding",
        )


def check_tensors(
    shapes: Mapping[str, Sequence[int]], outputs: Sequence[str], out_dtype: str
) -> None:
    """Element offsets fit 32 bits, and no gradient is over the compiler's limit."""
    for name, shape in shapes.items():
        elements = math.prod(shape)
        if elements > LARGEST_INTEGER:
            raise TensorTooLarge(
                f"{name} of shape {'x'.join(map(str, shape))}",
                f"{elements} elements need offsets of more than 32 bits",
                f"tensors of up to {LARGEST_INTEGER} elements (split the batch)",
            )
    for name in outputs:
        size = math.prod(shapes[name]) * DTYPES[out_dtype].bytes
        if size > LARGEST_OUTPUT_BYTES:
            raise OutputTooLarge(
                f"{name} of {size} bytes",
                "the Neuron compiler refuses outputs over 4 GiB (NCC_EVRF024)",
                f"gradients of up to {LARGEST_OUTPUT_BYTES} bytes (split the batch)",
            )


def canonical_gradients(gradients: Sequence[str]) -> tuple[str, ...]:
    """Return the asked gradients in the order dx, dw, db."""
    for name in gradients:
        if name not in GRADIENTS:
            raise UnknownGradient(f"gradient {name}", "not a gradient", ", ".join(GRADIENTS))
    if not gradients:
        raise NothingToCompute("no gradient", "there is nothing to compute", ", ".join(GRADIENTS))
    return tuple(name for name in GRADIENTS if name in gradients)


def check_mixed(dtypes: Mapping[str, str]) -> None:
    """Element types of the inputs exist, and are one type or 8-bit floats, which nc_matmul pairs."""
    for name, given in dtypes.items():
        if given not in DTYPES:
            raise UnknownDtype(f"{name} dtype {given}", "not an element type", ", ".join(DTYPES))
    if len(set(dtypes.values())) > 1 and any(DTYPES[d].bytes > 1 for d in dtypes.values()):
        raise MixedDtypes(
            ", ".join(f"{name} of {given}" for name, given in dtypes.items()),
            "only 8-bit floats may be mixed",
            f"one type, or any of {', '.join(d for d, row in DTYPES.items() if row.bytes == 1)}",
        )


def check_choices(dtype: str, out_dtype: str, math_mode: str, target: str, lnc: int) -> None:
    """Element types, math mode, target and core count are ones that kernels are made for."""
    for given, name in (("dtype", dtype), ("out dtype", out_dtype)):
        if name not in DTYPES:
            raise UnknownDtype(f"{given} {name}", "not an element type", ", ".join(DTYPES))
    if math_mode not in MATHS:
        raise UnknownMath(f"math {math_mode}", "not a math mode", ", ".join(MATHS))
    if math_mode != "full" and dtype != "fp32":
        raise MathNeedsFp32(
            f"math {math_mode} with dtype {dtype}",
            "only fp32 inputs have a narrower matmul to ask for",
            "math full, or dtype fp32",
        )
    if target not in TARGETS:
        raise UnknownTarget(f"target {target}", "no hardware table", ", ".join(TARGETS))
    if lnc not in LNCS:
        raise UnknownLnc(f"lnc {lnc}", "not a number of physical cores per logical core", "1 or 2")
