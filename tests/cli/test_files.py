# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NoReturn

import pytest

from conv3d_codegen.errors import RequestError
from conv3d_codegen.files import GENERATED_MARK, read_text, write_product

if TYPE_CHECKING:
    from pathlib import Path

OLD = f"# {GENERATED_MARK} - do not edit.\nold = True\n"


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> NoReturn:
        raise OSError(28, "No space left on device")

    file = tmp_path / "kernel.py"
    file.write_text(OLD)
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="No space left"):
        write_product(file, "new = True\n", force=False)
    assert file.read_text() == OLD
    assert list(tmp_path.iterdir()) == [file]


def test_products_have_unix_newlines_and_the_usual_permissions(tmp_path: Path) -> None:
    file = tmp_path / "new" / "kernel.py"
    write_product(file, "a = 1\nb = 2\n", force=False)
    assert file.read_bytes() == b"a = 1\nb = 2\n"
    plain = tmp_path / "plain"
    plain.write_text("")
    assert stat.S_IMODE(file.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_a_file_that_is_not_text_is_a_request_error(tmp_path: Path) -> None:
    file = tmp_path / "kernel.py"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RequestError, match="not-text"):
        read_text(file)
