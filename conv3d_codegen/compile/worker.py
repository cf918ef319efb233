# SPDX-License-Identifier: Apache-2.0
"""The other side of `sandbox`: does one job, in the process that was started for it."""

from __future__ import annotations

import json
import resource
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from conv3d_codegen.compile.arrays import read_arrays, write_arrays
from conv3d_codegen.compile.frontend import compile_to_neff
from conv3d_codegen.compile.loading import load_file
from conv3d_codegen.compile.sandbox import INPUTS, JOB, OUTPUTS, Job
from conv3d_codegen.dtypes import dtype
from conv3d_codegen.geometry import ConvGeometry

if TYPE_CHECKING:
    from collections.abc import Callable


def main(place: str) -> None:
    """Do the job that the folder describes."""
    folder = Path(place)
    job = Job(**json.loads((folder / JOB).read_text(encoding="utf-8")))
    if job.memory_gib:
        limit = int(job.memory_gib * 2**30)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    geometry = ConvGeometry.parse(job.key)
    kernel = load_file(folder / f"{job.name}.py")
    if job.action == "compile":
        compile_to_neff(kernel, _blank_operands(geometry), geometry, folder / f"{job.name}.neff")
        return
    launched = kernel[geometry.lnc] if geometry.lnc > 1 else kernel
    run = _simulated(launched) if job.action == "simulate" else launched
    returned = run(*read_arrays(folder / INPUTS))
    results = returned if isinstance(returned, tuple | list) else (returned,)
    write_arrays(folder / OUTPUTS, [np.asarray(result) for result in results])


def _simulated(kernel: Any) -> Callable[..., Any]:
    simulated: Callable[..., Any] = import_module("nki").simulate(kernel)
    return simulated


def _blank_operands(geometry: ConvGeometry) -> dict[str, Any]:
    """Return arrays that say shapes and dtypes to the compiler."""
    shapes = {"dy": geometry.dy_shape, "x_in": geometry.x_shape, "filters": geometry.filter_shape}
    types = (dtype(name).numpy for name in geometry.input_dtypes.values())
    return {
        name: np.zeros(shape, to_type)
        for (name, shape), to_type in zip(shapes.items(), types, strict=True)
    }
