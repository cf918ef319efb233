# SPDX-License-Identifier: Apache-2.0
"""Runs the kernel of a geometry: in the bundled simulator, or on the device through nki."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from conv3d_codegen.calls.kernels import find_source
from conv3d_codegen.compile.loading import load_kernel
from conv3d_codegen.compile.toolchain import find_toolchain, has_device
from conv3d_codegen.errors import RequestError
from conv3d_codegen.simulator import simulate

if TYPE_CHECKING:
    from collections.abc import Callable

    from conv3d_codegen.geometry import ConvGeometry

    # Tensors in, the gradients that the geometry asks for out, in its order.
    Runner = Callable[[Any, Any, Any], tuple[Any, ...]]

# Kernels kept ready; more than the layers of any one model.
_KEPT = 1024


def run_kernel(geometry: ConvGeometry, dy: Any, x_in: Any, filters: Any) -> tuple[Any, ...]:
    """Run a geometry's kernel on tensors of its shapes, layouts and dtype.

    Returns:
        The gradients that the geometry asks for, in the order dx, dw, db.
    """
    return runner_for(geometry, is_numpy=isinstance(dy, np.ndarray))(dy, x_in, filters)


def runner_for(geometry: ConvGeometry, *, is_numpy: bool) -> Runner:
    """Choose how to run: the device if there is one, else the simulator for numpy arrays.

    Raises:
        RequestError: tensors of a framework, and no Neuron device.
    """
    if has_device():
        return device_runner(geometry)
    if is_numpy:
        return simulator_runner(geometry)
    raise RequestError(
        "no-device",
        "these tensors are a framework's, and this host has no Neuron device; accepted: numpy "
        "arrays, or the layers of conv3d_codegen.torch and conv3d_codegen.jax",
    )


@lru_cache(maxsize=_KEPT)
def simulator_runner(geometry: ConvGeometry) -> Runner:
    """Run the kernel in the simulator, which takes numpy arrays."""
    source, filename = find_source(geometry), f"{geometry.module_name()}.py"

    def run(dy: Any, x_in: Any, filters: Any) -> tuple[Any, ...]:
        result = simulate(
            source,
            (dy, x_in, filters),
            target=geometry.target,
            lnc=geometry.lnc,
            filename=filename,
        )
        if result.violations:
            first = result.violations[0]
            raise RequestError(
                "kernel-rejected",
                f"{filename}, line {first.line}: [{first.rule}] {first.message}; "
                "a kernel is run only if it breaks no rule",
            )
        return result.outputs

    return run


@lru_cache(maxsize=_KEPT)
def device_runner(geometry: ConvGeometry) -> Runner:
    """Run the kernel through nki, which takes numpy arrays and tensors of its frameworks."""
    find_toolchain()  # says what to install rather than fail on import
    kernel = load_kernel(find_source(geometry), geometry.module_name())
    launch = kernel[geometry.lnc] if geometry.lnc > 1 else kernel

    def run(dy: Any, x_in: Any, filters: Any) -> tuple[Any, ...]:
        returned = launch(dy, x_in, filters)
        return returned if isinstance(returned, tuple) else (returned,)

    return run
