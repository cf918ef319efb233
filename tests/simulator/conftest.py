# SPDX-License-Identifier: Apache-2.0
"""Runs small kernels written as text."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any, Protocol

import ml_dtypes
import numpy as np
import pytest

from conv3d_codegen.simulator import SimulationResult, simulate

if TYPE_CHECKING:
    from numpy.typing import NDArray

PREAMBLE = """\
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel({parameters}):
"""


class Runner(Protocol):
    """Runs a kernel body whose parameters are a, b, c."""

    def __call__(self, body: str, *inputs: NDArray[Any], **options: Any) -> SimulationResult: ...


def kernel_text(body: str, parameters: str) -> str:
    return PREAMBLE.format(parameters=parameters) + textwrap.indent(textwrap.dedent(body), "    ")


@pytest.fixture
def run() -> Runner:
    def run_body(body: str, *inputs: NDArray[Any], **options: Any) -> SimulationResult:
        parameters = ", ".join("abc"[: len(inputs)])
        options.setdefault("nki", "0.3..0.7")
        return simulate(kernel_text(body, parameters), inputs, **options)

    return run_body


def integers(*shape: int, seed: int = 0, dtype: Any = ml_dtypes.bfloat16) -> NDArray[Any]:
    """Small integers, exact in every float type."""
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


@pytest.fixture(name="integers")
def integers_fixture() -> Any:
    return integers
