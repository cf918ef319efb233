# SPDX-License-Identifier: Apache-2.0
"""PyTorch on the CPU is the judge of the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conv3d_codegen.geometry import ConvGeometry
from conv3d_codegen.geometry.layouts import at_rank
from conv3d_codegen.reference import conv_backward_reference
from strategies import geometries

torch = pytest.importorskip("torch", reason="PyTorch is the extra `oracle`")
torch.set_num_threads(1)  # the problems are tiny; threads would only wait for each other

Array = np.ndarray[Any, np.dtype[Any]]


def _forward(geometry: ConvGeometry, x: Any, w: Any, b: Any) -> Any:
    """Run PyTorch's convolution, in its layouts, on the axes of the user's rank."""
    rank = geometry.rank
    functional = torch.nn.functional
    shared = {
        "stride": geometry.stride[-rank:],
        "dilation": geometry.dilation[-rank:],
        "groups": geometry.groups,
    }
    pads = geometry.padding[-2 * rank :]
    if not geometry.transposed:
        # PyTorch pads evenly, so pad first; its list of pads starts with the last axis.
        ends = [pads[2 * a : 2 * a + 2] for a in reversed(range(rank))]
        padded = functional.pad(x, [pad for pair in ends for pad in pair])
        return getattr(functional, f"conv{rank}d")(padded, w, b, **shared)
    # The transpose of padding x: convolve without padding, then cut the padding off the output.
    output_padding = geometry.output_padding[-rank:]
    full = getattr(functional, f"conv_transpose{rank}d")(
        x, w, b, output_padding=output_padding, **shared
    )
    kept = (slice(pads[2 * a], full.shape[2 + a] - pads[2 * a + 1]) for a in range(rank))
    return full[(slice(None), slice(None), *kept)]


def _torch_gradients(geometry: ConvGeometry, dy: Array, x: Array, w: Array) -> dict[str, Array]:
    """Let autograd find the gradients, moving axes from our layouts and back."""
    spatial = "DHW"[-geometry.rank :]
    activation, filters = (
        at_rank(layout, geometry.rank) for layout in (geometry.layout, geometry.filter_layout)
    )
    filters = filters.translate(str.maketrans("NC", "OI"))
    to_torch = [activation.index(letter) for letter in "NC" + spatial]
    filters_to_torch = [filters.index(letter) for letter in "OI" + spatial]
    x_, dy_ = (torch.from_numpy(array.transpose(to_torch).copy()) for array in (x, dy))
    w_ = torch.from_numpy(w.transpose(filters_to_torch).copy())
    b_ = torch.zeros(geometry.out_channels, dtype=torch.float64)
    leaves = [leaf.requires_grad_() for leaf in (x_, w_, b_)]
    dx, dw, db = torch.autograd.grad(_forward(geometry, *leaves), leaves, dy_)
    return {
        "dx": dx.numpy().transpose(np.argsort(to_torch)),
        "dw": dw.numpy().transpose(np.argsort(filters_to_torch)),
        "db": db.numpy(),
    }


def _check(geometry: ConvGeometry, seed: int) -> None:
    random = np.random.default_rng(seed)
    shapes = (geometry.dy_shape, geometry.x_shape, geometry.filter_shape)
    dy, x, w = (random.integers(-9, 10, shape) for shape in shapes)
    expected = _torch_gradients(geometry, *(array.astype(np.float64) for array in (dy, x, w)))
    found = conv_backward_reference(geometry, dy, x, w)
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        np.testing.assert_array_equal(gradient, expected[name], err_msg=name)


@settings(max_examples=60)
@given(
    geometries(["ranks", "groups", "transposed", "layouts"], max_channels=24), st.integers(0, 99)
)
def test_the_reference_agrees_with_pytorch(geometry: ConvGeometry, seed: int) -> None:
    _check(geometry, seed)


def test_output_padding_may_exceed_the_stride_where_the_dilation_does() -> None:
    geometry = ConvGeometry.from_shapes(
        (2, 4, 5), (6, 3), stride=2, dilation=4, transposed=True, output_padding=3, padding=2
    )
    _check(geometry, seed=0)
