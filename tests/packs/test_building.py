# SPDX-License-Identifier: Apache-2.0
"""Building packs: stores are used, layers that fail are told, and nothing else is lost."""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import pytest

from conv3d_codegen.cache import Artifact, KernelCache
from conv3d_codegen.errors import CacheUnwritable, RequestError
from conv3d_codegen.packs import build, load_pack, workers
from conv3d_codegen.packs.build import build_pack
from conv3d_codegen.packs.drift import find_drift
from conv3d_codegen.packs.workers import Failure, emit_all, try_to_emit
from conv3d_codegen.packs.write import check_replaceable
from stored_kernels import (
    DEADLY,
    OPTIONS,
    REFUSED,
    emit_or_die,
    geometry,
    layers,
    packed,
    stored,
)

if TYPE_CHECKING:
    from concurrent.futures import Future
    from pathlib import Path

NEFF = Artifact("neuronx-cc-2.21.1", {"kernel.neff": b"\0code"})


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers take text from the stand-in."""
    monkeypatch.setattr(workers, "try_to_emit", emit_or_die)


@pytest.fixture
def cache(tmp_path: Path) -> KernelCache:
    return KernelCache(tmp_path / "cache")


@pytest.fixture
def no_emission(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> NoReturn:
        pytest.fail("a kernel was emitted")

    monkeypatch.setattr(workers, "try_to_emit", refuse)
    monkeypatch.setattr(build, "emit_stored", refuse)


def test_layers_of_one_geometry_share_a_kernel(tmp_path: Path, cache: KernelCache) -> None:
    twice = [*layers(1, 2), replace(layers(1)[0], layer="again"), *layers(1)]
    report = build_pack(twice, tmp_path / "p", cache=cache)
    assert (report.emitted, report.found, report.failures) == (2, 0, ())
    entry = load_pack(tmp_path / "p").manifest.by_key[geometry(1).key()]
    assert entry.layers == ("net/conv1", "net/again")
    assert report.pack == load_pack(tmp_path / "p")


@pytest.mark.parametrize("count", [1, 3])
def test_the_order_of_layers_and_workers_does_not_show(
    tmp_path: Path, cache: KernelCache, count: int
) -> None:
    build_pack(layers(3, 1, 2), tmp_path / "a", cache=cache)
    with ThreadPoolExecutor(count) as pool:
        other = KernelCache(tmp_path / "other")
        build_pack(layers(2, 3, 1), tmp_path / "b", cache=other, workers=pool)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_second_build_finds_everything(
    tmp_path: Path, cache: KernelCache, request: pytest.FixtureRequest
) -> None:
    build_pack(layers(1, 2, 3), tmp_path / "a", cache=cache)
    request.getfixturevalue("no_emission")
    report = build_pack(layers(1, 2, 3), tmp_path / "b", cache=cache, workers=2)
    assert (report.emitted, report.found) == (0, 3)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_an_interrupted_build_goes_on_where_it_was(
    tmp_path: Path, cache: KernelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(done: int, total: int, name: str) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_pack(layers(1, 2, 3), tmp_path / "p", cache=cache, progress=stop)
    assert not (tmp_path / "p").exists()
    assert [child.name for child in tmp_path.iterdir()] == ["cache"]
    report = build_pack(layers(1, 2, 3), tmp_path / "p", cache=cache)
    assert (report.emitted, report.found) == (1, 2)


@pytest.mark.usefixtures("no_emission")
def test_an_earlier_pack_serves_as_a_store_and_keeps_what_was_compiled(
    tmp_path: Path, cache: KernelCache
) -> None:
    packed(tmp_path / "p", 1, 2, 5)
    maker = KernelCache(tmp_path / "maker")
    maker.put_artifact(stored(geometry(1)), NEFF)
    maker.put(stored(geometry(2)))
    compiled = build_pack(layers(1, 2), tmp_path / "p", cache=maker)
    assert compiled.pack.manifest.by_key[geometry(1).key()].compiled
    report = build_pack(layers(1, 2), tmp_path / "p", cache=cache)
    assert (report.emitted, report.found) == (0, 2)
    assert report.pack.manifest == compiled.pack.manifest
    assert cache.artifacts(geometry(1), OPTIONS) == (NEFF,)


@pytest.mark.usefixtures("no_emission")
def test_a_pack_that_is_up_to_date_is_left_alone(
    tmp_path: Path, cache: KernelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = packed(tmp_path / "p", 1, 2)
    with monkeypatch.context() as patch:
        patch.setattr(build, "write_pack", lambda *_: pytest.fail("a pack was written"))
        assert build_pack(layers(1, 2), tmp_path / "p", cache=cache).pack == first
    cache.put_artifact(stored(geometry(1)), NEFF)
    assert build_pack(layers(1, 2), tmp_path / "p", cache=cache).pack != first
    assert len(build_pack(layers(1), tmp_path / "p", cache=cache).pack) == 1


def test_kernels_of_other_options_are_made_again(tmp_path: Path, cache: KernelCache) -> None:
    packed(tmp_path / "p", 1)
    report = build_pack(layers(1), tmp_path / "p", cache=cache, options=replace(OPTIONS, nki="0.3"))
    assert report.emitted == 1


def test_a_damaged_earlier_pack_costs_a_warning(
    tmp_path: Path, cache: KernelCache, caplog: pytest.LogCaptureFixture
) -> None:
    packed(tmp_path / "p", 1)
    (tmp_path / "p").write_bytes((tmp_path / "p").read_bytes()[:-9])
    assert build_pack(layers(1), tmp_path / "p", cache=cache).emitted == 1
    assert "it is built anew" in caplog.text
    assert load_pack(tmp_path / "p").problems() == ()


def test_a_cache_entry_that_is_damaged_when_the_pack_is_written_is_made_again(
    tmp_path: Path, cache: KernelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "emit_stored", stored)
    cache.put(stored(geometry(1)))
    (text,) = cache.root.rglob("*.py")
    text.write_text("damaged")
    report = build_pack(layers(1), tmp_path / "p", cache=cache)
    assert report.pack.find(geometry(1)) == stored(geometry(1))


def test_a_cache_that_cannot_be_written_to_ends_the_build(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheUnwritable):
        build_pack(layers(1), tmp_path / "p", cache=KernelCache(tmp_path / "file"))
    assert not (tmp_path / "p").exists()


def test_a_layer_that_fails_takes_no_other_with_it(tmp_path: Path, cache: KernelCache) -> None:
    report = build_pack(layers(1, REFUSED, 2), tmp_path / "p", cache=cache)
    (failure,) = report.failures
    assert (failure.layers, failure.code) == (("net/conv7",), "refused")
    assert failure.key == geometry(REFUSED).key()
    assert [entry.layers for entry in report.pack.manifest.entries] == [
        ("net/conv1",),
        ("net/conv2",),
    ]


def test_a_process_that_dies_takes_no_other_layer_with_it(
    tmp_path: Path, cache: KernelCache
) -> None:
    wanted = layers(1, DEADLY, 2, 3, REFUSED, 4)
    report = build_pack(wanted, tmp_path / "p", cache=cache, workers=2)
    assert {failure.code for failure in report.failures} == {"worker-died", "refused"}
    assert {layer for failure in report.failures for layer in failure.layers} == {
        "net/conv13",
        "net/conv7",
    }
    assert len(report.pack) == 4


class BrokenAfterOne(Executor):
    """An executor that breaks down."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._submitted = 0

    def submit(self, *arguments: object, **more: object) -> Future[object]:
        self._submitted += 1
        if self._submitted > 1:
            raise BrokenProcessPool("gone")
        return self._pool.submit(*arguments, **more)


