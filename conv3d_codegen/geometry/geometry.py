# SPDX-License-Identifier: Apache-2.0
"""`ConvGeometry`: one convolution backward problem, validated and canonical."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Self

from conv3d_codegen import keys
from conv3d_codegen.errors import MalformedKey, RankError
from conv3d_codegen.geometry import layouts, rules
from conv3d_codegen.geometry.axes import AxisGeometry
from conv3d_codegen.geometry.correlation import Correlation
from conv3d_codegen.geometry.numbers import as_integer, as_integers, comma, spread_over_axes

if TYPE_CHECKING:
    from collections.abc import Sequence

Triple = tuple[int, int, int]

_COUNTS = ("batch", "in_channels", "out_channels", "groups", "rank", "lnc")
_MIXED = ("dy_dtype", "filter_dtype")
_LENGTHS = {
    "input_size": 3,
    "kernel_size": 3,
    "stride": 3,
    "dilation": 3,
    "padding": 6,
    "output_padding": 3,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvGeometry:
    """Everything that decides which backward kernel is right.

    Problems of rank 1 and 2 are 3-D ones with unit axes in front; `rank` remembers the user's.
    For a transposed convolution `input_size` is still x's, and channels are named from x to dy.
    Equal problems are equal objects: fields are brought to one spelling on construction, and
    breaking a rule raises a `RequestError` (see `conv3d_codegen.errors`).
    """

    batch: int
    in_channels: int
    out_channels: int
    input_size: Triple  # (D, H, W)
    kernel_size: Triple  # (K_d, K_h, K_w)
    stride: Triple = (1, 1, 1)
    dilation: Triple = (1, 1, 1)
    padding: tuple[int, int, int, int, int, int] = (0, 0, 0, 0, 0, 0)  # before, after per axis
    groups: int = 1
    transposed: bool = False
    output_padding: Triple = (0, 0, 0)
    rank: int = 3
    gradients: tuple[str, ...] = rules.GRADIENTS
    dtype: str = "bf16"
    dy_dtype: str = ""  # empty: the same as dtype; another 8-bit float where dtype is one
    filter_dtype: str = ""  # likewise
    out_dtype: str = ""  # empty: the same as dtype
    math: str = "full"
    layout: str = "NCDHW"
    filter_layout: str = "DHWCN"
    target: str = "trn2"
    lnc: int = 1

    def __post_init__(self) -> None:
        self._canonicalise()
        rules.check_unit_axes(self.rank, self._axis_values())
        rules.check_choices(self.dtype, self.out_dtype, self.math, self.target, self.lnc)
        rules.check_mixed(self.input_dtypes)
        rules.check_spatial(
            self.input_size, self.kernel_size, self.stride, self.dilation, self.padding
        )
        channels = {"in_channels": self.in_channels, "out_channels": self.out_channels}
        rules.check_counts(self.batch, channels, self.groups)
        rules.check_output_padding(self.transposed, self.output_padding, self.stride, self.dilation)
        rules.check_magnitudes(self._magnitudes())
        if self.transposed:
            rules.check_output_size(self.output_size)
        else:
            rules.check_windows(self.axes)
        rules.check_batch(self.batch)
        rules.check_tensors(self._tensor_shapes(), self.gradients, self.out_dtype)

    @classmethod
    def from_shapes(
        cls,
        shape: Sequence[int],
        filters: Sequence[int],
        *,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        **more: Any,
    ) -> Self:
        """Make a geometry from N, C, [D, [H,]] W and filters C_out, [K_d, [K_h,]] K_w.

        Spatial values are one number for all axes or one per axis; padding may also have two per
        axis (before, after). `more` takes `output_padding` in the same form and all other fields.
        """
        rank = len(shape) - 2
        rules.check_rank(rank, f"shape {comma(shape)}")
        if len(filters) != rank + 1:
            raise RankError(
                f"filter {comma(filters)} for shape {comma(shape)}",
                f"{len(filters)} numbers",
                f"{rank + 1} numbers: the output channels and one kernel extent per axis",
            )
        values: dict[str, Any] = {"input_size": shape[2:], "kernel_size": filters[1:]}
        steps = {"stride": stride, "padding": padding, "dilation": dilation}
        steps["output_padding"] = more.pop("output_padding", 0)
        values.update({name: spread_over_axes(name, step, rank) for name, step in steps.items()})
        lifted: dict[str, Any] = {
            name: keys.lift(name, rank, value) for name, value in values.items()
        }
        lifted.update(batch=shape[0], in_channels=shape[1], out_channels=filters[0], rank=rank)
        return cls(**lifted, **more)

    @classmethod
    def parse(cls, key: str) -> Self:
        """Read a key; `parse(geometry.key()) == geometry`."""
        geometry = cls(**keys.parse_key(key))
        if geometry.key() != key:
            raise MalformedKey(f"key {key}", "not in canonical form", geometry.key())
        return geometry

    def key(self) -> str:
        """Write the readable key, see `conv3d_codegen.keys`."""
        return keys.format_key(self._values())

    def module_name(self) -> str:
        """Return the key as a Python identifier: the kernel's name and its file's stem."""
        return self.key().replace("-", "_").replace(".", "_")

    @property
    def output_size(self) -> Triple:
        """(D_out, H_out, W_out), dy's spatial extents."""
        if not self.transposed:
            depth, height, width = self.axes
            return depth.out, height.out, width.out
        return self._grown(0), self._grown(1), self._grown(2)

    @property
    def axes(self) -> tuple[AxisGeometry, AxisGeometry, AxisGeometry]:
        """The axes of the windowed contraction: windows over x, or over dy when transposed."""
        return self._axis(0), self._axis(1), self._axis(2)

    def as_correlation(self) -> Correlation:
        """Return the windowed contraction that all three gradients are derived from."""
        roles = ("dy", "x") if self.transposed else ("x", "dy")
        channels = {"x": self.in_channels, "dy": self.out_channels}
        return Correlation(
            wide=roles[0],
            narrow=roles[1],
            wide_channels=channels[roles[0]],
            narrow_channels=channels[roles[1]],
            groups=self.groups,
            axes=self.axes,
        )

    @property
    def input_dtypes(self) -> dict[str, str]:
        """Element types of the inputs by name."""
        return {
            "dy": self.dy_dtype or self.dtype,
            "x": self.dtype,
            "filters": self.filter_dtype or self.dtype,
        }

    @property
    def x_shape(self) -> tuple[int, ...]:
        """Shape of x and dx at the user's rank and layout."""
        return layouts.activation_shape(
            self.layout, self.rank, self.batch, self.in_channels, self.input_size
        )

    @property
    def dy_shape(self) -> tuple[int, ...]:
        """Shape of dy at the user's rank and layout."""
        return layouts.activation_shape(
            self.layout, self.rank, self.batch, self.out_channels, self.output_size
        )

    @property
    def filter_shape(self) -> tuple[int, ...]:
        """Shape of the filters and dw at the user's rank and filter layout.

        The axis called O (N in DHWCN) counts the channels of the tensor that windows produce: dy's
        for an ordinary convolution, x's for a transposed one, as in PyTorch and TensorFlow.
        """
        contraction = self.as_correlation()
        return layouts.filter_shape(
            self.filter_layout,
            self.rank,
            contraction.narrow_channels,
            contraction.wide_channels // self.groups,
            self.kernel_size,
        )

    @property
    def dx_shape(self) -> tuple[int, ...]:
        """Shape of dx, which is x's."""
        return self.x_shape

    @property
    def dw_shape(self) -> tuple[int, ...]:
        """Shape of dw, which is the filters'."""
        return self.filter_shape

    @property
    def db_shape(self) -> tuple[int, ...]:
        """Shape of db: one number per output channel."""
        return (self.out_channels,)

    def _axis(self, index: int) -> AxisGeometry:
        before, after = self.padding[2 * index : 2 * index + 2]
        size = self.input_size[index]
        if self.transposed:
            # Output padding grows dy by positions past the last window; taking them off the
            # padding keeps the number of windows at x's extent.
            size, after = self._grown(index), after - self.output_padding[index]
        return AxisGeometry(
            size, self.kernel_size[index], self.stride[index], self.dilation[index], before, after
        )

    def _grown(self, index: int) -> int:
        """Output extent of a transposed convolution on one axis."""
        windows = (self.input_size[index] - 1) * self.stride[index]
        extent = self.dilation[index] * (self.kernel_size[index] - 1) + 1
        pads = sum(self.padding[2 * index : 2 * index + 2])
        return windows + extent - pads + self.output_padding[index]

    def _canonicalise(self) -> None:
        """Bring every field to its one spelling; only forms and names are looked at."""
        put = object.__setattr__
        for name in _COUNTS:
            put(self, name, as_integer(name, getattr(self, name)))
        rules.check_rank(self.rank)
        for name, length in _LENGTHS.items():
            put(self, name, as_integers(name, getattr(self, name), length))
        put(self, "transposed", bool(self.transposed))
        put(self, "gradients", rules.canonical_gradients(self.gradients))
        put(self, "out_dtype", self.out_dtype or self.dtype)
        for name in _MIXED:
            put(self, name, "" if getattr(self, name) == self.dtype else getattr(self, name))
        put(self, "layout", layouts.activation_layout(self.layout, self.rank))
        put(self, "filter_layout", layouts.filter_layout(self.filter_layout, self.rank))

    def _axis_values(self) -> list[tuple[int, ...]]:
        """Per axis: size, kernel, stride, dilation, both paddings, output padding."""
        per_axis = (self.input_size, self.kernel_size, self.stride, self.dilation)
        pads = (self.padding[0::2], self.padding[1::2], self.output_padding)
        return list(zip(*per_axis, *pads, strict=True))

    def _magnitudes(self) -> dict[str, tuple[int, ...]]:
        """Every number of the geometry by field name, and the dilated kernel extents."""
        numbers: dict[str, tuple[int, ...]] = {name: (getattr(self, name),) for name in _COUNTS}
        numbers.update({name: getattr(self, name) for name in _LENGTHS})
        numbers["dilated_kernel_size"] = tuple(
            (kernel - 1) * dilation + 1
            for kernel, dilation in zip(self.kernel_size, self.dilation, strict=True)
        )
        return numbers

    def _tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        return {
            "x": self.x_shape,
            "dy": self.dy_shape,
            "filters": self.filter_shape,
            "dx": self.dx_shape,
            "dw": self.dw_shape,
            "db": self.db_shape,
        }

    def _values(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}
