# SPDX-License-Identifier: Apache-2.0
"""The private `nki`, `nki.isa` and `nki.language` that a kernel file imports."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from conv3d_codegen.simulator.isa_cores import core_barrier, sendrecv
from conv3d_codegen.simulator.isa_dma import dma_compute, dma_copy, dma_transpose
from conv3d_codegen.simulator.isa_gpsimd import affine_select, iota
from conv3d_codegen.simulator.isa_scalar import activation
from conv3d_codegen.simulator.isa_tensor import nc_matmul, nc_transpose
from conv3d_codegen.simulator.isa_vector import (
    memset,
    scalar_tensor_tensor,
    tensor_copy,
    tensor_reduce,
    tensor_scalar,
    tensor_tensor,
)
from conv3d_codegen.simulator.language import Language
from conv3d_codegen.simulator.operands import EnumMember
from conv3d_codegen.simulator.signatures import ISA, LANGUAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from conv3d_codegen.simulator.core import Core
    from conv3d_codegen.simulator.operands import Args
    from conv3d_codegen.simulator.signatures import Signatures

    Implementation = Callable[[Core, int, Args], None]

INSTRUCTIONS: dict[str, Implementation] = {
    function.__name__: function
    for function in (
        activation,
        affine_select,
        core_barrier,
        dma_compute,
        dma_copy,
        dma_transpose,
        iota,
        memset,
        nc_matmul,
        nc_transpose,
        scalar_tensor_tensor,
        sendrecv,
        tensor_copy,
        tensor_reduce,
        tensor_scalar,
        tensor_tensor,
    )
}
_ENUMS = (
    "engine",
    "dge_mode",
    "oob_mode",
    "matmul_perf_mode",
    "reduce_cmd",
    "dma_engine",
    "nc_version",
)
# What nl.tile_size has in every version, and means on every target.
_TILE_SIZES = {
    "pmax": 128,
    "psum_fmax": 512,
    "gemm_stationary_fmax": 128,
    "gemm_moving_fmax": 512,
    "bn_stats_fmax": 512,
}


class Module:
    """A namespace that reports names it does not have."""

    def __init__(
        self, name: str, core: Core, members: dict[str, Any], known: Collection[str] = ()
    ) -> None:
        self.__dict__.update(members)
        self._name = name
        self._core = core
        self._known = known

    def __getattr__(self, name: str) -> Any:
        if name in self._known:
            raise self._core.stop("unsupported", f"{self._name}.{name} is not simulated")
        raise self._core.stop("unknown-name", f"{self._name} has no {name}")


class InstructionHandle:
    """What an instruction call returns: an anchor for scheduling edges."""

    def depends_on(self, *_: InstructionHandle) -> None:
        """Edges only restrict the compiler's order; program order already fulfils them."""


def make_modules(core: Core, signatures: Signatures) -> Module:
    """Make the `nki` module of one core, with its two submodules."""
    isa = Module("nisa", core, _isa_members(core, signatures), signatures.names(ISA))
    members = {**Language(core).members(), "tile_size": Module("nl.tile_size", core, _TILE_SIZES)}
    language = Module("nl", core, members, signatures.names(LANGUAGE))
    return Module("nki", core, {"jit": _jit, "isa": isa, "language": language})


def _isa_members(core: Core, signatures: Signatures) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name in signatures.functions(ISA):
        members[name] = _unsupported(core, f"nisa.{name}")
    for name, implementation in INSTRUCTIONS.items():
        members[name] = _instruction(core, signatures, name, implementation)
    for enum in _ENUMS:
        values = {name: EnumMember(enum, name) for name in signatures.enum_members(enum)}
        members[enum] = Module(f"nisa.{enum}", core, values)
    for engine in ("tensor", "vector", "scalar", "gpsimd", "unknown"):
        members[f"{engine}_engine"] = EnumMember("engine", engine)
    generation = EnumMember("nc_version", core.spec.generation)
    members["get_nc_version"] = lambda: generation
    return members


def _jit(function: Any = None, **_: Any) -> Any:
    """`@nki.jit` and `@nki.jit()`: the simulator runs the function as it is."""
    return function if function is not None else _jit


def _unsupported(core: Core, name: str) -> Callable[..., None]:
    def call(*_: Any, **arguments: Any) -> None:
        core.report("unsupported", f"the bundled simulator does not execute {name}")
        core.skip(arguments.get("dst"), core.current_line())

    return call


def _instruction(
    core: Core, signatures: Signatures, name: str, implementation: Implementation
) -> Callable[..., InstructionHandle]:
    """Make the callable of an instruction: signature check once per keyword set, then execution."""
    handle = InstructionHandle()
    checked: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    newest = signatures.newest(ISA, name)
    parameters = newest.parameters if newest else ()
    required = frozenset(parameters) - (newest.optional if newest else frozenset())

    def call(*positional: Any, **arguments: Any) -> InstructionHandle:
        line = core.lines.line(sys._getframe(1))
        keywords = tuple(arguments)
        if positional:
            problems = signatures.problems(ISA, name, len(positional), keywords)
            arguments = {**dict(zip(parameters, positional, strict=False)), **arguments}
        else:
            known = checked.get(keywords)
            if known is None:
                known = checked[keywords] = signatures.problems(ISA, name, 0, keywords)
            problems = known
        for rule, message in problems:
            core.violate(line, rule, message)
        if problems and not required <= arguments.keys():
            core.skip(arguments.get("dst"), line)
            return handle
        if arguments.get("name"):
            core.claim_name(arguments["name"], line)
        implementation(core, line, arguments)
        return handle

    return call
