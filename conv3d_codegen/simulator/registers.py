# SPDX-License-Identifier: Apache-2.0
"""Hardware loop registers and the scopes that loop bodies open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from conv3d_codegen.simulator.rules import KernelStopped

if TYPE_CHECKING:
    from collections.abc import Callable


class LoopScope:
    """One execution of a hardware loop's body."""

    __slots__ = ("is_first", "is_open")

    def __init__(self, *, is_first: bool) -> None:
        self.is_first = is_first
        self.is_open = True


class Register:
    """A virtual register: usable as `scalar_offset` of `ap`, and as nothing else."""

    __slots__ = ("_report", "value")

    def __init__(self, value: int, report: Callable[[str, str], None]) -> None:
        self.value = value
        self._report = report

    def _refuse(self, *_: Any) -> NoReturn:
        self._report("loop-register", "a loop register is known only at run time: use scalar_offset=")
        raise KernelStopped

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
    __floordiv__ = __mod__ = __neg__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __bool__ = __int__ = __index__ = __str__ = __format__ = _refuse
