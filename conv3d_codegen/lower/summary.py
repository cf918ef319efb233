# SPDX-License-Identifier: Apache-2.0
"""Condenses a program to what its plan tells: sections and buffers by role."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conv3d_codegen.planner.model import BufferSummary, SectionSummary

if TYPE_CHECKING:
    from conv3d_codegen.program.program import Program
    from conv3d_codegen.program.views import Buffer


def summarize_sections(program: Program) -> tuple[SectionSummary, ...]:
    """Count the instructions of each section."""
    return tuple(
        SectionSummary(section.title, sum(1 for _ in section.instructions()), section.times)
        for section in program.sections
    )


def summarize_buffers(program: Program) -> tuple[BufferSummary, ...]:
    """Group on-chip buffers by the stem of their name, in order of first use."""
    groups: dict[str, list[Buffer]] = {}
    for buffer in program.buffers():
        groups.setdefault(buffer.name.rsplit("_", 1)[0], []).append(buffer)
    return tuple(_summary(role, group) for role, group in groups.items())


def _summary(role: str, group: list[Buffer]) -> BufferSummary:
    largest = max(group, key=lambda buffer: buffer.bytes_per_partition)
    return BufferSummary(
        role=role,
        space=largest.space,
        count=len(group),
        shape=largest.shape,
        dtype=largest.dtype,
        bytes_per_partition=largest.bytes_per_partition,
    )
