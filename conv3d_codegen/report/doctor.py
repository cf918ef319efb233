# SPDX-License-Identifier: Apache-2.0
"""The state of this installation, for people and for bug reports."""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

import conv3d_codegen

LIBRARIES = ("numpy", "sympy", "jinja2", "ml-dtypes", "click", "rich")
EXTRAS = ("torch", "pytest", "hypothesis", "ruff", "mypy")

# Distribution → (module, submodule that only the real package has). The registry's packages of
# these names are placeholders: one installs an importable `nki` that raises on import.
TOOLCHAIN = {
    "nki": ("nki", "isa"),
    "neuronx-cc": ("neuronxcc", "nki"),
}

MISSING = "not installed"
PLACEHOLDER = "placeholder, not the Neuron package"


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
        toolchain={name: toolchain_state(name) for name in TOOLCHAIN},
    )


def version_of(distribution: str) -> str:
    """Return the installed version of a distribution."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return MISSING


def toolchain_state(distribution: str) -> str:
    """Return the version of a Neuron package, or why it does not count as installed."""
    module, submodule = TOOLCHAIN[distribution]
    version = version_of(distribution)
    spec = util.find_spec(module)
    if spec is None:
        return MISSING if version == MISSING else f"{version}: {PLACEHOLDER}"
    folders = [Path(location) for location in spec.submodule_search_locations or ()]
    if any(entry for folder in folders for entry in folder.glob(f"{submodule}*")):
        return version
    return f"{version}: {PLACEHOLDER}"
