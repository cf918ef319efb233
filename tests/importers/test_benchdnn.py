# SPDX-License-Identifier: Apache-2.0
"""oneDNN's descriptors and verbose lines as layers."""

from __future__ import annotations

import pytest

from conv3d_codegen.geometry import ConvGeometry
from conv3d_codegen.importers.benchdnn import read_benchdnn

VERBOSE = (
    "onednn_verbose,v1,primitive,exec,cpu,{primitive},jit:avx512_core,{direction},"
    "src{sep}{dtype}::blocked:acdb::f0 wei{sep}{dtype}:ap:blocked:Acdb16a::f0 "
    "bia{sep}{bias}:a:blocked:a::f0 dst{sep}{dtype}::blocked:acdb::f0,attr-scratchpad:user ,"
    "alg:convolution_direct,{problem},1.32788"
)


def only(line: str) -> ConvGeometry:
    imported = read_benchdnn(line, "M")
    assert not imported.skipped
    (layer,) = imported.layers
    return layer.geometry


def geometry(*arguments: tuple[int, ...], **more: object) -> ConvGeometry:
    return ConvGeometry.from_shapes(*arguments, **{"dtype": "fp32", **more})


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            'ic3ih227iw227_oc96oh55ow55_kh11kw11_sh4sw4ph0pw0_n"alexnet:conv1"',
            geometry((2, 3, 227, 227), (96, 11, 11), stride=4),
        ),
        (
            "g32mb4ic64id8oc64od8kd3pd1",
            geometry((4, 64, 8, 8, 8), (64, 3, 3, 3), padding=1, groups=32),
        ),
        ("ic3ih8iw9oc4oh8ow9kh3kw3", geometry((2, 3, 8, 9), (4, 3, 3), padding=1)),
        ("ic3iw9oc4kw3dw1", geometry((2, 3, 9), (4, 3), dilation=2)),
        # An even kernel at full size: the padding behind is the larger one.
        ("ic3ih8oc4oh8kh4", geometry((2, 3, 8, 8), (4, 4, 4), padding=(1, 2, 1, 2))),
        # The last row and column take part in no window.
        ("ic3ih8oc4oh4kh1sh2ph0", geometry((2, 3, 8, 8), (4, 1, 1), stride=2)),
        (
            "--deconv ic16ih4oc8oh9kh2sh2ph0",
            geometry((2, 16, 4, 4), (8, 2, 2), stride=2, transposed=True, output_padding=1),
        ),
        (
            "--deconv --dir=BWD_D,BWD_WB --dt=bf16 --mb=3 ic16ih4oc8kh3ph1",
            geometry((3, 16, 4, 4), (8, 3, 3), padding=1, transposed=True, dtype="bf16"),
        ),
        (
            "--conv --dir=BWD_W --cfg=f16 ic16ih4oc8kh3ph1",
            geometry((2, 16, 4, 4), (8, 3, 3), padding=1, dtype="fp16", gradients=["dw"]),
        ),
    ],
)
def test_descriptors(line: str, expected: ConvGeometry) -> None:
    assert only(line) == expected


@pytest.mark.parametrize("separator", ["_", ":"])
@pytest.mark.parametrize(
    ("primitive", "direction", "bias", "gradients"),
    [
        ("convolution", "forward_training", "f32", ("dx", "dw", "db")),
        ("convolution", "backward_data", "undef", ("dx",)),
        ("convolution", "backward_weights", "undef", ("dw",)),
        ("convolution", "backward_weights", "f32", ("dw", "db")),
        ("deconvolution", "backward_data", "undef", ("dx",)),
    ],
)
def test_verbose_lines(
    separator: str, primitive: str, direction: str, bias: str, gradients: tuple[str, ...]
) -> None:
    line = VERBOSE.format(
        primitive=primitive,
        direction=direction,
        sep=separator,
        dtype="bf16",
        bias=bias,
        problem="mb2_g2ic6oc4_ih4oh4kh3sh1dh0ph1_iw5ow5kw3sw1dw0pw1",
    )
    transposed = primitive == "deconvolution"
    assert only(line) == geometry(
        (2, 6, 4, 5), (4, 3, 3), padding=1, groups=2, transposed=transposed, dtype="bf16",
        gradients=gradients,
    )  # fmt: skip


def test_knobs_hold_for_later_lines_until_reset() -> None:
    batch_file = """
# comment with ic3ih3oc3kh3
--dir=BWD_D
ic1ih8oc4kh3_n"first"
--reset --dt=bf16
ic2ih8oc4kh3 ic3ih8oc4kh3n"first"
"""
    layers = read_benchdnn(batch_file, "M").layers
    assert [layer.layer for layer in layers] == ["first", "line6", "first.line6"]
    assert layers[0].geometry.gradients == ("dx",)
    assert layers[1].geometry.gradients == ("dx", "dw", "db")
    assert [layer.geometry.dtype for layer in layers] == ["fp32", "bf16", "bf16"]


@pytest.mark.parametrize(
    "line",
    [
        "--dt=s8 ic1ih8oc4kh3",
        "ic1ih2oc4kh3",
        "ic1oc4kh3",
        "ic1ih8oc4",
        "ic1ih8oc4oh2kh1sh2ph0",
        "g3ic4ih8oc6kh3",
    ],
)
def test_what_has_no_kernel_is_skipped_by_line(line: str) -> None:
    imported = read_benchdnn(line, "M")
    assert not imported.layers
    assert [skipped.where for skipped in imported.skipped] == ["line 1"]


def test_other_lines_of_a_log_are_passed_over() -> None:
    log = (
        "onednn_verbose,v1,info,oneDNN v3.6.0\n"
        "onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,src_f32::blocked:abcd::f0 "
        "dst_f32::blocked:aBcd8b::f0,,,2x16x7x7,0.02\n"
        "Epoch 1: loss 0.1\n"
    )
    imported = read_benchdnn(log, "M")
    assert not imported.layers
    assert not imported.skipped
