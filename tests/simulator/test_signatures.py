# SPDX-License-Identifier: Apache-2.0
"""The table of NKI signatures: versions, ranges, and what changed between them."""

from __future__ import annotations

import pytest

from conv3d_codegen.simulator.modules import INSTRUCTIONS
from conv3d_codegen.simulator.signatures import (
    ISA,
    LANGUAGE,
    Signatures,
    known_versions,
    parse_versions,
)

ALL = Signatures(known_versions())


def test_versions_and_ranges() -> None:
    assert known_versions() == ("0.3", "0.4", "0.5", "0.6", "0.7")
    assert parse_versions("0.5") == ("0.5",)
    assert parse_versions("0.4..0.6") == ("0.4", "0.5", "0.6")


@pytest.mark.parametrize("instruction", INSTRUCTIONS)
def test_every_simulated_instruction_stands_in_every_version(instruction: str) -> None:
    assert ALL.missing_versions(ISA, instruction) == ()


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("fori_loop", ("0.3", "0.4", "0.5")),
        ("dynamic_range", ("0.7",)),
        ("float8_e8m0fnu", ("0.3", "0.4")),
        ("ndarray", ()),
        ("float64", None),
    ],
)
def test_names_come_and_go(name: str, missing: tuple[str, ...] | None) -> None:
    assert ALL.missing_versions(LANGUAGE, name) == missing


def problems(function: str, *keywords: str, nki: str = "0.3..0.7") -> list[str]:
    found = Signatures(parse_versions(nki)).problems(ISA, function, 0, keywords)
    return [message for _, message in found]


def test_arguments_must_exist_in_every_version_of_a_range() -> None:
    (message,) = problems("dma_copy", "dst", "src", "priority")
    assert message == "nisa.dma_copy: no argument priority= (NKI 0.3)"
    assert problems("dma_copy", "dst", "src", "priority", nki="0.4..0.7") == []


def test_required_arguments_follow_the_version() -> None:
    given = ("dst", "data", "op0", "operand0", "reduce_op")
    (message,) = problems("tensor_scalar_reduce", *given)
    assert message == "nisa.tensor_scalar_reduce: reduce_res= is missing (NKI 0.3, 0.4, 0.5)"
    assert problems("tensor_scalar_reduce", *given, nki="0.6") == []


def test_scalar_tensor_tensor_reduces_from_0_7_on() -> None:
    given = ("dst", "data", "op0", "operand0", "op1", "operand1", "reduce_op")
    assert problems("scalar_tensor_tensor", *given, nki="0.7") == []
    assert problems("scalar_tensor_tensor", *given, nki="0.6")


def test_positions_are_refused_for_instructions_only() -> None:
    assert ALL.problems(ISA, "tensor_copy", 2, ())[0][0] == "keywords"
    assert ALL.problems(LANGUAGE, "ndarray", 2, ("buffer",)) == []
    assert ALL.problems(LANGUAGE, "ndarray", 1, ("shape", "dtype")) == [
        ("signature", "nl.ndarray: shape= is given twice (NKI 0.3, 0.4, 0.5, 0.6, 0.7)")
    ]
