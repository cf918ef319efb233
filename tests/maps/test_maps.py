# SPDX-License-Identifier: Apache-2.0
"""Index maps agree with counting windows and positions one by one."""

from __future__ import annotations

from collections import Counter

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from conv3d_codegen.geometry import AxisGeometry, ConvGeometry
from conv3d_codegen.maps import FORMULAS, axis_map, describe_maps
from strategies import FEATURES, axes, geometries

any_axis = st.one_of(
    axes(), geometries(["transposed"], max_channels=1).map(lambda geometry: geometry.axes[1])
)


def _windows(axis: AxisGeometry) -> list[list[int]]:
    """Positions that each window reads, by tap, counted by sliding it along the padded input."""
    end = axis.size + axis.pad_after
    windows = []
    start = -axis.pad_before
    while start + axis.extent <= end:
        windows.append([start + tap * axis.dilation for tap in range(axis.kernel)])
        start += axis.stride
    return windows


@given(any_axis)
def test_windows_are_those_that_fit(axis: AxisGeometry) -> None:
    windows, maps = _windows(axis), axis_map(axis)
    assert maps.out == axis.out == len(windows)
    for o, positions in enumerate(windows):
        assert [maps.position(o, tap) for tap in range(axis.kernel)] == positions


@given(any_axis)
def test_tap_ranges_hold_exactly_the_windows_that_read_the_input(axis: AxisGeometry) -> None:
    windows, maps = _windows(axis), axis_map(axis)
    for tap in range(axis.kernel):
        first, last = maps.tap_range(tap)
        inside = [o for o, reads in enumerate(windows) if 0 <= reads[tap] < axis.size]
        assert list(range(first, last + 1)) == inside


@given(any_axis)
def test_phases_cover_each_position_once(axis: AxisGeometry) -> None:
    covered: Counter[int] = Counter()
    for phase in axis_map(axis).phases:
        assert phase.count > 0
        assert phase.first_input == phase.first_q * axis.stride + phase.residue - axis.pad_before
        covered.update(phase.first_input + k * axis.stride for k in range(phase.count))
    assert covered == Counter(range(axis.size))


@given(any_axis)
def test_phases_know_every_window_that_reads_a_position(axis: AxisGeometry) -> None:
    expected: set[tuple[int, int, int]] = set()
    for o, reads in enumerate(_windows(axis)):
        expected |= {(i, o, tap) for tap, i in enumerate(reads) if 0 <= i < axis.size}
    found: set[tuple[int, int, int]] = set()
    for phase in axis_map(axis).phases:
        for tap in phase.taps:
            for q in range(tap.first_q, tap.last_q + 1):
                i = q * axis.stride + phase.residue - axis.pad_before
                found.add((i, q - tap.shift, tap.tap))
                assert phase.first_q <= q < phase.first_q + phase.count
    assert found == expected


@given(any_axis)
def test_the_unread_tail_is_what_follows_the_last_window(axis: AxisGeometry) -> None:
    end = _windows(axis)[-1][-1] + 1
    assert axis_map(axis).unread_tail == min(axis.size, max(0, axis.size - end))


def test_the_unread_tail_is_no_longer_than_the_input() -> None:
    # The only window reads position -3.
    assert axis_map(AxisGeometry(1, 1, 4, 1, 3, 0)).unread_tail == 1


def test_the_phase_formulas_solve_the_read_formula() -> None:
    tap, stride, dilation, shift = sympy.symbols("t s d e", integer=True)
    q, r, o = sympy.symbols("q r o", integer=True)
    # t*d = e*s + r, and window q - e: the position it reads must be the phase's.
    read = FORMULAS["position"].subs(o, q - shift).subs(tap * dilation, shift * stride + r)
    assert sympy.expand(read - FORMULAS["phase_position"]) == 0


@pytest.mark.parametrize(
    ("axis", "phases"),
    [
        # stride and dilation share a factor: odd phases have no tap
        (AxisGeometry(12, 3, 2, 2, 0, 0), [(0, 6, [0, 1, 2]), (1, 6, [])]),
        # stride beyond the kernel
        (AxisGeometry(9, 2, 4, 1, 0, 0), [(0, 3, [0]), (1, 2, [1]), (2, 2, []), (3, 2, [])]),
        # stride beyond the input: only the residues that occur
        (AxisGeometry(2, 1, 100, 1, 3, 0), [(3, 1, []), (4, 1, [])]),
        # padding of at least the kernel
        (AxisGeometry(4, 2, 2, 1, 3, 3), [(0, 2, [0]), (1, 2, [1])]),
    ],
)
def test_phases_of_axes_that_are_easy_to_get_wrong(
    axis: AxisGeometry, phases: list[tuple[int, int, list[int]]]
) -> None:
    found = [(p.residue, p.count, [tap.tap for tap in p.taps]) for p in axis_map(axis).phases]
    assert found == phases


def test_the_description_states_formulas_then_numbers() -> None:
    geometry = ConvGeometry.from_shapes((1, 64, 15), (128, 3), stride=2, padding=(1, 0))
    assert (
        "\n".join(describe_maps(geometry))
        == """\
window o of dy reads, by tap t, position i = d*t + o*s - p_before of x
windows: O = (I + p_after + p_before - d*(K - 1) - 1) // s + 1
inside by tap t: o = max(0, -((d*t - p_before) // s)) .. min(O - 1, (I + p_before - d*t - 1) // s)
phases: i + p_before = q*s + r, with q = -((r - p_before) // s) .. (I + p_before - r - 1) // s
tap t serves phase r = d*t % s from window o = q - (d*t // s)
W: I=15 K=3 s=2 d=1 p=1+0 O=7
  inside: t=0 o=1..6, t=1 o=0..6, t=2 o=0..6
  r=0: q=1..7, i=1..13 step 2: t=0 o=q, t=2 o=q-1
  r=1: q=0..7, i=0..14 step 2: t=1 o=q
  positions 14: no window"""
    )


@given(geometries(FEATURES))
def test_descriptions_fit_a_line(geometry: ConvGeometry) -> None:
    assert max(map(len, describe_maps(geometry))) <= 98
