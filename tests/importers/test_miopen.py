# SPDX-License-Identifier: Apache-2.0
"""MIOpenDriver lines as layers."""

from __future__ import annotations

import pytest

from conv3d_codegen.geometry import ConvGeometry
from conv3d_codegen.importers.miopen import read_miopen


def only(line: str) -> ConvGeometry:
    imported = read_miopen(line, "M")
    assert not imported.skipped
    (layer,) = imported.layers
    return layer.geometry


def geometry(*arguments: tuple[int, ...], **more: object) -> ConvGeometry:
    return ConvGeometry.from_shapes(
        *arguments, **{"dtype": "fp32", "gradients": ["dx", "dw"], **more}
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "./bin/MIOpenDriver conv -n 128 -c 1024 -H 14 -W 15 -k 256 -y 1 -x 3 -p 0 -q 1 -u 1 "
            "-v 2 -l 1 -j 4 -m conv -g 4 -F 0 -t 1",
            geometry(
                (128, 1024, 14, 15), (256, 1, 3), padding=(0, 1), stride=(1, 2), dilation=(1, 4),
                groups=4,
            ),
        ),
        (
            "MIOpenDriver convbfp16 --spatial_dim 3 -n 2 -c 32 --in_d 16 -H 64 -W 65 -k 64 "
            "--fil_d 3 -y 3 -x 1 --pad_d 1 -p 1 -q 0 --conv_stride_d 2 -u 2 -v 1 --dilation_d 1",
            geometry(
                (2, 32, 16, 64, 65), (64, 3, 3, 1), padding=(1, 1, 0), stride=(2, 2, 1),
                dtype="bf16",
            ),
        ),
        (
            "MIOpenDriver convfp16 -_ 3 -n 1 -c 8 -! 4 -H 4 -W 4 -k 4 -@ 2 -y 2 -x 2 -# 2 -u 2 "
            "-v 2 -% 1 -Y 1 -X 0 -m trans -b 1",
            geometry(
                (1, 8, 4, 4, 4), (4, 2, 2, 2), stride=2, output_padding=(1, 1, 0), transposed=True,
                dtype="fp16", gradients=["dx", "dw", "db"],
            ),
        ),
        ("conv -F 1", geometry((100, 3, 32, 32), (32, 3, 3), gradients=["dx", "dw", "db"])),
        ("conv -F 2", geometry((100, 3, 32, 32), (32, 3, 3), gradients=["dx"])),
        ("conv -F 5", geometry((100, 3, 32, 32), (32, 3, 3), gradients=["dw"])),
        ("conv -z same -u 2", geometry(
            (100, 3, 32, 32), (32, 3, 3), padding=(0, 1), stride=(2, 1)
        )),
        ("conv -z same -H 33 -u 2", geometry(
            (100, 3, 33, 32), (32, 3, 3), padding=(1, 1), stride=(2, 1)
        )),
        ("conv -z valid -p 1", geometry((100, 3, 32, 32), (32, 3, 3))),
        ("conv -z same -l 2 -p 3", geometry(
            (100, 3, 32, 32), (32, 3, 3), padding=(3, 0), dilation=(2, 1)
        )),
    ],
)  # fmt: skip
def test_flags_and_defaults(line: str, expected: ConvGeometry) -> None:
    assert only(line) == expected


def test_lines_about_one_layer_are_one_layer() -> None:
    log = """
MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver conv -n 2 -c 4 -F 1 -t 1
MIOpen(HIP): Info [FindSolution] something else, conv or not
MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver conv -n 2 -c 4 -F 4 -t 1
./bin/MIOpenDriver conv -n 2 -c 8 -F 2
"""
    first, second = read_miopen(log, "M").layers
    assert (first.layer, first.geometry.gradients) == ("line2", ("dw",))
    assert (second.layer, second.geometry.gradients) == ("line5", ("dx",))


def test_what_has_no_kernel_is_skipped_by_line() -> None:
    imported = read_miopen("conv -n 1\nconvint8 -n 1\nconv -H 1\nconv -H x\n", "M")
    assert len(imported.layers) == 1
    assert [skipped.where for skipped in imported.skipped] == ["line 2", "line 3", "line 4"]
