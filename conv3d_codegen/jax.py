# SPDX-License-Identifier: Apache-2.0
"""A JAX convolution whose gradients come from our kernels.

    from conv3d_codegen import jax as kernels

    y = kernels.conv(x, filters, bias, stride=2, padding=1)

The forward pass is XLA's. Backwards, arrays on a Neuron device use the kernel; arrays on the CPU
use XLA's own gradients, or the bundled simulator where `simulate_on_cpu()` is around the trace.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from conv3d_codegen.calls.policy import simulate_on_cpu, simulates
from conv3d_codegen.calls.run import device_runner, simulator_runner
from conv3d_codegen.compile.toolchain import host_target
from conv3d_codegen.dtypes import DTYPES
from conv3d_codegen.errors import RequestError
from conv3d_codegen.geometry import ConvGeometry, rules
from conv3d_codegen.geometry.layouts import SPATIAL, activation_layout, at_rank, filter_layout

__all__ = ["conv", "simulate_on_cpu"]

_NAMES = {row.numpy: row.name for row in DTYPES.values()}


def conv(x: jax.Array, filters: jax.Array, bias: jax.Array | None = None, **how: Any) -> jax.Array:
    """Convolve, ordinarily or transposed, over 1 to 3 spatial axes.

    Args:
        x: [N, C_in, D, H, W], or as the layout says.
        filters: [K_d, K_h, K_w, C_in / groups, C_out], or as the filter layout says; of x's dtype.
        bias: [C_out]; of x's dtype.
        how: the fields of `ConvGeometry` that say how: stride, padding, dilation (one number, one
            per axis; padding also two per axis), groups, transposed, output_padding, layout,
            filter_layout, and lnc, the physical cores per logical core that a kernel runs on.

    Returns:
        The output, of x's dtype.

    Raises:
        RequestError: the arguments state no convolution.
    """
    dtypes = {tensor.dtype for tensor in (x, filters, bias) if tensor is not None}
    has_kernel = x.shape[0] > 0 and len(dtypes) == 1 and x.dtype in _NAMES
    how = {"dtype": _NAMES[x.dtype] if has_kernel else "fp32", "target": host_target(), **how}
    geometry = _geometry(x.shape, filters.shape, how)
    if has_kernel and (_on_neuron() or simulates(geometry)):
        return _conv(geometry, x, filters, bias)
    return _forward(geometry, x, filters, bias)


def _on_neuron() -> bool:
    return jax.default_backend() == "neuron"


def _geometry(
    x_shape: tuple[int, ...], filter_shape: tuple[int, ...], how: dict[str, Any]
) -> ConvGeometry:
    """Read the geometry off the shapes; an empty batch stands as a batch of 1."""
    rank = len(x_shape) - 2
    rules.check_rank(rank, f"x of shape {x_shape}")
    if len(filter_shape) != len(x_shape):
        raise _wrong_filters(filter_shape, x_shape, f"{rank + 2} axes")
    layout = at_rank(activation_layout(how.get("layout", "NCDHW"), rank), rank)
    filters = _filter_axes(filter_layout(how.get("filter_layout", "DHWCN"), rank), rank)
    extents = dict(zip(layout, x_shape, strict=True))
    taps = dict(zip(filters, filter_shape, strict=True))
    spatial = [letter for letter in SPATIAL if letter in extents]
    outputs = taps["I"] * how.get("groups", 1) if how.get("transposed") else taps["O"]
    geometry = ConvGeometry.from_shapes(
        (extents["N"] or 1, extents["C"], *(extents[letter] for letter in spatial)),
        (outputs, *(taps[letter] for letter in spatial)),
        **how,
    )
    if geometry.filter_shape != tuple(filter_shape):
        raise _wrong_filters(filter_shape, x_shape, str(geometry.filter_shape))
    return geometry


def _wrong_filters(given: tuple[int, ...], x: tuple[int, ...], accepted: str) -> RequestError:
    return RequestError(
        "wrong-shape", f"filters {given} do not belong to x {x}; accepted: {accepted}"
    )


def _filter_axes(layout: str, rank: int) -> str:
    """Return a filter layout in JAX's letters: O and I for what DHWCN calls N and C."""
    return at_rank(layout, rank).translate(str.maketrans("NC", "OI"))


