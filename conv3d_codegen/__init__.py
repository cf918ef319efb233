# SPDX-License-Identifier: Apache-2.0
"""One 3-D convolution geometry in, one specialised NKI backward kernel out.

`conv3d_codegen.api` plans and emits kernels, `conv3d_codegen.verify` proves them right. The names
below are loaded from there on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conv3d_codegen.api import EmitOptions, Kernel, emit, plan
    from conv3d_codegen.calls import conv3d_bwd, use_pack
    from conv3d_codegen.errors import RequestError
    from conv3d_codegen.geometry import ConvGeometry
    from conv3d_codegen.packs import load_pack
    from conv3d_codegen.planner.model import KernelPlan
    from conv3d_codegen.verify import VerifyReport, verify_geometry, verify_source

__version__ = "0.1.0"

_HOMES = {
    "ConvGeometry": "geometry",
    "EmitOptions": "api",
    "Kernel": "api",
    "KernelPlan": "planner.model",
    "RequestError": "errors",
    "VerifyReport": "verify",
    "conv3d_bwd": "calls",
    "emit": "api",
    "load_pack": "packs",
    "plan": "api",
    "use_pack": "calls",
    "verify_geometry": "verify",
    "verify_source": "verify",
}

__all__ = [
    "ConvGeometry",
    "EmitOptions",
    "Kernel",
    "KernelPlan",
    "RequestError",
    "VerifyReport",
    "__version__",
    "conv3d_bwd",
    "emit",
    "load_pack",
    "plan",
    "use_pack",
    "verify_geometry",
    "verify_source",
]


def __getattr__(name: str) -> Any:
    """Load a public name from the module it lives in."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
