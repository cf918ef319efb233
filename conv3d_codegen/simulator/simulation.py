# SPDX-License-Identifier: Apache-2.0
"""Runs a kernel file: text in, outputs and findings out."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from conv3d_codegen.simulator.core import Core
from conv3d_codegen.simulator.element_types import element_type_of
from conv3d_codegen.simulator.exchange import Exchange
from conv3d_codegen.simulator.lifetimes import lifetimes, memory_peaks
from conv3d_codegen.simulator.modules import make_modules
from conv3d_codegen.simulator.rules import KernelStopped, Violation, ViolationLog
from conv3d_codegen.simulator.signatures import Signatures, parse_versions
from conv3d_codegen.simulator.tensors import OUTPUT, SHARED_HBM, NkiTensor
from conv3d_codegen.simulator.text import ParsedKernel
from conv3d_codegen.simulator.timeline import Timeline, build_timeline
from conv3d_codegen.simulator.trace import Counts
from conv3d_codegen.targets import target as find_target

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType

    from conv3d_codegen.simulator.element_types import Cells

# The builtins that straight-line kernels use.
_BUILTINS = {
    function.__name__: function
    for function in (abs, bool, dict, divmod, enumerate, float, int, len, list, max, min, print)
    + (range, reversed, round, str, sum, tuple, zip)
}


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """What a kernel computed and which rules it broke."""

    outputs: tuple[Cells, ...]
    violations: tuple[Violation, ...]
    counts: Counts = field(default_factory=Counts)
    timeline: Timeline = field(default_factory=Timeline)
    sbuf_peak_bytes: int = 0
    psum_peak_banks: int = 0


def simulate(
    source: str,
    inputs: Sequence[Cells],
    *,
    target: str = "trn2",
    nki: str = "0.6",
    filename: str = "<kernel>",
) -> SimulationResult:
    """Execute a kernel file's text on inputs and check every rule on the way."""
    spec = find_target(target)
    signatures = Signatures(parse_versions(nki))
    parsed = ParsedKernel(source, filename, signatures)
    if not parsed.is_executable:
        return SimulationResult((), parsed.log.sorted())
    code = compile(source, filename, "exec", dont_inherit=True)
    core = Core(spec, parsed.log, filename, Exchange(1))
    with np.errstate(all="ignore"):
        returned = _run(core, signatures, code, parsed.entry, inputs)
        outputs = _collect(core, returned)
    peaks = memory_peaks(core.trace, lifetimes(core.trace), spec, parsed.log)
    return SimulationResult(
        outputs=outputs,
        violations=parsed.log.sorted(),
        counts=core.counts,
        timeline=build_timeline([core.trace], spec, core.counts.macs),
        sbuf_peak_bytes=peaks.sbuf_bytes,
        psum_peak_banks=peaks.psum_banks,
    )


def _run(
    core: Core, signatures: Signatures, code: CodeType, entry: str, inputs: Sequence[Cells]
) -> Any:
    """Call the kernel; None if it stopped."""
    nki = make_modules(core, signatures)

    def private_import(name: str, *_: Any) -> Any:
        return nki

    namespace: dict[str, Any] = {
        "__builtins__": {**_BUILTINS, "__import__": private_import},
        "__name__": entry,
    }
    try:
        exec(code, namespace)
        arguments = [_argument(core, position, value) for position, value in enumerate(inputs)]
        return namespace[entry](*arguments)
    except KernelStopped:
        return None
    except Exception as error:
        core.violate(_error_line(core), "python-error", f"{type(error).__name__}: {error}")
        return None


def _argument(core: Core, position: int, values: Cells) -> NkiTensor:
    dtype = element_type_of(values.dtype)
    if dtype is None:
        raise core.stop("dtype", f"input {position}: NKI has no type for {values.dtype}")
    return core.wrap_input(f"input {position}", values, dtype)


def _error_line(core: Core) -> int:
    """The innermost kernel line of the exception being handled."""
    line = 0
    traceback = sys.exception().__traceback__ if sys.exception() else None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == core.filename:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line


def _collect(core: Core, returned: Any) -> tuple[Cells, ...]:
    """The returned tensors as arrays of their declared types, checked to be complete."""
    if returned is None:
        return ()
    tensors = returned if isinstance(returned, tuple) else (returned,)
    outputs = []
    for tensor in tensors:
        if not isinstance(tensor, NkiTensor):
            core.violate(0, "output-buffer", f"returned {type(tensor).__name__}, not a tensor")
            continue
        tensor.storage.role = OUTPUT
        _check_output(core, tensor)
        outputs.append(tensor.array.astype(tensor.dtype.numpy))
    return tuple(outputs)


def _check_output(core: Core, tensor: NkiTensor) -> None:
    storage = tensor.storage
    if storage.memory is not SHARED_HBM:
        core.violate(storage.line, "output-buffer", f"{storage.name} lies in {storage.memory.name}")
        return
    if storage.rewritten_line:
        core.violate(
            storage.rewritten_line, "write-once", f"elements of {storage.name} are written again"
        )
    if storage.bytes_per_partition > core.spec.max_output_bytes:
        core.violate(storage.line, "output-size", f"{storage.name} exceeds 4 GiB")
    unwritten = ~np.logical_or.reduce([m.rows()[0][2] for m in storage.written if m is not None])
    if unwritten.any():
        count = int(np.count_nonzero(unwritten))
        first = tuple(int(i) for i in np.unravel_index(int(unwritten.argmax()), storage.shape))
        core.violate(
            storage.line,
            "output-unwritten",
            f"{count} of {unwritten.size} elements of {storage.name} are never written,"
            f" first {first}",
        )
