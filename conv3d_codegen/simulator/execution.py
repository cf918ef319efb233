# SPDX-License-Identifier: Apache-2.0
"""Runs a kernel's code on one or two simulated cores."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from conv3d_codegen.simulator.element_types import element_type_of
from conv3d_codegen.simulator.modules import make_modules
from conv3d_codegen.simulator.rules import KernelStoppedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conv3d_codegen.simulator.core import Core
    from conv3d_codegen.simulator.element_types import Cells
    from conv3d_codegen.simulator.signatures import Signatures
    from conv3d_codegen.simulator.tensors import Blank, NkiTensor
    from conv3d_codegen.simulator.text import ParsedKernel

# The builtins that kernels of the common subset may use.
_BUILTINS = {
    function.__name__: function
    for function in (
        *(abs, bool, dict, divmod, enumerate, float, int, len, list, max, min),
        *(range, reversed, round, str, sum, tuple, zip),
    )
}


class Execution:
    """A kernel's code with its arguments, ready to run on cores."""

    def __init__(
        self,
        kernel: ParsedKernel,
        filename: str,
        inputs: Sequence[Cells | Blank],
        signatures: Signatures,
    ) -> None:
        self._code = compile(kernel.tree, filename, "exec", dont_inherit=True)
        self._entry = kernel.entry
        self._parameters = kernel.parameters
        self._inputs = inputs
        self._signatures = signatures

    def run(self, cores: Sequence[Core]) -> Any:
        """Run on all cores; what the kernel returned on the first, None if it stopped."""
        if len(cores) == 1:
            return self._run(cores[0])
        returned: dict[int, Any] = {}

        def take_part(core: Core) -> None:
            core.exchange.await_turn(core)
            try:
                returned[core.rank] = self._run(core)
            finally:
                core.exchange.finish(core)

        threads = [threading.Thread(target=take_part, args=(core,), daemon=True) for core in cores]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return returned.get(0)

    def _run(self, core: Core) -> Any:
        nki = make_modules(core, self._signatures)

        def private_import(name: str, *_: Any) -> Any:
            return nki

        namespace: dict[str, Any] = {
            "__builtins__": {
                **_BUILTINS,
                "__import__": private_import,
                "print": lambda *_, **__: None,  # NKI prints while it compiles
            },
            "__name__": self._entry,
        }
        try:
            # Overflow and NaN are results like any other.
            with np.errstate(all="ignore"):
                exec(self._code, namespace)
                return namespace[self._entry](*self._arguments(core))
        except KernelStoppedError:
            return None
        except Exception as error:
            line = _line_of(error, core.filename)
            core.violate(line, "python-error", f"{type(error).__name__}: {error}")
            return None

    def _arguments(self, core: Core) -> list[NkiTensor]:
        if len(self._inputs) != len(self._parameters):
            expected = ", ".join(self._parameters)
            raise core.stop("kernel-function", f"called with {len(self._inputs)} for ({expected})")
        arguments = []
        for name, values in zip(self._parameters, self._inputs, strict=True):
            dtype = element_type_of(values.dtype)
            if dtype is None:
                raise core.stop("dtype", f"{name}: NKI has no type for numpy's {values.dtype}")
            arguments.append(core.wrap_input(name, values, dtype))
        return arguments


def _line_of(error: Exception, filename: str) -> int:
    """Find the innermost line of the kernel file that an exception passed through."""
    line = 0
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == filename:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line
