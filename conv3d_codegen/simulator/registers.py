# SPDX-License-Identifier: Apache-2.0
"""Hardware loop registers and the scopes that loop bodies open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from conv3d_codegen.simulator.core import Core


class LoopScope:
    """One execution of a hardware loop's body."""

    __slots__ = ("is_first", "is_open")

    def __init__(self, *, is_first: bool) -> None:
        self.is_first = is_first
        self.is_open = True


class Register:
    """A virtual register: usable as `scalar_offset` of `ap`, and as nothing else."""

    __slots__ = ("_core", "value")

    def __init__(self, value: int, core: Core) -> None:
        self.value = value
        self._core = core

    def _refuse(self, *_: Any) -> NoReturn:
        raise self._core.stop("loop-register", "known only at run time: pass it as scalar_offset=")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
    __floordiv__ = __mod__ = __neg__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __eq__ = __ne__ = __hash__ = _refuse
    __bool__ = __int__ = __index__ = __str__ = __format__ = _refuse
