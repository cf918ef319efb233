# SPDX-License-Identifier: Apache-2.0
"""Emitting many kernels at once, so that one that fails takes no other with it."""

from __future__ import annotations

import multiprocessing
import signal
import traceback
from collections import deque
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conv3d_codegen.cache import recipe
from conv3d_codegen.emission import GENERATOR, emit_stored
from conv3d_codegen.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from conv3d_codegen.cache import StoredKernel
    from conv3d_codegen.geometry import ConvGeometry
    from conv3d_codegen.planner.options import EmitOptions

    Outcome = tuple[ConvGeometry, StoredKernel | "Failure"]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no kernel of a geometry."""

    code: str
    message: str


def try_to_emit(geometry: ConvGeometry, options: EmitOptions) -> StoredKernel | Failure:
    """Emit a kernel, or say why that failed; this is what runs in a worker."""
    try:
        return emit_stored(geometry, options)
    except RequestError as error:
        return Failure(error.code, error.message)
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{frame.name}, line {frame.lineno}"
        return Failure("internal", f"{type(error).__name__} in {where}: {error}")


def emit_all(
    geometries: Sequence[ConvGeometry], options: EmitOptions, workers: int | Executor
) -> Iterator[Outcome]:
    """Emit kernels and yield each outcome as it comes.

    Args:
        geometries: what to emit.
        options: how.
        workers: a number of processes on this machine (1: this process itself), or any executor
            whose workers can import this package in this version. Processes import the program
            that asks for them, so that needs its `if __name__ == "__main__"`.
    """
    if not geometries:
        return
    if isinstance(workers, Executor):
        yield from _on_executor(geometries, options, workers)
    elif workers == 1:
        for geometry in geometries:
            yield geometry, try_to_emit(geometry, options)
    else:
        yield from _on_processes(geometries, options, workers)


def _on_executor(
    geometries: Sequence[ConvGeometry], options: EmitOptions, executor: Executor
) -> Iterator[Outcome]:
    waiting = deque(geometries)
    lost = yield from _run(executor, waiting, options, window=len(geometries))
    for geometry in (*lost, *waiting):
        yield geometry, Failure("workers-lost", "the executor broke down before it was done")


def _on_processes(
    geometries: Sequence[ConvGeometry], options: EmitOptions, processes: int
) -> Iterator[Outcome]:
    """Emit in processes; when one dies, find out which geometry did it and go on."""
    waiting = deque(geometries)
    while waiting:
        # Few are sent at a time, so that few are suspect when a process dies.
        with _pool(min(processes, len(waiting))) as pool:
            suspects = yield from _run(pool, waiting, options, window=processes + 1)
        for suspect in suspects:
            yield from _alone(suspect, options)


def _alone(geometry: ConvGeometry, options: EmitOptions) -> Iterator[Outcome]:
    with _pool(1) as pool:
        died = yield from _run(pool, deque([geometry]), options, window=1)
    if died:
        yield geometry, Failure("worker-died", "the process that emitted it died")


def _pool(processes: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(
        processes,
        # A forked process would inherit the locks of this one's threads.
        multiprocessing.get_context("spawn"),
        # Ctrl-C goes to the whole group; it is this process that reacts to it.
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_IGN),
    )


def _run(
    executor: Executor, waiting: deque[ConvGeometry], options: EmitOptions, *, window: int
) -> Generator[Outcome, None, list[ConvGeometry]]:
    """Yield outcomes while the executor works; return what it was at when it broke down."""
    running: dict[Future[StoredKernel | Failure], ConvGeometry] = {}
    try:
        while waiting or running:
            while waiting and len(running) < window:
                running[executor.submit(try_to_emit, waiting[0], options)] = waiting[0]
                waiting.popleft()
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                outcome = _outcome(future, running[future], options)
                yield running.pop(future), outcome
    except BrokenExecutor:
        pass
    finally:
        for future in running:
            future.cancel()
    return list(running.values())


def _outcome(
    future: Future[StoredKernel | Failure], geometry: ConvGeometry, options: EmitOptions
) -> StoredKernel | Failure:
    try:
        outcome = future.result()
    except BrokenExecutor:
        raise
    except Exception as error:  # of the executor: its worker was killed, or cannot import this
        return Failure("worker-failed", f"{type(error).__name__}: {error}")
    if not isinstance(outcome, Failure) and outcome.info.recipe != recipe(geometry, options):
        return Failure(
            "other-generator",
            f"the worker runs {outcome.info.generator} with other sources, templates or libraries "
            f"than {GENERATOR} here",
        )
    return outcome
