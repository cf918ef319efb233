# SPDX-License-Identifier: Apache-2.0
"""Two physical cores of one logical core: core_barrier and sendrecv."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conv3d_codegen.simulator.core import Core
    from conv3d_codegen.simulator.operands import Args


def core_barrier(core: Core, line: int, args: Args) -> None:
    """Wait until both cores are here; what one wrote to shared HBM is then seen by the other."""


def sendrecv(core: Core, line: int, args: Args) -> None:
    """Exchange SBUF tiles with the other core."""