def test_an_executor_that_breaks_down_fails_the_rest_by_name() -> None:
    outcomes = dict(emit_all([geometry(n) for n in (1, 2, 3)], OPTIONS, BrokenAfterOne()))
    assert {problem.batch for problem in outcomes} == {1, 2, 3}
    codes = {outcome.code for outcome in outcomes.values() if isinstance(outcome, Failure)}
    assert codes == {"workers-lost"}


def test_a_worker_of_another_version_is_told_from_this_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def foreign(problem: object, options: object) -> object:
        kernel = stored(geometry(1))
        return replace(kernel, info=replace(kernel.info, recipe="0" * 64))

    monkeypatch.setattr(workers, "try_to_emit", foreign)
    with ThreadPoolExecutor(1) as pool:
        ((_, outcome),) = emit_all([geometry(1)], OPTIONS, pool)
    assert isinstance(outcome, Failure)
    assert outcome.code == "other-generator"


def test_what_goes_wrong_in_emission_is_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> NoReturn:
        raise RequestError("no-way", "this cannot be")

    def crash(*_: object) -> NoReturn:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(workers, "emit_stored", refuse)
    assert try_to_emit(geometry(1), OPTIONS) == Failure("no-way", "this cannot be")
    monkeypatch.setattr(workers, "emit_stored", crash)
    failure = try_to_emit(geometry(1), OPTIONS)
    assert isinstance(failure, Failure)
    assert failure.code == "internal"
    assert failure.message.startswith("ZeroDivisionError in crash, line ")


def test_progress_is_told_after_each_kernel(tmp_path: Path, cache: KernelCache) -> None:
    cache.put(stored(geometry(1)))
    seen: list[tuple[int, int]] = []
    build_pack(
        layers(1, 2, REFUSED, 3),
        tmp_path / "p",
        cache=cache,
        progress=lambda done, total, name: seen.append((done, total)),
    )
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_drift_is_found_by_emitting_again(tmp_path: Path) -> None:
    changed = packed(tmp_path / "changed", 2, text="# another text")
    assert find_drift(packed(tmp_path / "same", 1, 2)) == ()
    (line,) = find_drift(changed)
    assert line == f"{geometry(2).key()}: another text is emitted now"
    (line,) = find_drift(packed(tmp_path / "refused", REFUSED))
    assert line.endswith("not emitted now, refused: not today")


def test_only_packs_are_replaced(tmp_path: Path) -> None:
    check_replaceable(tmp_path / "none", force=False)
    check_replaceable(packed(tmp_path / "pack", 1).path, force=False)
    (tmp_path / "letter").write_text("Dear reader")
    with pytest.raises(RequestError, match="not-ours"):
        check_replaceable(tmp_path / "letter", force=False)
    check_replaceable(tmp_path / "letter", force=True)
