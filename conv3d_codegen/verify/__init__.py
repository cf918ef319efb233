# SPDX-License-Identifier: Apache-2.0
"""Proof that a kernel is right: its text is executed by the simulator and compared with numpy."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from conv3d_codegen.api import EmitOptions, emit
from conv3d_codegen.dtypes import dtype
from conv3d_codegen.maps import useful_macs
from conv3d_codegen.simulator import simulate
from conv3d_codegen.simulator.signatures import known_versions
from conv3d_codegen.targets import target
from conv3d_codegen.verify.check import GradientCheck, check_gradients
from conv3d_codegen.verify.header import geometry_of, key_of
from conv3d_codegen.verify.inputs import make_inputs

if TYPE_CHECKING:
    from conv3d_codegen.geometry import ConvGeometry
    from conv3d_codegen.simulator import SimulationResult, Violation
    from conv3d_codegen.verify.inputs import InputKind

__all__ = [
    "GradientCheck",
    "VerifyReport",
    "geometry_of",
    "key_of",
    "make_inputs",
    "verify_geometry",
    "verify_source",
]


DEFAULT_NKI = EmitOptions().nki


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What running a kernel showed. It passed if every gradient did and no rule was broken.

    products_per_cell: that the PE array adds at a time for inputs of this type.
    """

    key: str
    inputs: InputKind
    seed: int
    gradients: tuple[GradientCheck, ...]
    useful_macs: int
    products_per_cell: int
    run: SimulationResult

    @property
    def pe_utilisation(self) -> float:
        """Useful multiply-accumulates as a share of what the tensor engine could have done."""
        return self.run.timeline.utilisation(self.useful_macs / self.products_per_cell)

    @property
    def violations(self) -> tuple[Violation, ...]:
        """The rules that the kernel breaks, by line."""
        return self.run.violations

    @property
    def passed(self) -> bool:
        """Whether the kernel is right."""
        return not self.violations and all(check.passed for check in self.gradients)

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {
            "passed": self.passed,
            "key": self.key,
            "inputs": self.inputs,
            "seed": self.seed,
            "gradients": [_finite(asdict(check)) for check in self.gradients],
            "violations": [asdict(violation) for violation in self.violations],
            "instructions": self.run.counts.text,
            "makespan_us": self.run.timeline.makespan_us,
            "pe_utilisation": self.pe_utilisation,
        }


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    """Replace infinities, which JSON does not have, by null."""
    return {name: None if value == math.inf else value for name, value in values.items()}


def verify_geometry(
    geometry: ConvGeometry,
    options: EmitOptions | None = None,
    *,
    inputs: InputKind = "integers",
    seed: int = 0,
) -> VerifyReport:
    """Emit the kernel of a geometry and verify its text."""
    options = options or EmitOptions()
    kernel = emit(geometry, options)
    return verify_source(
        kernel.source,
        geometry,
        filename=f"{kernel.name}.py",
        inputs=inputs,
        seed=seed,
        nki=options.nki,
    )


def verify_source(
    source: str,
    geometry: ConvGeometry | None = None,
    *,
    filename: str = "<kernel>",
    inputs: InputKind = "integers",
    seed: int = 0,
    nki: str = DEFAULT_NKI,
) -> VerifyReport:
    """Verify the text of a kernel, also one edited by hand.

    Args:
        source: the whole kernel file.
        geometry: what the kernel should compute; read from its header if not given.
        filename: how messages name the file.
        inputs: small integers, whose result must be exact, or normal values within a bound.
        seed: of the random inputs.
        nki: the oldest NKI release that must accept the text; so must all later ones.

    Raises:
        RequestError: the geometry is not given and not in the header.
    """
    geometry = geometry or geometry_of(source, filename)
    operands = make_inputs(geometry, inputs, seed)
    arguments = (operands.dy, operands.x, operands.w)
    result = simulate(
        source,
        arguments,
        target=geometry.target,
        nki=f"{nki}..{known_versions()[-1]}",
        lnc=geometry.lnc,
        filename=filename,
    )
    return VerifyReport(
        key=geometry.key(),
        inputs=inputs,
        seed=seed,
        gradients=check_gradients(geometry, operands, inputs, result.outputs),
        useful_macs=useful_macs(geometry),
        products_per_cell=target(geometry.target).products_per_cell(dtype(geometry.dtype).bytes),
        run=result,
    )
