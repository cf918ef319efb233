# SPDX-License-Identifier: Apache-2.0
"""Finds the Neuron toolchain without importing it.

Importing `nki` fixes its target and takes seconds, and a package index may hand out a placeholder
of that name whose import raises. So a package counts as installed if its metadata names a version
that AWS has released and the files that only the real package has are there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib import metadata, util
from pathlib import Path

from conv3d_codegen.errors import RequestError

MISSING = "not installed"
PLACEHOLDER = "placeholder, not the Neuron package"

INSTALL = (
    "pip install --extra-index-url https://pip.repos.neuron.amazonaws.com 'nki>=0.3' neuronx-cc"
)

DEVICE = Path("/dev/neuron0")  # the Neuron driver's first device
PRODUCT_NAME = Path("/sys/devices/virtual/dmi/id/product_name")  # instance type, as trn2.48xlarge


@dataclass(frozen=True, slots=True)
class NeuronPackage:
    """A distribution of the toolchain, and what tells it from a placeholder."""

    distribution: str
    module: str
    submodule: str  # that only the real package has
    first_version: tuple[int, ...]  # that AWS has released under this name


NKI = NeuronPackage("nki", "nki", "isa", (0, 1))
COMPILER = NeuronPackage("neuronx-cc", "neuronxcc", "", (2,))
PACKAGES = (NKI, COMPILER)


class Generation(Enum):
    """Dialects of NKI (Neuron SDK release notes)."""

    BETA1 = "Beta 1 (neuronxcc.nki)"
    BETA2 = "Beta 2 (nki 0.1 and 0.2)"
    CURRENT = "nki 0.3 and later"


@dataclass(frozen=True, slots=True)
class Toolchain:
    """An installed toolchain that accepts our kernels. `compiler` is empty if there is none."""

    nki: str
    compiler: str = ""

    @property
    def fingerprint(self) -> str:
        """What a compiled artifact depends on besides the kernel."""
        return f"nki-{self.nki}-neuronx-cc-{self.compiler}"


def find_toolchain(*, compiler: bool = False) -> Toolchain:
    """Find an nki that accepts our kernels, and the compiler if that is asked for.

    Raises:
        RequestError: something is missing; the message says what to install.
    """
    generation = find_generation()
    if generation is None:
        raise _missing(f"nki is {package_state(NKI)}")
    if generation is not Generation.CURRENT:
        raise _missing(f"{generation.value} is installed, which does not accept these kernels")
    if compiler and not is_real(COMPILER):
        raise _missing(f"neuronx-cc is {package_state(COMPILER)}")
    found = version_of(COMPILER.distribution) if is_real(COMPILER) else ""
    return Toolchain(version_of(NKI.distribution), found)


def find_generation() -> Generation | None:
    """Say which dialect the installed toolchain speaks, if there is one."""
    if is_real(NKI):
        is_current = _numbers(version_of(NKI.distribution)) >= (0, 3)
        return Generation.CURRENT if is_current else Generation.BETA2
    if is_real(COMPILER) and has_submodule("neuronxcc", "nki"):
        return Generation.BETA1
    return None


def is_real(package: NeuronPackage) -> bool:
    """Say whether a package is installed, and is AWS's."""
    if version_of(package.distribution) == MISSING or util.find_spec(package.module) is None:
        return False
    if _numbers(version_of(package.distribution)) < package.first_version:
        return False
    return not package.submodule or has_submodule(package.module, package.submodule)


def package_state(package: NeuronPackage) -> str:
    """Return a package's version, or why it does not count as installed."""
    version = version_of(package.distribution)
    if is_real(package) or version == MISSING:
        return version
    return f"{version}: {PLACEHOLDER}"


def version_of(distribution: str) -> str:
    """Return the installed version of a distribution."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return MISSING


def has_submodule(module: str, *path: str) -> bool:
    """Say whether a package holds a submodule, from its files alone."""
    spec = util.find_spec(module)
    folders = [Path(place) for place in (spec and spec.submodule_search_locations) or ()]
    return any(
        found.is_dir() or found.suffix in {".py", ".so"}
        for folder in folders
        for found in folder.joinpath(*path[:-1]).glob(f"{path[-1]}*")
        if found.name.partition(".")[0] == path[-1]
    )


def has_device() -> bool:
    """Say whether this is a Neuron host: a device, and the toolchain that drives it."""
    return DEVICE.exists() and find_generation() is Generation.CURRENT


@cache
def host_target() -> str:
    """Return the target to make kernels for on this host; trn2 if it has no Neuron device."""
    try:
        product = PRODUCT_NAME.read_text(encoding="utf-8")
    except OSError:
        return "trn2"
    return "trn3" if product.startswith("trn3") else "trn2"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def _missing(problem: str) -> RequestError:
    return RequestError("no-toolchain", f"{problem}; install the Neuron toolchain: {INSTALL}")
