# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's convolution modules compute, as geometries."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from conv3d_codegen.errors import UnknownDtype
from conv3d_codegen.geometry import ConvGeometry

DTYPES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}

# PyTorch's filters are [C_out, C_in / g, ...], those of transposed convolutions [C_in, C_out / g,
# ...]: in both, the first axis is that of the narrow tensor, which OIDHW calls O.
FILTER_LAYOUT = "OIDHW"


@dataclass(frozen=True, slots=True)
class _Form:
    """The attributes of a module that say what it computes."""

    transposed: bool
    out_channels: int
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[int, ...]  # before, after of each axis
    borders: bool  # what is around x is computed from it before, not zeros
    groups: int
    output_padding: tuple[int, ...]

    @classmethod
    def of(cls, module: _ConvNd) -> _Form:
        return cls(
            isinstance(module, _ConvTransposeNd),
            module.out_channels,
            module.kernel_size,
            module.stride,
            module.dilation,
            module_padding(module),
            module.padding_mode != "zeros",
            module.groups,
            module.output_padding,
        )


def module_geometry(
    module: _ConvNd,
    x_shape: tuple[int, ...],
    output_size: tuple[int, ...] | None = None,
    **choices: Any,
) -> ConvGeometry:
    """Return the geometry of a module's convolution of a batched input.

    Args:
        module: a convolution, ordinary or transposed, of any rank.
        x_shape: what the module is called with, [N, C_in, ...].
        output_size: spatial extents of the result, of a transposed convolution that was asked
            for them; the module's output padding does without.
        choices: further fields of the geometry, such as its gradients.
    """
    if "dtype" not in choices:
        choices["dtype"] = dtype_name(module.weight.dtype)
    return _geometry(_Form.of(module), x_shape, output_size, tuple(choices.items()))


@lru_cache(maxsize=1024)  # a layer asks in every step; a geometry takes a while to check
def _geometry(
    form: _Form,
    x_shape: tuple[int, ...],
    output_size: tuple[int, ...] | None,
    choices: tuple[tuple[str, Any], ...],
) -> ConvGeometry:
    extents, padding = x_shape[2:], form.padding
    steps: dict[str, Any] = {}
    if form.transposed:
        added = form.output_padding
        if output_size is not None:
            added = _added(form, extents, output_size)
        steps = {"transposed": True, "output_padding": added}
    if form.borders:
        sums = (sum(padding[2 * axis : 2 * axis + 2]) for axis in range(len(extents)))
        extents = tuple(size + pads for size, pads in zip(extents, sums, strict=True))
        padding = (0,)
    return ConvGeometry.from_shapes(
        (*x_shape[:2], *extents),
        (form.out_channels, *form.kernel_size),
        stride=form.stride,
        padding=padding,
        dilation=form.dilation,
        groups=form.groups,
        filter_layout=FILTER_LAYOUT,
        **steps,
        **dict(choices),
    )


def _added(form: _Form, extents: tuple[int, ...], output_size: tuple[int, ...]) -> tuple[int, ...]:
    """Return the output padding with which a transposed convolution has this output size."""
    pads, steps = form.padding, (form.kernel_size, form.stride, form.dilation)
    return tuple(
        out - ((size - 1) * stride + dilation * (kernel - 1) + 1 - sum(pads[2 * a : 2 * a + 2]))
        for a, (out, size, kernel, stride, dilation) in enumerate(
            zip(output_size, extents, *steps, strict=True)
        )
    )


def module_padding(module: _ConvNd) -> tuple[int, ...]:
    """Return a module's padding as before, after of each axis; `same` may be uneven."""
    if module.padding == "valid":
        return (0, 0) * len(module.kernel_size)
    if module.padding == "same":
        totals = (
            step * (kernel - 1)
            for step, kernel in zip(module.dilation, module.kernel_size, strict=True)
        )
        return tuple(pad for total in totals for pad in (total // 2, total - total // 2))
    return tuple(pad for pad in module.padding for _ in range(2))


def dtype_name(dtype: Any) -> str:
    """Return our name of a PyTorch element type."""
    if dtype not in DTYPES:
        raise UnknownDtype(str(dtype), "no kernel is made for it", ", ".join(map(str, DTYPES)))
    return DTYPES[dtype]
