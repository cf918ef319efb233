# SPDX-License-Identifier: Apache-2.0
"""The geometry as schedules see it: three spatial axes, neighbours merged where no tap tells them apart.

A height axis with one tap, stride 1 and no padding is indistinguishable from more width: merging the two gives longer
rows, hence fuller matmuls and longer DMA runs. Kernels see the merged tensors through `.reshape` of their arguments.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from conv3d_codegen.geometry import AxisGeometry
from conv3d_codegen.maps import axis_map
from conv3d_codegen.planner.blocks import PARTITIONS, split_even

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from conv3d_codegen.geometry import ConvGeometry
    from conv3d_codegen.maps import AxisMap


Share = Literal["nothing", "batch", "positions", "groups", "x channels", "dy channels"]


@dataclass(frozen=True)
class Problem:
    """One convolution backward over axes (D, H, W), after merging, for one pack of groups.

    Named as for an ordinary convolution: x, with in_channels, is the tensor that windows read, dy, with out_channels,
    the one they produce. In a transposed convolution the two have changed places.

    groups: groups whose channels are computed together, as one dense problem with block-diagonal filters.
    all_groups: all groups that one core computes; channels are those of one pack.
    cores, share: how many cores there are, and what each has half of: samples, positions along an axis, groups, the
        channels of x or of dy, or nothing, where each computes all of it. Everything else here is what one core
        computes.
    halved: the axis of (D, H, W) along which each core has half of the positions, if it does.
    """

    batch: int
    in_channels: int
    out_channels: int
    axes: tuple[AxisGeometry, AxisGeometry, AxisGeometry]
    transposed: bool = False
    groups: int = 1
    all_groups: int = 1
    cores: int = 1
    share: Share = "nothing"
    halved: int | None = None

    @property
    def duplicates(self) -> tuple[str, ...]:
        """Results that both cores hold in full; one of them stores."""
        if self.cores == 1:
            return ()
        if self.exchanges:
            return "dw", "db"
        shared = {"groups": (), "x channels": ("db",), "dy channels": ()}
        return shared.get(self.share, ("dx", "dw", "db"))

    @property
    def exchanges(self) -> bool:
        """Whether dw and db are sums of what both cores have."""
        return self.cores > 1 and self.share in {"batch", "positions"}

    def of_both_cores(self, extents: tuple[int, int, int]) -> tuple[int, int, int]:
        """Give the extents of a whole tensor along D, H, W, from those that one core has."""
        d, h, w = (
            extent * (2 if number == self.halved else 1) for number, extent in enumerate(extents)
        )
        return d, h, w

    def packs(self) -> Iterator[tuple[tuple[int, int], Problem]]:
        """Give the groups [first, stop) of each pack and its own problem; the last one may be smaller."""
        for first in range(0, self.all_groups, self.groups):
            count = min(self.groups, self.all_groups - first)
            channels = (c // self.groups * count for c in (self.in_channels, self.out_channels))
            in_channels, out_channels = channels
            yield (
                (first, first + count),
                replace(self, in_channels=in_channels, out_channels=out_channels, groups=count),
            )

    @cached_property
    def maps(self) -> tuple[AxisMap, AxisMap, AxisMap]:
        """Index maps of the three axes."""
        depth, height, width = self.axes
        return axis_map(depth), axis_map(height), axis_map(width)

    @property
    def in_size(self) -> tuple[int, int, int]:
        """Extents of x and dx."""
        depth, height, width = self.axes
        return depth.size, height.size, width.size

    @property
    def out_size(self) -> tuple[int, int, int]:
        """Extents of dy."""
        depth, height, width = self.axes
        return depth.out, height.out, width.out

    @property
    def kernel(self) -> tuple[int, int, int]:
        """Taps per axis."""
        depth, height, width = self.axes
        return depth.kernel, height.kernel, width.kernel

    @property
    def x_shape(self) -> tuple[int, ...]:
        """[N, C_in, D, H, W] of one pack, after merging."""
        return (self.batch, self.in_channels, *self.in_size)

    @property
    def dy_shape(self) -> tuple[int, ...]:
        """[N, C_out, D_out, H_out, W_out] of one pack, after merging."""
        return (self.batch, self.out_channels, *self.out_size)


ALONG_H = 1  # of (D, H, W)
MOST_ROWS = 16
PACK_CHANNELS = (128, 32, 16, 8)  # channels of a pack of small groups


def _passes_through(axis: AxisGeometry) -> bool:
    """Whether output position o of the axis reads input position o alone."""
    return axis.kernel == 1 and axis.stride == 1 and axis.pad_before == 0 and axis.pad_after == 0


def _falls_in_halves(axis: AxisGeometry) -> bool:
    """Whether each half of an axis's positions has windows of its own: they are even in number, and none overlap."""
    is_apart = axis.extent <= axis.stride and axis.pad_before == axis.pad_after == 0
    return is_apart and axis.out % 2 == 0 and axis.size == axis.out * axis.stride


