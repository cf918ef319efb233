# SPDX-License-Identifier: Apache-2.0
"""The order in which calls look for kernels: packs, cache, emitter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from conv3d_codegen import load_pack
from conv3d_codegen.cache import KernelCache
from conv3d_codegen.calls import conv3d_bwd, kernels, use_pack
from conv3d_codegen.errors import RequestError
from conv3d_codegen.geometry import ConvGeometry
from conv3d_codegen.layers import Layer
from conv3d_codegen.packs.build import build_pack

if TYPE_CHECKING:
    from pathlib import Path

    from conv3d_codegen.packs import Pack

GEOMETRY = ConvGeometry.from_shapes((1, 2, 5), (3, 2), dtype="fp32")
ARRAYS = [
    np.ones(shape, np.float32)
    for shape in (GEOMETRY.dy_shape, GEOMETRY.x_shape, GEOMETRY.filter_shape)
]


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget packs and the cache of other tests."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(kernels, "_used", [])
    monkeypatch.setattr(kernels, "_installed", tuple)


def pack_of(geometry: ConvGeometry, path: Path) -> Pack:
    build_pack([Layer("M", "l", geometry)], path)
    return load_pack(path)


def test_a_kernel_that_is_nowhere_is_emitted_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    source = kernels.find_source(GEOMETRY)
    monkeypatch.setattr(kernels, "emit_stored", None)
    assert kernels.find_source(GEOMETRY) == source


def test_packs_come_before_cache_and_emitter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = pack_of(GEOMETRY, tmp_path / "kernels.pack")
    conv3d_bwd(*ARRAYS)
    use_pack(pack)
    monkeypatch.setattr(KernelCache, "fetch", None)
    dx, _, _ = conv3d_bwd(*ARRAYS)
    assert dx.shape == GEOMETRY.x_shape
    with pytest.raises(TypeError):  # what the pack does not hold would come from the cache
        conv3d_bwd(*ARRAYS, compute_db=False)


def test_the_latest_pack_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packs = [pack_of(GEOMETRY, tmp_path / name) for name in ("a.pack", "b.pack")]
    asked = []
    find = type(packs[0]).find

    def spy(pack: Pack, geometry: ConvGeometry) -> object:
        asked.append(pack.path.name)
        return find(pack, geometry)

    monkeypatch.setattr(type(packs[0]), "find", spy)
    for pack in packs:
        use_pack(pack)
    conv3d_bwd(*ARRAYS)
    assert asked == ["b.pack"]


def test_installed_packs_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack = pack_of(GEOMETRY, tmp_path / "kernels.pack")
    monkeypatch.setattr(kernels, "_installed", lambda: (pack,))
    monkeypatch.setattr(KernelCache, "fetch", None)
    assert kernels.find_source(GEOMETRY) == pack.member(GEOMETRY.key()).kernel.source


def test_a_pack_that_was_damaged_since_is_not_run(tmp_path: Path) -> None:
    pack = pack_of(GEOMETRY, tmp_path / "kernels.pack")
    use_pack(pack)
    content = bytearray(pack.path.read_bytes())
    content[100] ^= 1
    pack.path.write_bytes(content)
    with pytest.raises(RequestError) as caught:
        conv3d_bwd(*ARRAYS)
    assert caught.value.code == "malformed-pack"
