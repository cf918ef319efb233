# SPDX-License-Identifier: Apache-2.0
"""Index maps of one axis, in symbols first and then in numbers.

Window `o` reads, through tap `t`, position `i = o*s + t*d - p_before`. All else follows:

* which windows exist, and which of them read inside the input through a given tap (the others
  read padding);
* which taps and windows a position belongs to. Divide both sides by the stride:
  `i + p_before = q*s + r` and `t*d = (t*d // s)*s + t*d % s`. They meet in a window if and only if
  the residues agree, `r = t*d % s`, and it is window `o = q - t*d // s`. So each residue is a
  *phase*: a dense unit-stride contraction with its own taps, whatever stride and dilation share.

Numbers come from evaluating the printed text of the symbolic formulas.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import sympy

from conv3d_codegen.symbolic import CeilDiv, FloorDiv, compile_index, print_index

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from conv3d_codegen.geometry import AxisGeometry, ConvGeometry

# An axis: input extent, kernel extent, stride, dilation, paddings, number of windows.
_I, _K, _s, _d, _before, _after, _O = sympy.symbols("I K s d p_before p_after O", integer=True)
# Places on it: window, tap; quotient and residue of a padded position by the stride.
_o, _t, _q, _r = sympy.symbols("o t q r", integer=True)

FORMULAS: Mapping[str, sympy.Expr] = {
    "windows": FloorDiv(_I + _before + _after - _d * (_K - 1) - 1, _s) + 1,
    "position": _o * _s + _t * _d - _before,
    "first_window": sympy.Max(0, CeilDiv(_before - _t * _d, _s)),
    "last_window": sympy.Min(_O - 1, FloorDiv(_I - 1 + _before - _t * _d, _s)),
    "unread_tail": sympy.Max(0, sympy.Min(_I, _I + _before - (_O - 1) * _s - _d * (_K - 1) - 1)),
    "tap_residue": sympy.Mod(_t * _d, _s, evaluate=False),
    "tap_shift": FloorDiv(_t * _d, _s),
    "phase_position": _q * _s + _r - _before,
    "phase_first": CeilDiv(_before - _r, _s),
    "phase_last": FloorDiv(_I - 1 + _before - _r, _s),
}


@dataclass(frozen=True, slots=True)
class PhaseTap:
    """A tap that contributes to a phase: quotient `q` takes from window `q - shift`.

    That window exists for q in first_q..last_q (none where first_q > last_q).
    """

    tap: int
    shift: int
    first_q: int
    last_q: int


@dataclass(frozen=True, slots=True)
class Phase:
    """The positions of one residue: `count` of them, a stride apart, from `first_input`.

    They have the quotients first_q, first_q + 1, ... A phase without taps receives nothing.
    """

    residue: int
    first_q: int
    count: int
    first_input: int
    taps: tuple[PhaseTap, ...]


@dataclass(frozen=True, slots=True)
class AxisMap:
    """The maps of one axis in numbers.

    `phases` cover every position exactly once, in the order of their residues; residues without a
    position are left out. `unread_tail` counts the positions beyond the last window.
    """

    axis: AxisGeometry
    out: int
    unread_tail: int
    phases: tuple[Phase, ...]

    def tap_range(self, tap: int) -> tuple[int, int]:
        """Return the first and last window that read inside the input; first > last if none."""
        values = _values(self.axis)
        return _solve("first_window", values, t=tap), _solve("last_window", values, t=tap)

    @property
    def inside(self) -> int:
        """How many pairs of window and tap read inside the input."""
        ranges = map(self.tap_range, range(self.axis.kernel))
        return sum(max(0, last - first + 1) for first, last in ranges)

    def position(self, window: int, tap: int) -> int:
        """Return the position a window reads through a tap; outside the input it is padding."""
        return _solve("position", _values(self.axis), o=window, t=tap)


@lru_cache(maxsize=4096)
def axis_map(axis: AxisGeometry) -> AxisMap:
    """Specialise the formulas to one axis."""
    values = _values(axis)
    shifts_by_residue: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for tap in range(axis.kernel):
        residue = _solve("tap_residue", values, t=tap)
        shifts_by_residue[residue].append((tap, _solve("tap_shift", values, t=tap)))
    # With a stride beyond the input, only as many residues occur as there are positions.
    residues = sorted(
        (axis.pad_before + i) % axis.stride for i in range(min(axis.size, axis.stride))
    )
    return AxisMap(
        axis=axis,
        out=values["O"],
        unread_tail=_solve("unread_tail", values),
        phases=tuple(_phase(values, r, shifts_by_residue.get(r, [])) for r in residues),
    )


def _phase(values: Mapping[str, int], residue: int, shifts: list[tuple[int, int]]) -> Phase:
    first = _solve("phase_first", values, r=residue)
    last = _solve("phase_last", values, r=residue)
    windows = values["O"]
    return Phase(
        residue=residue,
        first_q=first,
        count=last - first + 1,
        first_input=_solve("phase_position", values, q=first, r=residue),
        taps=tuple(
            PhaseTap(tap, shift, max(first, shift), min(last, windows - 1 + shift))
            for tap, shift in shifts
        ),
    )


def _values(axis: AxisGeometry) -> dict[str, int]:
    """Numbers of the symbols that describe an axis."""
    values = {
        "I": axis.size,
        "K": axis.kernel,
        "s": axis.stride,
        "d": axis.dilation,
        "p_before": axis.pad_before,
        "p_after": axis.pad_after,
    }
    values["O"] = _solve("windows", values)
    return values


@cache
def _compiled(formula: str) -> Callable[[Mapping[str, int]], int]:
    return compile_index(FORMULAS[formula])


def _solve(formula: str, axis: Mapping[str, int], **places: int) -> int:
    """Evaluate a formula on an axis at some places (window, tap, quotient, residue)."""
    return _compiled(formula)({**axis, **places})


def useful_macs(geometry: ConvGeometry) -> int:
    """Count the products that dx and dw consist of; taps that read padding give none."""
    inside = math.prod(axis_map(axis).inside for axis in geometry.axes)
    channels = geometry.in_channels * geometry.out_channels // geometry.groups
    return geometry.batch * channels * inside * len({"dx", "dw"} & set(geometry.gradients))


# How far a description spells out phases and taps before it only counts the rest, so that it stays
# readable, and its lines fit a comment, for any extents.
_PHASES_SPELLED_OUT = 6
_COLUMNS_OF_TAPS = 42


def describe_maps(geometry: ConvGeometry) -> tuple[str, ...]:
    """Tell a geometry's index maps in lines of text: the formulas, then each axis in numbers."""
    contraction = geometry.as_correlation()
    text = {name: print_index(formula) for name, formula in FORMULAS.items()}
    lines = [
        f"window o of {contraction.narrow} reads, by tap t, position i = {text['position']} "
        f"of {contraction.wide}",
        f"windows: O = {text['windows']}",
        f"inside by tap t: o = {text['first_window']} .. {text['last_window']}",
        f"phases: i + p_before = q*s + r, with q = {text['phase_first']} .. {text['phase_last']}",
        f"tap t serves phase r = {text['tap_residue']} from window o = q - ({text['tap_shift']})",
    ]
    axes = zip("DHW"[-geometry.rank :], contraction.axes[-geometry.rank :], strict=True)
    for name, axis in axes:
        lines += describe_axis_map(name, axis_map(axis))
    return tuple(lines)


