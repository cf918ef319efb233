# SPDX-License-Identifier: Apache-2.0
"""The state of this installation, for people and for bug reports."""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass
from pathlib import Path

import conv3d_codegen
from conv3d_codegen.compile.toolchain import (
    PACKAGES,
    find_generation,
    has_device,
    host_target,
    package_state,
    version_of,
)

LIBRARIES = ("numpy", "sympy", "jinja2", "ml-dtypes", "click", "rich")
EXTRAS = ("torch", "jax", "pytest", "hypothesis", "ruff", "mypy")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Versions, paths and what is installed."""

    version: str
    python: str
    platform: str
    package: str
    libraries: dict[str, str]
    extras: dict[str, str]
    toolchain: dict[str, str]


def diagnose() -> Diagnosis:
    """Look around without importing anything that is looked for."""
    return Diagnosis(
        version=conv3d_codegen.__version__,
        python=platform.python_version() + " at " + sys.executable,
        platform=platform.platform(),
        package=str(Path(conv3d_codegen.__file__).parent),
        libraries={name: version_of(name) for name in LIBRARIES},
        extras={name: version_of(name) for name in EXTRAS},
        toolchain=_toolchain(),
    )


def _toolchain() -> dict[str, str]:
    generation = find_generation()
    packages = {package.distribution: package_state(package) for package in PACKAGES}
    return packages | {
        "dialect": generation.value if generation else "none",
        "device": host_target() if has_device() else "none: kernels are simulated",
    }
