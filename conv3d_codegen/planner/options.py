# SPDX-License-Identifier: Apache-2.0
"""What shapes a kernel's text without changing what it computes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EmitOptions:
    """Options of emission.

    unroll: "auto" rolls the outer loop where the text would exceed max_instructions; "full" never does.
    max_instructions: budget per kernel; users pay for text in compile time.
    nki: the oldest NKI release that must accept the text.
    """

    unroll: str = "auto"
    max_instructions: int = 10_000
    nki: str = "0.6"
