# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from conv3d_codegen.compile.toolchain import MISSING
from conv3d_codegen.report.doctor import diagnose


def test_nothing_is_missing_that_is_required() -> None:
    assert MISSING not in diagnose().libraries.values()


def test_the_toolchain_is_named_whether_or_not_it_is_there() -> None:
    assert diagnose().toolchain.keys() == {"nki", "neuronx-cc", "dialect", "device"}
