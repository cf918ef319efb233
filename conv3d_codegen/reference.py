# SPDX-License-Identifier: Apache-2.0
"""What the gradients are: numpy, one tap at a time, simple enough to be checked by reading.

Inside, activations are [group, channel of the group, N, D, H, W] and filters
[K_d, K_h, K_w, group, M, C]: M the narrow and C the wide channels of a group (see `Correlation`).
Padding is real: windows are cut from a tensor with zeros around it.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from conv3d_codegen.dtypes import dtype
from conv3d_codegen.geometry.layouts import at_rank

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conv3d_codegen.geometry import ConvGeometry, Correlation

Array = np.ndarray[Any, np.dtype[Any]]
Tap = tuple[int, int, int]

_CHANNELS_AND_BATCH = (slice(None),) * 3

# Integers up to here are float64 values, so sums of products that stay below are exact there.
_EXACT_IN_FLOAT64 = 2**53


def conv_backward_reference(
    geometry: ConvGeometry, dy: Array, x: Array, w: Array
) -> dict[str, Array]:
    """Return the asked gradients by name, at the kernel's rank and layouts.

    Integer inputs give int64, exact as long as the sums fit; all others give float64.
    """
    integers = all(np.issubdtype(array.dtype, np.integer) for array in (dy, x, w))
    number = np.int64 if integers and not _fits_float64(geometry, dy, x, w) else np.float64
    activation, filters = _axis_names(geometry)
    tensors = {
        "dy": _split_groups(_canonical(dy.astype(number), activation, "CNDHW"), geometry.groups),
        "x": _split_groups(_canonical(x.astype(number), activation, "CNDHW"), geometry.groups),
    }
    contraction = geometry.as_correlation()
    wide, narrow = tensors[contraction.wide], tensors[contraction.narrow]
    taps = _canonical(w.astype(number), filters, "DHWOI")
    taps = taps.reshape(*geometry.kernel_size, geometry.groups, -1, taps.shape[-1])

    results = {}
    if "dx" in geometry.gradients:
        if contraction.wide == "x":
            dx = _wide_gradient(contraction, narrow, taps)
        else:
            dx = _narrow_gradient(contraction, wide, taps)
        results["dx"] = _in_layout(dx.reshape(-1, *dx.shape[2:]), "CNDHW", activation)
    if "dw" in geometry.gradients:
        dw = _filter_gradient(contraction, wide, narrow)
        results["dw"] = _in_layout(dw.reshape(*dw.shape[:3], -1, dw.shape[-1]), "DHWOI", filters)
    if "db" in geometry.gradients:
        results["db"] = tensors["dy"].sum(axis=(2, 3, 4, 5)).reshape(-1)
    return {name: array.astype(np.int64 if integers else number) for name, array in results.items()}


def float_bound(geometry: ConvGeometry, name: str, dy: Array, x: Array, w: Array) -> Array:
    """Return the largest error, element by element, that a right kernel's rounding can cause.

    A gradient is a sum of n products (n terms for db) of inputs taken as exact. With u = 2**-24
    for fp32 and S the sum of the terms' magnitudes:

    * rounding each operand to a narrower math type of unit roundoff v changes each product by at
      most (2v + v²) of itself;
    * n - 1 additions in fp32, in any order, and one rounding of each product err by at most
      gamma S with gamma = n u / (1 - n u) (Higham, Accuracy and Stability of Numerical
      Algorithms, section 3.1);
    * the result is then rounded once to the output type: at most its unit roundoff of what was
      computed, or half its smallest subnormal.
    """
    single = replace(geometry, gradients=(name,))
    exact = conv_backward_reference(single, dy, x, w)[name]
    terms = conv_backward_reference(single, abs(dy), abs(x), abs(w))[name]
    narrowed = 0.0
    if geometry.math != "full" and name != "db":
        roundoff = _MATH_ROUNDOFF[geometry.math]
        narrowed = 2 * roundoff + roundoff**2
    length = _reduction_length(geometry, name) * dtype("fp32").unit_roundoff
    computed = (narrowed + (1 + narrowed) * length / (1 - length)) * terms
    out = dtype(geometry.out_dtype)
    bound: Array = (
        computed + out.unit_roundoff * (abs(exact) + computed) + out.smallest_subnormal / 2
    )
    return bound


# tf32 keeps 10 fraction bits (NKI data type table).
_MATH_ROUNDOFF = {"tf32": 2.0**-11, "bf16": dtype("bf16").unit_roundoff}


def _reduction_length(geometry: ConvGeometry, name: str) -> int:
    """Return the number of terms that an element of a gradient sums at most."""
    contraction = geometry.as_correlation()
    if name == "db":
        return int(geometry.batch * np.prod(geometry.output_size))
    if name == "dw":
        return int(geometry.batch * np.prod([axis.out for axis in contraction.axes]))
    return int(np.prod(geometry.kernel_size)) * geometry.out_channels // geometry.groups


def _fits_float64(geometry: ConvGeometry, dy: Array, x: Array, w: Array) -> bool:
    """Say whether every sum of integer products is a float64 value, so that BLAS is exact."""
    dy_max, x_max, w_max = (int(abs(array).max(initial=0)) for array in (dy, x, w))
    sums = {"dx": dy_max * w_max, "dw": dy_max * x_max, "db": dy_max}
    return all(
        sums[name] * _reduction_length(geometry, name) < _EXACT_IN_FLOAT64
        for name in geometry.gradients
    )


def _narrow_gradient(contraction: Correlation, wide: Array, filters: Array) -> Array:
    """Correlate the wide tensor with the filters."""
    padded = _padded(contraction, wide)
    total: Array = np.zeros(1, wide.dtype)
    for tap, window in _windows(contraction, padded):
        total = total + _contract(filters[tap], window)
    return total


def _wide_gradient(contraction: Correlation, narrow: Array, filters: Array) -> Array:
    """Add every window's contribution to the positions that the window reads."""
    channels = contraction.wide_channels // contraction.groups
    sizes = [axis.size for axis in contraction.axes]
    empty = np.zeros((contraction.groups, channels, narrow.shape[2], *sizes), narrow.dtype)
    padded = _padded(contraction, empty)
    for tap, window in _windows(contraction, padded):
        window[...] += _contract(filters[tap].swapaxes(1, 2), narrow)
    inside = tuple(slice(a.pad_before, a.pad_before + a.size) for a in contraction.axes)
    return padded[_CHANNELS_AND_BATCH + inside]


