# SPDX-License-Identifier: Apache-2.0
"""A stand-in for AWS's nki: the documented interface, computed by the bundled simulator."""

import inspect
import os
from pathlib import Path

from conv3d_codegen.simulator import simulate as run_text


class Kernel:
    def __init__(self, func, lnc=1):
        self.func = func
        self.lnc = lnc

    def __getitem__(self, lnc):
        return Kernel(self.func, lnc)

    def __call__(self, *tensors):
        if "NEURON_PLATFORM_TARGET_OVERRIDE" in os.environ:
            raise RuntimeError("a target override on a device")
        return _run(self, tensors)


def jit(func):
    return Kernel(func)


def simulate(kernel):
    return lambda *tensors: _run(kernel, tensors)


def _run(kernel, tensors):
    source = Path(inspect.getsourcefile(kernel.func)).read_text()
    target = os.environ.get("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    result = run_text(source, tensors, target=target, lnc=kernel.lnc)
    assert not result.violations, result.violations
    return result.outputs if len(result.outputs) > 1 else result.outputs[0]
