# SPDX-License-Identifier: Apache-2.0
"""Tensors as the kernel sees them: storage, and strided views of it."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from conv3d_codegen.simulator.cell_map import CellMap, Region
from conv3d_codegen.simulator.indexing import (
    ap_view,
    index_view,
    is_contiguous,
    reshape_view,
    row_major,
)
from conv3d_codegen.simulator.registers import Register

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conv3d_codegen.simulator.core import Core
    from conv3d_codegen.simulator.element_types import Cells, ElementType
    from conv3d_codegen.simulator.registers import LoopScope

INPUT, OUTPUT, SCRATCH = "input", "output", "scratch"


class Memory:
    """A memory region: `nl.sbuf`, `nl.psum`, `nl.private_hbm`, `nl.shared_hbm`."""

    __slots__ = ("is_on_chip", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_on_chip = name in {"sbuf", "psum"}

    def __repr__(self) -> str:
        return f"nl.{self.name}"


SBUF, PSUM = Memory("sbuf"), Memory("psum")
PRIVATE_HBM, SHARED_HBM = Memory("private_hbm"), Memory("shared_hbm")


class Blank(NamedTuple):
    """A kernel argument of which only shape and numpy type are known."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class Storage:
    """What one allocation declares, and what has happened to its elements."""

    __slots__ = (
        "dtype",
        "free",
        "index",
        "line",
        "memory",
        "name",
        "opened",
        "opened_banks",
        "partitions",
        "rewritten_line",
        "role",
        "scope",
        "shape",
        "written",
    )

    def __init__(
        self, name: str, shape: tuple[int, ...], dtype: ElementType, memory: Memory, line: int
    ) -> None:
        self.index = -1
        self.name = name
        self.shape = shape
        self.dtype = dtype
        self.memory = memory
        self.line = line
        self.role = SCRATCH
        self.scope: LoopScope | None = None
        self.partitions = shape[0] if memory.is_on_chip else 1
        self.free = prod(shape) // self.partitions
        # One map per physical core for shared HBM, one otherwise; None once all is written.
        self.written: list[CellMap | None] = [CellMap(self.partitions, self.free, np.bool_)]
        self.rewritten_line = 0
        # PSUM: number of the matmul that opened each element's accumulation, 0 for none, and of
        # the last one that opened any accumulation of each bank.
        self.opened: CellMap | None = None
        self.opened_banks: CellMap | None = None

    @property
    def bytes_per_partition(self) -> int:
        """Bytes of one partition, or of the whole tensor in HBM."""
        return self.free * self.dtype.bytes

    def new_cells(self, *, filled: bool) -> Cells:
        """Storage for the values; NaN (4 for integers) until written, like AWS's simulator.

        Without a filling, the system gives no memory to what is never written.
        """
        if not filled:
            return np.zeros(self.partitions * self.free, self.dtype.held)
        fill = np.nan if self.dtype.is_float else 4
        return np.full(self.partitions * self.free, fill, self.dtype.held)


class NkiTensor:
    """A view of a storage: what `nl.ndarray` returns and instructions take."""

    __slots__ = ("_core", "_region", "cells", "offset", "shape", "storage", "strides")

    def __init__(
        self,
        storage: Storage,
        cells: Cells,
        core: Core,
        geometry: tuple[tuple[int, ...], tuple[int, ...], int],
    ) -> None:
        self.storage = storage
        self.cells = cells
        self._core = core
        self.shape, self.strides, self.offset = geometry
        self._region: Region | None = None

    @classmethod
    def whole(cls, storage: Storage, cells: Cells, core: Core) -> NkiTensor:
        """Make the view that covers a storage."""
        return cls(storage, cells, core, (storage.shape, row_major(storage.shape), 0))

    # --- what kernels may ask -----------------------------------------------------------------

    @property
    def dtype(self) -> ElementType:
        """Element type."""
        return self.storage.dtype

    @property
    def buffer(self) -> Memory:
        """Memory region."""
        return self.storage.memory

    @property
    def name(self) -> str:
        """Name given at allocation."""
        return self.storage.name

    @property
    def ndim(self) -> int:
        """Rank."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Element count."""
        return prod(self.shape)

    def is_contiguous(self) -> bool:
        """Whether elements follow each other without gaps."""
        return is_contiguous(self.shape, self.strides)

    def get_pattern(self) -> list[list[int]]:
        """Access pattern, outermost first."""
        return [[stride, count] for stride, count in zip(self.strides, self.shape, strict=True)]

    def __getitem__(self, key: Any) -> NkiTensor:
        return self._derive(index_view(self, key, self._core))

    def __setitem__(self, key: Any, value: Any) -> None:
        raise self._core.stop(
            "subset", f"{self.name}[...] = value: tensors are written by instructions"
        )

    def reshape(self, shape: Sequence[int]) -> NkiTensor:
        """View the same elements under another shape."""
        return self._derive(reshape_view(self, tuple(shape), self._core))

    def ap(
        self,
        pattern: Sequence[Sequence[int]],
        offset: int | None = None,
        scalar_offset: NkiTensor | Register | None = None,
        indirect_dim: int = 0,
        **unsupported: Any,
    ) -> NkiTensor:
        """Make a view by an explicit access pattern `[[step, count], ...]` on a whole tensor."""
        if unsupported:
            named = ", ".join(unsupported)
            raise self._core.stop("unsupported", f"ap({named}=) is not executed by this simulator")
        start = offset or 0
        if scalar_offset is not None:
            start += self._dynamic_offset(scalar_offset, indirect_dim)
        return self._derive(ap_view(self, [tuple(pair) for pair in pattern], start, self._core))

    def __getattr__(self, name: str) -> Any:
        raise self._core.stop("unknown-name", f"tensors have no attribute {name} in this simulator")

    # --- what instructions need ---------------------------------------------------------------

    @property
    def is_whole(self) -> bool:
        """Whether the view covers its storage in order: the tensor itself, or a reshape of it."""
        return self.size == self.storage.free * self.storage.partitions and self.is_contiguous()

    @property
    def array(self) -> Cells:
        """The elements as a numpy view."""
        size = self.cells.itemsize
        return np.ndarray(
            self.shape,
            self.cells.dtype,
            self.cells,
            self.offset * size,
            tuple([stride * size for stride in self.strides]),
        )

    @property
    def free_elements(self) -> int:
        """Elements per partition of an on-chip view."""
        return prod(self.shape[1:])

    @property
    def region(self) -> Region:
        """The elements named, in terms of the storage."""
        if self._region is None:
            storage = self.storage
            if storage.memory.is_on_chip:
                first, offset = divmod(self.offset, storage.free)
                end = first + self.shape[0]
                self._region = Region(first, end, offset, self.shape[1:], self.strides[1:])
            else:
                self._region = Region(0, 1, self.offset, self.shape, self.strides)
        return self._region

    def _derive(self, geometry: tuple[tuple[int, ...], tuple[int, ...], int]) -> NkiTensor:
        return NkiTensor(self.storage, self.cells, self._core, geometry)

    def _dynamic_offset(self, register: NkiTensor | Register, indirect_dim: int) -> int:
        """Turn a run-time index into the elements it skips."""
        core = self._core
        if self.buffer.is_on_chip and indirect_dim == 0:
            core.report("ap-pattern", "scalar_offset cannot move a tensor on chip by partitions")
        if isinstance(register, NkiTensor):
            value = int(core.load(register, core.current_line()).item())
        elif isinstance(register, Register):
            value = register.value
        else:
            raise core.stop("operand-type", f"scalar_offset={register!r}: a register is needed")
        return value * prod(self.shape[indirect_dim + 1 :])
