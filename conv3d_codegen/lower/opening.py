# SPDX-License-Identifier: Apache-2.0
"""Accumulations that no single matmul covers are opened by one of zeros: PSUM must not be opened by memset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conv3d_codegen.program.instructions import matmul

if TYPE_CHECKING:
    from conv3d_codegen.lower.builder import Builder
    from conv3d_codegen.program.views import Buffer


def open_with_zeros(builder: Builder, landing: Buffer) -> None:
    """Write 0 · 0 to all of a PSUM tile."""
    stationary = _zeros(builder, "zero_w", (1, 128))
    moving = _zeros(builder, "zero_x", (1, *landing.shape[1:]))
    builder.comment("no single tap covers this tile: open it with 0 · 0")
    row = stationary[:, 0 : landing.shape[0]]
    builder.add(matmul(landing.whole(), row, moving.whole(), accumulate=False))


def _zeros(builder: Builder, stem: str, shape: tuple[int, ...]) -> Buffer:
    """Give zeros that all tiles share."""

    def build() -> Buffer:
        zeros = builder.allocate(stem, shape, builder.dtype, "sbuf")
        builder.zero(zeros.whole())
        return zeros

    return builder.once((stem, shape), build)
