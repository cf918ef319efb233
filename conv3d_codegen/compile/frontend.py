# SPDX-License-Identifier: Apache-2.0
"""From a jitted kernel to a NEFF without a device, through the compiler interface of nki.

NKI documents no single call for this. The route is `nki.compiler.frontend` (the kernel, traced or
parsed, for given operands) and `nki.compiler.ncc_driver` (neuronx-cc behind it). Signatures differ
between releases 0.3 and 0.7: arguments go by name, and only those that a release knows.
"""

from __future__ import annotations

import inspect
from contextlib import nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from conv3d_codegen.geometry import ConvGeometry


def compile_to_neff(
    kernel: Any, operands: dict[str, Any], geometry: ConvGeometry, neff: Path
) -> None:
    """Compile a kernel for operands like these into a NEFF."""
    frontend = import_module("nki.compiler.frontend")
    driver = import_module("nki.compiler.ncc_driver")
    artifacts = neff.parent / "artifacts"  # the compiler refuses a folder that is not empty
    artifacts.mkdir()
    known = {
        "inputs": operands,
        "target": geometry.target,
        "lnc": geometry.lnc,
        "artifacts_dir": str(artifacts),
        "output_path": str(neff),
    }
    # Tracing is the default from 0.7 on; before 0.6 there is only the parser.
    make = getattr(frontend, "TracerFrontend", None) or frontend.ParserFrontend
    with _ir_context() as context:
        first = (kernel,) if context is None else (context, kernel)
        result = _call(make().compile, *first, **known)
        options = _call(driver.CompileOptions, **known)
        driver.CompiledKernel.from_frontend(result, options)


def _ir_context() -> AbstractContextManager[Any]:
    """Return the context that compilation happens in, where a release has one (0.6 needs it)."""
    try:
        context: AbstractContextManager[Any] = import_module(
            "nki._backends.context"
        ).nki_ir_context()
    except ImportError:
        return nullcontext()
    return context


def _call(function: Callable[..., Any], *first: Any, **known: Any) -> Any:
    """Call with those of the named arguments that the function has."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return function(*first, **known)
    names = {parameter.name for parameter in parameters}
    return function(*first, **{name: value for name, value in known.items() if name in names})
