# SPDX-License-Identifier: Apache-2.0
"""Verifies a kernel with AWS's own nki: on the device where there is one, else its simulator."""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conv3d_codegen.compile.arrays import read_arrays, write_arrays
from conv3d_codegen.compile.sandbox import INPUTS, OUTPUTS, Limits, run_job
from conv3d_codegen.compile.toolchain import find_toolchain, has_device
from conv3d_codegen.verify import make_inputs
from conv3d_codegen.verify.check import check_gradients

if TYPE_CHECKING:
    from conv3d_codegen.compile.sandbox import Action, KernelText
    from conv3d_codegen.verify import GradientCheck
    from conv3d_codegen.verify.inputs import InputKind


@dataclass(frozen=True, slots=True, kw_only=True)
class NkiReport:
    """What a kernel computed under nki. It passed if it ran and every gradient is right."""

    key: str
    runner: str
    inputs: InputKind
    seed: int
    gradients: tuple[GradientCheck, ...]
    problem: str
    log: str

    @property
    def passed(self) -> bool:
        """Whether the kernel is right."""
        return not self.problem and all(check.passed for check in self.gradients)

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {"passed": self.passed, **asdict(self)}


def verify_on_nki(
    kernel: KernelText,
    *,
    inputs: InputKind = "integers",
    seed: int = 0,
    limits: Limits | None = None,
) -> NkiReport:
    """Run a kernel's text under the installed nki and compare it with the reference.

    Raises:
        RequestError: there is no nki that accepts these kernels.
    """
    version = find_toolchain().nki
    action: Action = "run" if has_device() else "simulate"
    operands = make_inputs(kernel.geometry, inputs, seed)
    with tempfile.TemporaryDirectory(prefix="conv3d_codegen_") as temporary:
        folder = Path(temporary)
        write_arrays(folder / INPUTS, (operands.dy, operands.x, operands.w))
        done = run_job(action, kernel, folder, limits or Limits())
        outputs = () if done.problem else read_arrays(folder / OUTPUTS)
    checks = check_gradients(kernel.geometry, operands, inputs, outputs) if outputs else ()
    return NkiReport(
        key=kernel.geometry.key(),
        runner=f"nki {version}, {'device' if action == 'run' else 'simulator'}",
        inputs=inputs,
        seed=seed,
        gradients=checks,
        problem=done.problem,
        log=done.log,
    )
