# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's convolution modules compute, as geometries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from conv3d_codegen.errors import UnknownDtype
from conv3d_codegen.geometry import ConvGeometry

if TYPE_CHECKING:
    from collections.abc import Sequence

DTYPES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}

# PyTorch's filters are [C_out, C_in / g, ...], those of transposed convolutions [C_in, C_out / g,
# ...]: in both, the first axis is that of the narrow tensor, which OIDHW calls O.
FILTER_LAYOUT = "OIDHW"


def module_geometry(
    module: _ConvNd,
    x_shape: tuple[int, ...],
    output_size: Sequence[int] | None = None,
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
    padding = module_padding(module)
    extents = x_shape[2:]
    steps: dict[str, Any] = {}
    if isinstance(module, _ConvTransposeNd):
        added = (
            module.output_padding if output_size is None else _added(module, x_shape, output_size)
        )
        steps = {"transposed": True, "output_padding": added}
    if module.padding_mode != "zeros":  # the values around x are computed from it before
        sums = (sum(padding[2 * axis : 2 * axis + 2]) for axis in range(len(extents)))
        extents = tuple(size + pads for size, pads in zip(extents, sums, strict=True))
        padding = (0,)
    return ConvGeometry.from_shapes(
        (*x_shape[:2], *extents),
        (module.out_channels, *module.kernel_size),
        stride=module.stride,
        padding=padding,
        dilation=module.dilation,
        groups=module.groups,
        **steps,
        **{"filter_layout": FILTER_LAYOUT, "dtype": dtype_name(module.weight.dtype)} | choices,
    )


def _added(
    module: _ConvNd, x_shape: tuple[int, ...], output_size: Sequence[int]
) -> tuple[int, ...]:
    """Return the output padding with which a transposed convolution has this output size."""
    pads, steps = module_padding(module), (module.kernel_size, module.stride, module.dilation)
    return tuple(
        out - ((size - 1) * stride + dilation * (kernel - 1) + 1 - sum(pads[2 * a : 2 * a + 2]))
        for a, (out, size, kernel, stride, dilation) in enumerate(
            zip(output_size, x_shape[2:], *steps, strict=True)
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