def _line(size: int) -> AxisGeometry:
    return AxisGeometry(size=size, kernel=1, stride=1, dilation=1, pad_before=0, pad_after=0)


def _rows_of_line(size: int, channels: int) -> int:
    """Cut a line that no tap looks along into rows, enough to fold tensors of few channels to full partitions."""
    rows = 1
    while rows < MOST_ROWS and 2 * rows * channels <= PARTITIONS and size % (2 * rows) == 0:
        rows *= 2
    return rows


def problems_of(geometry: ConvGeometry) -> tuple[Problem, ...]:
    """Build the merged problem of a geometry in every way that its cores may share it.

    Halves are equal, so that both cores run the same instructions. Where nothing can be halved, both do everything.
    """
    depth, height, width = geometry.axes
    if _passes_through(height) and _passes_through(width):
        height, width = _line(1), _line(height.size * width.size)
        if _passes_through(depth):
            depth, width = _line(1), _line(depth.size * width.size)
    elif _passes_through(depth) and _passes_through(height):
        depth, height = _line(1), _line(depth.size * height.size)
    contraction = geometry.as_correlation()
    whole = Problem(
        batch=geometry.batch,
        in_channels=contraction.wide_channels,
        out_channels=contraction.narrow_channels,
        axes=(depth, height, width),
        transposed=geometry.transposed,
        all_groups=geometry.groups,
        cores=geometry.lnc,
    )
    shared = _halves(whole, geometry.gradients) if whole.cores > 1 else [whole]
    return tuple(packed for problem in shared or [whole] for packed in _packed(problem))


def _halves(whole: Problem, gradients: Sequence[str]) -> list[Problem]:
    """Halve samples, or positions, and groups and channels where they are even.

    The channels of dy are halved only without dx, which is a sum over all of them.
    """
    found = []
    if whole.batch % 2 == 0:
        found.append(replace(whole, share="batch", batch=whole.batch // 2))
    else:
        found += _half_the_positions(whole)
    if whole.all_groups % 2 == 0:
        halves = (c // 2 for c in (whole.in_channels, whole.out_channels, whole.all_groups))
        wide, narrow, groups = halves
        half = replace(whole, in_channels=wide, out_channels=narrow, all_groups=groups)
        found.append(replace(half, share="groups"))
    if whole.all_groups == 1 and not whole.transposed and whole.in_channels % 2 == 0:
        found.append(replace(whole, share="x channels", in_channels=whole.in_channels // 2))
    if whole.all_groups == 1 and whole.transposed and whole.out_channels % 2 == 0:
        found.append(replace(whole, share="x channels", out_channels=whole.out_channels // 2))
    if whole.all_groups == 1 and "dx" not in gradients:
        wide, narrow = whole.in_channels, whole.out_channels
        if whole.transposed and wide % 2 == 0:
            found.append(replace(whole, share="dy channels", in_channels=wide // 2))
        if not whole.transposed and narrow % 2 == 0:
            found.append(replace(whole, share="dy channels", out_channels=narrow // 2))
    return found


def _half_the_positions(whole: Problem) -> list[Problem]:
    """Halve the first axis whose halves have nothing to do with each other."""
    for number, axis in enumerate(whole.axes):
        if axis.size > 1 and _falls_in_halves(axis):
            axes = list(whole.axes)
            axes[number] = replace(axis, size=axis.size // 2)
            depth, height, width = axes
            return [replace(whole, share="positions", halved=number, axes=(depth, height, width))]
    return []


def _packed(problem: Problem) -> Iterator[Problem]:
    """Put as many groups in a pack as fill the partitions, or fewer with more rows folded beside their channels.

    Products of different groups are idle work, and folded rows share taps: small packs do less of the one and more of
    the other, in more steps.
    """
    groups = problem.all_groups
    wide, narrow = problem.in_channels // groups, problem.out_channels // groups
    packs = {
        split_even(groups, max(1, min(most // max(wide, narrow), groups))) for most in PACK_CHANNELS
    }
    for pack in sorted(packs, reverse=True):
        depth, height, width = problem.axes
        halved = problem.halved
        if depth == height == _line(1) and _passes_through(width):
            rows = _rows_of_line(width.size, pack * min(wide, narrow))
            height, width = _line(rows), _line(width.size // rows)
            halved = None if halved is None else ALONG_H  # a half of the line is half of the rows
        yield replace(
            problem,
            in_channels=wide * pack,
            out_channels=narrow * pack,
            axes=(depth, height, width),
            groups=pack,
            halved=halved,
        )