def describe_axis_map(name: str, maps: AxisMap) -> tuple[str, ...]:
    """Tell one axis's maps in numbers."""
    axis = maps.axis
    inside = [f"t={tap} o={_span(*maps.tap_range(tap))}" for tap in range(axis.kernel)]
    spelled, rest = maps.phases[:_PHASES_SPELLED_OUT], maps.phases[_PHASES_SPELLED_OUT:]
    lines = [
        f"{name}: I={axis.size} K={axis.kernel} s={axis.stride} d={axis.dilation} "
        f"p={axis.pad_before}+{axis.pad_after} O={maps.out}",
        f"  inside: {_listed(inside)}",
        *(f"  {_describe_phase(phase, axis.stride)}" for phase in spelled),
    ]
    if rest:
        lines.append(f"  ... {len(rest)} more phases")
    if maps.unread_tail:
        lines.append(f"  positions {_span(axis.size - maps.unread_tail, axis.size - 1)}: no window")
    return tuple(lines)


def _describe_phase(phase: Phase, stride: int) -> str:
    last_input = phase.first_input + (phase.count - 1) * stride
    step = f" step {stride}" if stride > 1 and phase.count > 1 else ""
    sources = [f"t={tap.tap} o=q{f'{-tap.shift:+}' if tap.shift else ''}" for tap in phase.taps]
    return (
        f"r={phase.residue}: q={_span(phase.first_q, phase.first_q + phase.count - 1)}, "
        f"i={_span(phase.first_input, last_input)}{step}: "
        f"{_listed(sources) or 'no tap, zero'}"
    )


def _span(first: int, last: int) -> str:
    """Write a range of integers with both ends in it."""
    if first > last:
        return "none"
    return str(first) if first == last else f"{first}..{last}"


def _listed(items: list[str]) -> str:
    """Join the first items, as many as there is room for, and count the rest."""
    kept = 0
    columns = 0
    while kept < len(items) and columns + len(items[kept]) <= _COLUMNS_OF_TAPS:
        columns += len(items[kept]) + 2
        kept += 1
    rest = [f"... {len(items) - kept} more"] if kept < len(items) else []
    return ", ".join([*items[:kept], *rest])