def _forward(
    geometry: ConvGeometry, x: jax.Array, filters: jax.Array, bias: jax.Array | None
) -> jax.Array:
    """Compute the output with XLA's own convolution."""
    axes = geometry.axes[-geometry.rank :]
    activation = at_rank(geometry.layout, geometry.rank)
    weights = _filter_axes(geometry.filter_layout, geometry.rank)
    padding = [(axis.pad_before, axis.pad_after) for axis in axes]
    strides = [axis.stride for axis in axes]
    dilated = [1] * geometry.rank
    if geometry.transposed:
        # The same windows read the other way: x spread by the stride, and the filters turned round.
        padding = [
            (axis.extent - 1 - before, axis.extent - 1 - after)
            for axis, (before, after) in zip(axes, padding, strict=True)
        ]
        strides, dilated = dilated, strides
        filters = _turned(filters, weights, geometry.groups)
        weights = weights.translate(str.maketrans("OI", "IO"))
    y = lax.conv_general_dilated(
        x,
        filters,
        strides,
        padding,
        lhs_dilation=dilated,
        rhs_dilation=[axis.dilation for axis in axes],
        dimension_numbers=(activation, weights, activation),
        feature_group_count=geometry.groups,
    )
    if bias is None:
        return y
    return y + bias.reshape([-1 if letter == "C" else 1 for letter in activation])


def _turned(filters: jax.Array, axes: str, groups: int) -> jax.Array:
    """Reverse the taps, and move the groups from the axis O to the axis I."""
    reversed_taps = jnp.flip(filters, [axes.index(letter) for letter in axes if letter in SPATIAL])
    split = jnp.stack(jnp.split(reversed_taps, groups, axes.index("O")), axes.index("I"))
    shape = list(reversed_taps.shape)
    shape[axes.index("O")] //= groups
    shape[axes.index("I")] *= groups
    return split.reshape(shape)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _conv(
    geometry: ConvGeometry, x: jax.Array, filters: jax.Array, bias: jax.Array | None
) -> jax.Array:
    return _forward(geometry, x, filters, bias)


def _conv_fwd(geometry: ConvGeometry, x: Any, filters: Any, bias: Any) -> tuple[Any, Any]:
    """Compute the output, and note the operands and which gradients are wanted."""
    operands = {"dx": x, "dw": filters, "db": bias}
    wanted = tuple(name for name, it in operands.items() if it is not None and it.perturbed)
    y = _forward(geometry, x.value, filters.value, None if bias is None else bias.value)
    return y, (replace(geometry, gradients=wanted), x.value, filters.value)


def _conv_bwd(_: ConvGeometry, residuals: Any, dy: jax.Array) -> tuple[Any, Any, Any]:
    """Run the kernel, on the device or by a callback in the simulator."""
    geometry, x, filters = residuals
    results = dict(zip(geometry.gradients, _run(geometry, dy, x, filters), strict=True))
    return results.get("dx"), results.get("dw"), results.get("db")


def _run(geometry: ConvGeometry, *tensors: jax.Array) -> tuple[jax.Array, ...]:
    if _on_neuron():
        return device_runner(geometry)(*tensors)
    shapes = {"dx": geometry.dx_shape, "dw": geometry.dw_shape, "db": geometry.db_shape}
    results = [jax.ShapeDtypeStruct(shapes[name], tensors[0].dtype) for name in geometry.gradients]

    def simulated(*arrays: Any) -> tuple[Any, ...]:
        return simulator_runner(geometry)(*map(np.asarray, arrays))

    return tuple(jax.pure_callback(simulated, results, *tensors, vmap_method="sequential"))


# Geometries travel from the forward to the backward pass as structure, not as values.
jax.tree_util.register_static(ConvGeometry)
_conv.defvjp(_conv_fwd, _conv_bwd, symbolic_zeros=True)
