# SPDX-License-Identifier: Apache-2.0
"""`nki.language`: allocation, slices, loops, and the names of types, memories and operators."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from conv3d_codegen.simulator.element_types import ELEMENT_TYPES, ElementType
from conv3d_codegen.simulator.isa_vector import memset
from conv3d_codegen.simulator.operators import NAMES, Operator
from conv3d_codegen.simulator.registers import LoopScope, Register
from conv3d_codegen.simulator.tensors import (
    PRIVATE_HBM,
    PSUM,
    SBUF,
    SHARED_HBM,
    Memory,
    NkiTensor,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from conv3d_codegen.simulator.core import Core


class NoReorder:
    """`with nl.no_reorder():` keeps program order; hardware loops cannot stand inside."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def __enter__(self) -> None:
        self._core.keeps_order = True

    def __exit__(self, *_: object) -> None:
        self._core.keeps_order = False


class Language:
    """The functions of `nki.language` that the simulator executes, for one core."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._identities: dict[tuple[int, str], NkiTensor] = {}

    def members(self) -> dict[str, Any]:
        """Everything a kernel finds in the module, by name."""
        functions = {
            name: getattr(self, name)
            for name in (
                "ndarray",
                "zeros",
                "ones",
                "full",
                "ds",
                "shared_identity_matrix",
                "fori_loop",
                "program_id",
                "num_programs",
                "program_ndim",
                "no_reorder",
            )
        }
        memories = {
            "sbuf": SBUF,
            "psum": PSUM,
            "hbm": PRIVATE_HBM,
            "private_hbm": PRIVATE_HBM,
            "shared_hbm": SHARED_HBM,
        }
        operators = {name: Operator(name) for name in NAMES}
        types = {"NkiTensor": NkiTensor}  # for annotations
        ranges = dict.fromkeys(("affine_range", "sequential_range", "static_range"), range)
        return {**operators, **ELEMENT_TYPES, **memories, **types, **ranges, **functions}

    # --- allocation ---------------------------------------------------------------------------

    def ndarray(
        self, shape: Any, dtype: Any, buffer: Any = SBUF, name: str = "", address: Any = None
    ) -> NkiTensor:
        """Declare a tensor whose elements are not initialised."""
        if address is not None:
            self._core.report("unsupported", "address=: tensors are placed automatically here")
        return self._core.allocate(name, *self._checked(shape, dtype, buffer))

    def zeros(self, shape: Any, dtype: Any, buffer: Any = SBUF, name: str = "") -> NkiTensor:
        """Declare a tensor of zeros."""
        return self.full(shape, 0.0, dtype, buffer, name)

    def ones(self, shape: Any, dtype: Any, buffer: Any = SBUF, name: str = "") -> NkiTensor:
        """Declare a tensor of ones."""
        return self.full(shape, 1.0, dtype, buffer, name)

    def full(
        self, shape: Any, fill_value: Any, dtype: Any, buffer: Any = SBUF, name: str = ""
    ) -> NkiTensor:
        """Declare a tensor filled with a number, by a memset."""
        tensor = self.ndarray(shape, dtype, buffer, name)
        value = float(fill_value) if tensor.dtype.is_float else int(fill_value)
        memset(self._core, self._core.current_line(), {"dst": tensor, "value": value})
        return tensor

    def shared_identity_matrix(
        self, n: int, dtype: Any = ELEMENT_TYPES["uint8"], dst: NkiTensor | None = None
    ) -> NkiTensor:
        """Return an identity in SBUF, the same tensor for every use of a size and type."""
        key = (n, dtype.name)
        if dst is None and key not in self._identities:
            self._identities[key] = self._core.allocate("", (n, n), dtype, SBUF)
        tensor = dst if dst is not None else self._identities[key]
        line = self._core.current_line()
        self._core.store(tensor, lambda: np.eye(n, dtype=np.float32), line)
        return tensor

    def _checked(
        self, shape: Any, dtype: Any, buffer: Any
    ) -> tuple[tuple[int, ...], ElementType, Memory]:
        """Check an allocation; stop where no tensor can be made of it."""
        core, spec = self._core, self._core.spec
        if not isinstance(dtype, ElementType) or not isinstance(buffer, Memory):
            raise core.stop("operand-type", f"ndarray(dtype={dtype!r}, buffer={buffer!r})")
        extents = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
        if not extents or any(type(extent) is not int or extent < 1 for extent in extents):
            raise core.stop("tensor-shape", f"{extents} is not a shape")
        if buffer.is_on_chip:
            if extents[0] > spec.partitions:
                core.report(
                    "tensor-shape", f"{extents}: on chip {spec.partitions} partitions exist"
                )
            if len(extents) < 2:
                raise core.stop("tensor-shape", f"{extents}: on chip at least two axes are needed")
        size = prod(extents[1:] if buffer.is_on_chip else extents) * dtype.bytes
        if buffer is PSUM and size > (limit := spec.psum_bytes_per_partition):
            core.report("psum-capacity", f"{extents} of {dtype}: {size} bytes, {limit} exist")
        if buffer is SHARED_HBM and size > (limit := spec.max_output_bytes):
            raise core.stop("output-size", f"{extents} of {dtype}: {size} bytes, at most {limit}")
        return extents, dtype, buffer

    # --- views, loops, cores ------------------------------------------------------------------

    def ds(self, start: int, size: int) -> slice:
        """Make a slice by start and size."""
        return slice(start, start + size)

    def fori_loop(
        self, lower: int, upper: int, body_fun: Callable[[Register], None], step: int = 1
    ) -> None:
        """Run a hardware loop: the body once per value of its register."""
        core = self._core
        if not all(type(bound) is int for bound in (lower, upper, step)) or step < 1:
            raise core.stop("loop-form", f"fori_loop({lower!r}, {upper!r}, step={step!r})")
        if core.keeps_order:
            core.report("loop-form", "fori_loop inside no_reorder")
        for value in range(lower, upper, step):
            scope = LoopScope(is_first=value == lower)
            core.enter_loop(scope)
            body_fun(Register(value, core))
            core.leave_loop(scope)

    def program_id(self, axis: int = 0) -> int:
        """Return the number of the physical core."""
        return self._core.rank if axis == 0 else 0

    def num_programs(self, axes: int = 0) -> int:
        """Return the number of physical cores."""
        return self._core.exchange.size if axes == 0 else 1

    def program_ndim(self) -> int:
        """Return the rank of the launch grid."""
        return 1 if self._core.exchange.size > 1 else 0

    def no_reorder(self) -> NoReorder:
        """Keep program order."""
        return NoReorder(self._core)
