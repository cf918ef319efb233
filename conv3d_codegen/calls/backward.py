# SPDX-License-Identifier: Apache-2.0
"""`conv3d_bwd`: the gradients of a convolution, with the signature of the NKI library's function.

A call is prepared once per shapes, dtypes and steps; preparing finds the kernel. A repeated call
looks its preparation up and goes straight to the kernel.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from conv3d_codegen.calls.kernels import add_pack
from conv3d_codegen.calls.run import device_runner, runner_for, simulator_runner
from conv3d_codegen.compile.toolchain import host_target
from conv3d_codegen.dtypes import DTYPES
from conv3d_codegen.errors import RequestError, UnknownDtype
from conv3d_codegen.geometry import ConvGeometry
from conv3d_codegen.geometry.rules import GRADIENTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from conv3d_codegen.packs import Pack

    Steps = int | Iterable[int]
    FixedSteps = int | tuple[int, ...]


class Tensor(Protocol):
    """What every framework's arrays have."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents."""

    @property
    def dtype(self) -> Any:
        """Element type, an object of the framework."""


@dataclass(frozen=True, slots=True)
class CallForm:
    """Everything about a call but the values: calls of one form share one kernel."""

    shapes: tuple[tuple[int, ...], ...]  # of dy, x_in, filters
    dtypes: tuple[Any, ...]
    steps: tuple[FixedSteps, FixedSteps, FixedSteps]  # stride, padding, dilation
    groups: int
    compute: tuple[bool, bool, bool]
    lnc: int
    is_numpy: bool


class ConvBackward:
    """A function of tensors; `conv3d_bwd[2]` is the same on both cores of a logical core."""

    def __init__(self, lnc: int = 1) -> None:
        self._lnc = lnc

    def __getitem__(self, lnc: int) -> ConvBackward:
        return ConvBackward(lnc)

    def __call__(  # noqa: PLR0913, PLR0917 (the signature of the function that this one replaces)
        self,
        dy: Tensor,
        x_in: Tensor,
        filters: Tensor,
        stride: Steps = 1,
        padding: Steps = 0,
        dilation: Steps = 1,
        groups: int = 1,
        compute_dx: bool = True,
        compute_dw: bool = True,
        compute_db: bool = True,
    ) -> Any:
        """Compute the gradients of a convolution of 1 to 3 spatial axes.

        Args:
            dy: gradient of the output, [N, C_out, D_out, H_out, W_out].
            x_in: input, [N, C_in, D, H, W].
            filters: [K_d, K_h, K_w, C_in / groups, C_out]; one dtype for all three tensors, or
                8-bit floats of either kind.
            stride: one number, or one per axis.
            padding: one number, one per axis, or two per axis (before, after).
            dilation: one number, or one per axis.
            groups: channel groups.
            compute_dx: whether dx is asked for, of x_in's shape.
            compute_dw: whether dw is asked for, of the filters' shape.
            compute_db: whether db is asked for, [C_out].

        Returns:
            The gradients that were asked for, in the order dx, dw, db; one alone is no tuple.
            An empty batch has an empty dx and zeros for dw and db.

        Raises:
            RequestError: the tensors do not belong together, or no kernel is made for them.
        """
        form = CallForm(
            (dy.shape, x_in.shape, filters.shape),
            (dy.dtype, x_in.dtype, filters.dtype),
            (_fixed(stride), _fixed(padding), _fixed(dilation)),
            groups,
            (compute_dx, compute_dw, compute_db),
            self._lnc,
            isinstance(dy, np.ndarray),
        )
        return prepare(form)(dy, x_in, filters)


conv3d_bwd = ConvBackward()


def _fixed(steps: Steps) -> FixedSteps:
    return tuple(steps) if isinstance(steps, Iterable) else steps


@lru_cache(maxsize=1024)
def prepare(form: CallForm) -> Callable[[Any, Any, Any], Any]:
    """Find what computes the gradients of calls of this form."""
    geometry = call_geometry(form)
    if form.shapes[1][0] == 0:
        return _empty_batch(geometry.gradients)
    run = runner_for(geometry, is_numpy=form.is_numpy)
    if len(geometry.gradients) > 1:
        return run
    return lambda dy, x_in, filters: run(dy, x_in, filters)[0]


def use_pack(pack: Pack) -> None:
    """Take kernels from a loaded pack, before installed packs, the cache and the emitter.

    It holds for this process and for every call and layer that is made from now on. Of two packs
    with a kernel for the same geometry, the one that was named last decides.
    """
    add_pack(pack)
    for memo in (prepare, simulator_runner, device_runner):
        memo.cache_clear()


def call_geometry(form: CallForm) -> ConvGeometry:
    """Return the geometry of a call; an empty batch stands as a batch of 1."""
    dy_shape, x_shape, filter_shape = form.shapes
    rank = len(x_shape) - 2
    if not len(filter_shape) == len(dy_shape) == len(x_shape):
        listed = " ".join(map(_extents, form.shapes))
        raise _wrong_shape(f"dy, x_in, filters {listed}", "they differ in rank", "one rank")
    stride, padding, dilation = form.steps
    geometry = ConvGeometry.from_shapes(
        (x_shape[0] or 1, *x_shape[1:]),
        (filter_shape[-1], *filter_shape[:rank]),
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=form.groups,
        gradients=[name for name, asked in zip(GRADIENTS, form.compute, strict=True) if asked],
        **_dtypes(form.dtypes),
        lnc=form.lnc,
        target=host_target(),
    )
    expected = {"dy": (x_shape[0], *geometry.dy_shape[1:]), "filters": geometry.filter_shape}
    for name, given in (("dy", dy_shape), ("filters", filter_shape)):
        if tuple(given) != expected[name]:
            raise _wrong_shape(
                f"{name} {_extents(given)}",
                f"does not belong to x_in {_extents(x_shape)}",
                _extents(expected[name]),
            )
    return geometry


def _dtypes(dtypes: tuple[Any, ...]) -> dict[str, str]:
    """Return our names of the element types of dy, x_in and filters, by the geometry's fields."""
    names = [str(given).removeprefix("torch.") for given in dtypes]
    known = {row.nki.removeprefix("nl."): row.name for row in DTYPES.values()}
    for name in names:
        if name not in known:
            raise UnknownDtype(f"dtype {name}", "no kernel is made for it", ", ".join(known))
    fields = ("dy_dtype", "dtype", "filter_dtype")
    return {field: known[name] for field, name in zip(fields, names, strict=True)}


def _empty_batch(gradients: tuple[str, ...]) -> Callable[[Any, Any, Any], Any]:
    """Return the gradients of no samples: sums over nothing, which need no kernel."""

    def zeros(dy: Any, x_in: Any, filters: Any) -> Any:
        shapes = {"dx": x_in.shape, "dw": filters.shape, "db": (dy.shape[1],)}
        results = tuple(_zeros(x_in, shapes[name]) for name in gradients)
        return results if len(results) > 1 else results[0]

    return zeros


def _zeros(like: Any, shape: tuple[int, ...]) -> Any:
    if hasattr(like, "new_zeros"):  # torch's way; numpy and JAX keep to the array API
        return like.new_zeros(shape)
    return like.__array_namespace__().zeros(shape, dtype=like.dtype)


def _extents(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def _wrong_shape(given: str, problem: str, accepted: str) -> RequestError:
    return RequestError("wrong-shape", f"{given}: {problem}; accepted: {accepted}")
