# SPDX-License-Identifier: Apache-2.0
"""Each rule has its own error, which says what was given, what is wrong and what is accepted."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest

from conv3d_codegen import errors
from conv3d_codegen.errors import EmptyProblem, RequestError, RuleError
from conv3d_codegen.geometry import ConvGeometry, rules
from conv3d_codegen.targets import TARGETS

TRANSPOSED = {"transposed": True, "stride": 2}

# What is changed in a plain 3-D convolution, the error, and the values its message must show.
BROKEN: list[tuple[dict[str, Any], type[RuleError], list[str]]] = [
    ({"shape": (1, 4)}, errors.RankError, ["1,4", "0 spatial axes"]),
    ({"shape": (1, 4, 5, 5, 5, 5)}, errors.RankError, ["4 spatial axes", "1, 2 or 3"]),
    ({"shape": ()}, errors.RankError, ["-2 spatial axes"]),
    ({"filters": (4, 3, 3)}, errors.RankError, ["4,3,3", "4 numbers"]),
    ({"shape": (1, 4, 5, 5, 5.5)}, errors.NotAnInteger, ["5.5"]),
    ({"stride": 1.5}, errors.NotAnInteger, ["stride 1.5"]),
    ({"padding": "same"}, errors.WrongCount, ["s,a,m,e", "4 numbers"]),
    ({"groups": True}, errors.NotAnInteger, ["groups True"]),
    ({"stride": (1, 1)}, errors.WrongCount, ["stride 1,1", "1 or 3 numbers"]),
    ({"padding": (1, 1, 1, 1)}, errors.WrongCount, ["padding 1,1,1,1", "1 or 3 or 6 numbers"]),
    ({"shape": (-1, 4, 5, 5, 5)}, errors.SizeNotPositive, ["batch -1"]),
    ({"shape": (0, 4, 5, 5, 5)}, errors.ZeroBatch, ["batch 0", "dw and db are zero"]),
    ({"shape": (1, 0, 5, 5, 5)}, errors.SizeNotPositive, ["in_channels 0"]),
    ({"filters": (0, 3, 3, 3)}, errors.SizeNotPositive, ["out_channels 0"]),
    ({"shape": (1, 4, 5, 0, 5)}, errors.SizeNotPositive, ["input size 5,0,5"]),
    ({"filters": (4, 3, 0, 3)}, errors.SizeNotPositive, ["kernel size 3,0,3"]),
    ({"stride": (1, 0, 1)}, errors.StrideNotPositive, ["stride 1,0,1", ">= 1"]),
    ({"dilation": -1}, errors.DilationNotPositive, ["dilation -1,-1,-1"]),
    ({"padding": (0, 0, 0, -1, 0, 0)}, errors.PaddingNegative, ["0,0,0,-1,0,0", ">= 0"]),
    ({"groups": 0}, errors.GroupsError, ["groups 0"]),
    ({"groups": 3}, errors.GroupsError, ["groups 3 with in_channels 4"]),
    ({"filters": (6, 3, 3, 3), "groups": 4}, errors.GroupsError, ["out_channels 6"]),
    ({"filters": (4, 3, 6, 3)}, errors.KernelExceedsInput, ["axis H", "5 positions", "spans 6"]),
    ({"dilation": 3}, errors.KernelExceedsInput, ["axis D", "dilation 3", "spans 7"]),
    ({"output_padding": 1}, errors.OutputPaddingNotTransposed, ["output padding 1,1,1"]),
    (TRANSPOSED | {"output_padding": 2}, errors.OutputPaddingRange, ["2,2,2", "0 to 1,1,1"]),
    (TRANSPOSED | {"output_padding": -1}, errors.OutputPaddingRange, ["-1,-1,-1"]),
    (TRANSPOSED | {"padding": 6}, errors.EmptyOutput, ["output size -1x-1x-1"]),
    ({"shape": (2**31, 4, 5, 5, 5)}, errors.NumberTooLarge, ["batch 2147483648"]),
    ({"stride": 2**40}, errors.NumberTooLarge, ["stride", "2147483647"]),
    ({"dilation": 2**30, "padding": 2**30}, errors.NumberTooLarge, ["dilated kernel size"]),
    ({"shape": (1, 4, 1024, 1024, 512)}, errors.TensorTooLarge, ["x of shape", "2147483648"]),
    (
        {"shape": (1, 4, 1024, 1024, 511), "dtype": "fp32"},
        errors.OutputTooLarge,
        ["dx of 8573157376 bytes"],
    ),
    ({"gradients": ()}, errors.NothingToCompute, ["no gradient", "dx, dw, db"]),
    ({"gradients": ("dz",)}, errors.UnknownGradient, ["dz"]),
    ({"dtype": "f32"}, errors.UnknownDtype, ["dtype f32", "fp8_e5m2"]),
    ({"out_dtype": "int8"}, errors.UnknownDtype, ["out dtype int8"]),
    ({"dy_dtype": "int8"}, errors.UnknownDtype, ["dy dtype int8"]),
    (
        {"dtype": "fp8_e4m3", "dy_dtype": "bf16"},
        errors.MixedDtypes,
        ["dy of bf16, x of fp8_e4m3, filters of fp8_e4m3", "fp8_e4m3, fp8_e5m2"],
    ),
    (
        {"filter_dtype": "fp16"},
        errors.MixedDtypes,
        ["x of bf16, filters of fp16", "only 8-bit floats"],
    ),
    ({"math": "half"}, errors.UnknownMath, ["math half", "full, tf32, bf16"]),
    ({"math": "tf32"}, errors.MathNeedsFp32, ["math tf32 with dtype bf16"]),
    ({"layout": "NCHW"}, errors.UnknownLayout, ["layout NCHW", "rank 3", "NCDHW, NDHWC"]),
    ({"filter_layout": "IODHW"}, errors.UnknownFilterLayout, ["IODHW", "DHWCN"]),
    ({"target": "trn1"}, errors.UnknownTarget, ["target trn1", "trn2, trn3"]),
    ({"lnc": 4}, errors.UnknownLnc, ["lnc 4", "1 or 2"]),
]


def _build(change: dict[str, Any]) -> ConvGeometry:
    return ConvGeometry.from_shapes(**{"shape": (1, 4, 5, 5, 5), "filters": (4, 3, 3, 3)} | change)


@pytest.mark.parametrize(("change", "error", "shown"), BROKEN)
def test_a_broken_rule_says_so(
    change: dict[str, Any], error: type[RuleError], shown: list[str]
) -> None:
    with pytest.raises(RequestError) as caught:
        _build(change)
    assert type(caught.value) is error
    assert caught.value.code == error.rule
    line = str(caught.value)
    assert "\n" not in line
    assert "accepted: " in line
    assert not [value for value in shown if value not in line]


def test_the_unchanged_convolution_breaks_no_rule() -> None:
    assert _build({}).output_size == (3, 3, 3)


def test_every_rule_has_its_own_code() -> None:
    rules = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, RuleError)]
    codes = [rule.rule for rule in rules]
    assert len(set(codes)) == len(rules)


def test_a_missing_axis_must_be_a_unit_axis() -> None:
    geometry = ConvGeometry.from_shapes((1, 4, 2, 5, 5), (4, 1, 3, 3))
    with pytest.raises(errors.RankError, match="rank 2 with D values"):
        replace(geometry, rank=2)


def test_limits_are_inclusive() -> None:
    largest = _build(
        {"shape": (1, 1, 1, 1, 2**31 - 1), "filters": (1, 1, 1, 1), "stride": 2**31 - 1}
    )
    assert largest.output_size == (1, 1, 1)
    output_padding = _build(TRANSPOSED | {"dilation": 3, "output_padding": 2})
    assert output_padding.output_size == (17, 17, 17)


@pytest.mark.parametrize("change", [{"shape": (0, 4, 5, 5, 5)}, {"filters": (4, 7, 3, 3)}])
def test_problems_without_work_can_be_told_from_wrong_ones(change: dict[str, Any]) -> None:
    with pytest.raises(EmptyProblem):
        _build(change)


def test_an_empty_batch_is_reported_only_if_all_else_is_right() -> None:
    with pytest.raises(errors.GroupsError):
        _build({"shape": (0, 4, 5, 5, 5), "groups": 3})


def test_errors_survive_pickling() -> None:
    with pytest.raises(RequestError) as caught:
        _build({"groups": 3})
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (type(copy), copy.code, str(copy)) == (
        errors.GroupsError,
        caught.value.code,
        str(caught.value),
    )
    plain = pickle.loads(pickle.dumps(RequestError("some-code", "some message")))
    assert str(plain) == "some-code: some message"


def test_geometries_name_exactly_the_targets_with_a_hardware_table() -> None:
    assert set(rules.TARGETS) == set(TARGETS)
