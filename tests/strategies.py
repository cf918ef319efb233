# SPDX-License-Identifier: Apache-2.0
"""Random valid geometries, features switched on by name."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hypothesis import settings
from hypothesis import strategies as st

from conv3d_codegen.dtypes import DTYPES
from conv3d_codegen.geometry import AxisGeometry, ConvGeometry
from conv3d_codegen.geometry.layouts import ACTIVATION_LAYOUTS, FILTER_LAYOUTS
from conv3d_codegen.geometry.rules import GRADIENTS, LNCS, MATHS, TARGETS

if TYPE_CHECKING:
    from collections.abc import Collection

# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

FEATURES = ("ranks", "groups", "transposed", "layouts", "dtypes", "gradients", "targets", "lnc")

EIGHT_BITS = tuple(name for name, row in DTYPES.items() if row.bytes == 1)
INPUT_DTYPES = ("dtype", "dy_dtype", "filter_dtype")
MAX_EXTENT = 11
MAX_EXTENT_TRANSPOSED = 4  # its output is up to four times as large
MAX_CHANNELS = 200
MAX_KERNEL = 5
MAX_STEP = 4
MAX_PADDING = 5


@st.composite
def axes(draw: st.DrawFn) -> AxisGeometry:
    """Draw an axis of an ordinary convolution that holds at least one window."""
    before, after = draw(st.integers(0, MAX_PADDING)), draw(st.integers(0, MAX_PADDING))
    dilation = draw(st.integers(1, MAX_STEP))
    fitting = (MAX_EXTENT + before + after - 1) // dilation + 1
    kernel = draw(st.integers(1, min(MAX_KERNEL, fitting)))
    least = max(1, dilation * (kernel - 1) + 1 - before - after)
    size = draw(st.integers(least, MAX_EXTENT))
    return AxisGeometry(size, kernel, draw(st.integers(1, MAX_STEP)), dilation, before, after)


@st.composite
def transposed_axes(draw: st.DrawFn) -> tuple[AxisGeometry, int]:
    """Draw an axis of a transposed convolution, by x's extent, with its output padding."""
    size, kernel = draw(st.integers(1, MAX_EXTENT_TRANSPOSED)), draw(st.integers(1, MAX_KERNEL))
    stride, dilation = draw(st.integers(1, MAX_STEP)), draw(st.integers(1, MAX_STEP))
    output_padding = draw(st.integers(0, max(stride, dilation) - 1))
    removable = (size - 1) * stride + (kernel - 1) * dilation + output_padding
    before = draw(st.integers(0, min(MAX_PADDING, removable)))
    after = draw(st.integers(0, min(MAX_PADDING, removable - before)))
    return AxisGeometry(size, kernel, stride, dilation, before, after), output_padding


@st.composite
def geometries(
    draw: st.DrawFn, features: Collection[str] = (), max_channels: int = MAX_CHANNELS
) -> ConvGeometry:
    """Draw a geometry: 3-D, one group and all defaults but for the features named."""
    unknown = set(features) - set(FEATURES)
    assert not unknown, unknown
    rank = draw(st.integers(1, 3)) if "ranks" in features else 3
    groups = draw(st.integers(1, max_channels)) if "groups" in features else 1
    inner, outer = draw(st.tuples(*[st.integers(1, max_channels // groups)] * 2))
    transposed = "transposed" in features and draw(st.booleans())
    if transposed:
        per_axis, output_padding = zip(*draw(st.tuples(*[transposed_axes()] * rank)), strict=True)
    else:
        per_axis, output_padding = draw(st.tuples(*[axes()] * rank)), (0,) * rank
    return ConvGeometry.from_shapes(
        (draw(st.integers(1, 3)), groups * inner, *(axis.size for axis in per_axis)),
        (groups * outer, *(axis.kernel for axis in per_axis)),
        stride=[axis.stride for axis in per_axis],
        dilation=[axis.dilation for axis in per_axis],
        padding=[pad for axis in per_axis for pad in (axis.pad_before, axis.pad_after)],
        output_padding=output_padding,
        groups=groups,
        transposed=transposed,
        **draw(_choices(features)),
    )


@st.composite
def paired_geometries(draw: st.DrawFn) -> ConvGeometry:
    """Draw a geometry of 8-bit inputs with channels enough for double rows."""
    features = ("layouts", "gradients", "targets", "lnc", "transposed")
    geometry = draw(geometries(features, max_channels=9))
    changes: dict[str, Any] = {name: draw(st.sampled_from(EIGHT_BITS)) for name in INPUT_DTYPES}
    changes["out_channels"] = draw(st.sampled_from((130, 132, 192, 256, 260)))
    changes["in_channels"] = draw(st.sampled_from((geometry.in_channels, 100, 130)))
    return replace(geometry, out_dtype="bf16", **changes)


@st.composite
def _choices(draw: st.DrawFn, features: Collection[str]) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    if "layouts" in features:
        chosen["layout"] = draw(st.sampled_from(ACTIVATION_LAYOUTS))
        chosen["filter_layout"] = draw(st.sampled_from(FILTER_LAYOUTS))
    if "dtypes" in features:
        chosen["dtype"] = draw(st.sampled_from(sorted(DTYPES)))
        chosen["out_dtype"] = draw(st.sampled_from(sorted(DTYPES)))
        if chosen["dtype"] == "fp32":
            chosen["math"] = draw(st.sampled_from(MATHS))
        if chosen["dtype"] in EIGHT_BITS:
            chosen |= {name: draw(st.sampled_from(EIGHT_BITS)) for name in INPUT_DTYPES[1:]}
    if "gradients" in features:
        chosen["gradients"] = draw(st.sets(st.sampled_from(GRADIENTS), min_size=1))
    if "targets" in features:
        chosen["target"] = draw(st.sampled_from(TARGETS))
    if "lnc" in features:
        chosen["lnc"] = draw(st.sampled_from(LNCS))
    return chosen
