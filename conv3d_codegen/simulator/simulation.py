# SPDX-License-Identifier: Apache-2.0
"""The simulator's entry point: text in, outputs and findings out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from conv3d_codegen.collector import collector_paused
from conv3d_codegen.errors import UnknownLnc
from conv3d_codegen.simulator.core import Core
from conv3d_codegen.simulator.exchange import Exchange
from conv3d_codegen.simulator.execution import Execution
from conv3d_codegen.simulator.lifetimes import lifetimes, memory_peaks
from conv3d_codegen.simulator.outputs import collect_outputs
from conv3d_codegen.simulator.signatures import Signatures, parse_versions
from conv3d_codegen.simulator.tensors import Blank
from conv3d_codegen.simulator.text import ParsedKernel
from conv3d_codegen.simulator.timeline import Timeline, build_timeline
from conv3d_codegen.simulator.trace import Counts
from conv3d_codegen.targets import target as find_target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conv3d_codegen.simulator.element_types import Cells
    from conv3d_codegen.simulator.rules import Violation
    from conv3d_codegen.targets import TargetSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResult:
    """What a kernel computed, which rules it broke, and what it would cost.

    `outputs` are the returned tensors in their declared types; none if the kernel stopped or had
    blank inputs.
    Memory peaks are per core.
    """

    outputs: tuple[Cells, ...] = ()
    violations: tuple[Violation, ...] = ()
    counts: Counts = field(default_factory=Counts)
    timeline: Timeline = field(default_factory=Timeline)
    sbuf_peak_bytes: int = 0
    psum_peak_banks: int = 0


def simulate(
    source: str,
    inputs: Sequence[Cells | Blank],
    *,
    target: str = "trn2",
    nki: str = "0.6",
    lnc: int = 1,
    filename: str = "<kernel>",
) -> SimulationResult:
    """Execute a kernel file's text on inputs and check every rule on the way.

    Args:
        source: the whole file; it is given its own nki modules, whatever is installed.
        inputs: the kernel's tensor arguments; they are copied, never written. Where one is blank,
            nothing is computed but addresses: rules, counts and timeline come out the same, sooner.
        target: hardware table to check and price with.
        nki: version, or range such as `0.3..0.7` in all of which the text must be valid.
        lnc: physical cores that run it, 1 or 2.
        filename: how Python errors inside the kernel name the file.

    Raises:
        RequestError: target, nki or lnc is unknown. A broken kernel raises nothing.
    """
    spec = find_target(target)
    if lnc not in spec.lnc_sizes:
        accepted = ", ".join(map(str, spec.lnc_sizes))
        raise UnknownLnc(f"lnc {lnc}", f"{target} has no such logical core", accepted)
    with collector_paused():
        return _simulate(_Request(source, inputs, spec, parse_versions(nki), lnc, filename))


class _Request(NamedTuple):
    source: str
    inputs: Sequence[Cells | Blank]
    spec: TargetSpec
    versions: tuple[str, ...]
    lnc: int
    filename: str


def _simulate(request: _Request) -> SimulationResult:
    spec = request.spec
    signatures = Signatures(request.versions)
    kernel = ParsedKernel(request.source, request.filename, signatures)
    log = kernel.log
    if not kernel.is_executable:
        return SimulationResult(violations=log.sorted())
    exchange = Exchange(request.lnc)
    keeps_values = not any(isinstance(given, Blank) for given in request.inputs)
    cores = [
        Core(spec, log, request.filename, exchange, rank=rank, keeps_values=keeps_values)
        for rank in range(request.lnc)
    ]
    returned = Execution(kernel, request.filename, request.inputs, signatures).run(cores)
    outputs = collect_outputs(cores[0], returned)
    peaks = [memory_peaks(core.trace, lifetimes(core.trace), spec, log) for core in cores]
    counts = Counts()
    for core in cores:
        counts.add(core.counts)
    return SimulationResult(
        outputs=outputs,
        violations=log.sorted(),
        counts=counts,
        timeline=build_timeline([core.trace for core in cores], spec, counts.macs),
        sbuf_peak_bytes=max(peak.sbuf_bytes for peak in peaks),
        psum_peak_banks=max(peak.psum_banks for peak in peaks),
    )