def _filter_gradient(contraction: Correlation, wide: Array, narrow: Array) -> Array:
    """Contract both tensors over batch and windows, once per tap."""
    kernel = [axis.kernel for axis in contraction.axes]
    result = np.zeros((*kernel, *narrow.shape[:2], wide.shape[1]), wide.dtype)
    flat = narrow.reshape(*narrow.shape[:2], -1)
    for tap, window in _windows(contraction, _padded(contraction, wide)):
        result[tap] = flat @ window.reshape(*window.shape[:2], -1).swapaxes(1, 2)
    return result


def _contract(matrices: Array, tensor: Array) -> Array:
    """Multiply the channels of every group, axes 0 and 1 of the tensor, by the group's matrix."""
    product_ = matrices @ tensor.reshape(*tensor.shape[:2], -1)
    return product_.reshape(*product_.shape[:2], *tensor.shape[2:])


def _padded(contraction: Correlation, wide: Array) -> Array:
    """Put zeros around the wide tensor, as far as any window reaches."""
    widths = [(0, 0)] * 3
    for axis in contraction.axes:
        reach = (axis.out - 1) * axis.stride + axis.extent  # end of the last window
        widths.append((axis.pad_before, max(0, reach - axis.pad_before - axis.size)))
    return np.pad(wide, widths)


def _windows(contraction: Correlation, padded: Array) -> Iterator[tuple[Tap, Array]]:
    """Yield for each tap what all windows read through it, as a view of the padded tensor."""
    depth, height, width = contraction.axes
    for tap in product(range(depth.kernel), range(height.kernel), range(width.kernel)):
        reads = tuple(
            slice(t * axis.dilation, t * axis.dilation + axis.out * axis.stride, axis.stride)
            for axis, t in zip(contraction.axes, tap, strict=True)
        )
        yield tap, padded[_CHANNELS_AND_BATCH + reads]


def _split_groups(tensor: Array, groups: int) -> Array:
    return tensor.reshape(groups, -1, *tensor.shape[1:])


def _axis_names(geometry: ConvGeometry) -> tuple[str, str]:
    """Return the axes of activations and filters, one letter each, as the user has them."""
    activation = at_rank(geometry.layout, geometry.rank)
    filters = at_rank(geometry.filter_layout, geometry.rank)
    return activation, filters.translate(str.maketrans("NC", "OI"))


def _canonical(array: Array, names: str, order: str) -> Array:
    """Bring axes into an order that may name more of them; those have extent 1."""
    present = [name for name in order if name in names]
    moved = array.transpose([names.index(name) for name in present])
    return np.expand_dims(moved, [i for i, name in enumerate(order) if name not in names])


def _in_layout(array: Array, order: str, names: str) -> Array:
    """Undo `_canonical`."""
    present = [name for name in order if name in names]
    absent = tuple(i for i, name in enumerate(order) if name not in names)
    return array.squeeze(absent).transpose([present.index(name) for name in names])
