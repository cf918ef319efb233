# SPDX-License-Identifier: Apache-2.0
"""Runs one job of the toolchain in a process of its own, with limits on time and memory.

A job is a folder: `job.json` says what to do, `NAME.py` is the kernel; the worker adds what it
makes. Compiling a large kernel can take hours and tens of GB, and a compiler that is stopped must
take its own children with it, so a job has its own process group.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from conv3d_codegen.geometry import ConvGeometry

PACKAGE_ROOT = str(Path(__file__).parents[2])
LOG = "log.txt"
JOB = "job.json"
INPUTS, OUTPUTS = "inputs", "outputs"  # folders of arrays

# What the worker is asked for: a NEFF, or results from AWS's simulator or from the device.
Action = Literal["compile", "simulate", "run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a job may use. Memory is the address space of each process, in GiB; 0 is no limit."""

    seconds: float = 3600
    memory_gib: float = 0


@dataclass(frozen=True, slots=True)
class KernelText:
    """A kernel file: the name of its function, which is its stem, its text, and its problem."""

    name: str
    source: str
    geometry: ConvGeometry


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the worker is told."""

    action: Action
    name: str
    key: str
    memory_gib: float


@dataclass(frozen=True, slots=True)
class Finished:
    """How a job ended. `problem` is empty if it did what it was asked for."""

    problem: str
    log: str


def run_job(action: Action, kernel: KernelText, folder: Path, limits: Limits) -> Finished:
    """Run a job in an empty or prepared folder and wait for it."""
    (folder / f"{kernel.name}.py").write_text(kernel.source, encoding="utf-8")
    job = Job(
        action=action,
        name=kernel.name,
        key=kernel.geometry.key(),
        memory_gib=limits.memory_gib,
    )
    (folder / JOB).write_text(json.dumps(asdict(job)), encoding="utf-8")
    with (folder / LOG).open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", _START, PACKAGE_ROOT, str(folder)],
            cwd=folder,
            env=_environment(action, kernel.geometry.target),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(limits.seconds)
            problem = "" if code == 0 else _ended(code)
        except subprocess.TimeoutExpired:
            problem = f"stopped after {limits.seconds:g} s"
        finally:
            _stop_group(process)
    text = (folder / LOG).read_text(encoding="utf-8", errors="replace")
    last_lines = [line for line in text.splitlines() if line.strip()][-1:]
    return Finished(": ".join([problem, *last_lines]) if problem else "", text)


# The worker finds this package where we did, behind everything that Python finds by itself.
_START = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from conv3d_codegen.compile.worker import main; main(sys.argv[2])"
)


def _environment(action: Action, target: str) -> dict[str, str]:
    """Return the worker's environment; off the device, nki has to be told what to compile for."""
    if action == "run":
        return dict(os.environ)
    return {**os.environ, "NEURON_PLATFORM_TARGET_OVERRIDE": target}


def _ended(code: int) -> str:
    return f"exit code {code}" if code > 0 else f"ended by {signal.Signals(-code).name}"


def _stop_group(process: subprocess.Popen[bytes]) -> None:
    """End the job's process and all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
