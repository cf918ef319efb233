# SPDX-License-Identifier: Apache-2.0
"""`KernelCache`: look a kernel up, or have it made once and kept."""

from __future__ import annotations

import logging
import os
import secrets
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import filelock
import platformdirs

from conv3d_codegen.cache.entry import (
    META,
    artifact_folders,
    read_artifact,
    read_info,
    read_kernel,
    write_artifact,
    write_kernel,
)
from conv3d_codegen.cache.recipes import recipe
from conv3d_codegen.errors import CacheUnwritable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from conv3d_codegen.cache.records import Artifact, KernelInfo, StoredKernel
    from conv3d_codegen.geometry import ConvGeometry
    from conv3d_codegen.planner.options import EmitOptions

log = logging.getLogger(__name__)

LAYOUT = "v1"  # a new layout of entries gets a new folder
LOCKS = "locks"
DAMAGED = "damaged"
TAG = "CACHEDIR.TAG"
# The first line is fixed by the cache directory tagging specification.
TAG_TEXT = (
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# Kernels that conv3d_codegen can make again. See https://bford.info/cachedir/\n"
)


def default_folder() -> Path:
    """Where this platform keeps the caches of a user."""
    return platformdirs.user_cache_path("conv3d_codegen")


@dataclass(frozen=True, slots=True)
class KernelCache:
    """A folder of kernels that any number of processes may read and write at the same time.

    Kernels are found by their recipe, so that a change of the geometry, an option, a hardware
    number, a template or the generator is a miss. An entry that fails its checksums is logged,
    set aside and made again: reading never fails because of it.
    """

    folder: Path = field(default_factory=default_folder)

    @property
    def root(self) -> Path:
        """Where the entries are."""
        return self.folder / LAYOUT

    def get(self, geometry: ConvGeometry, options: EmitOptions) -> StoredKernel | None:
        """Return a kernel, read and checked, if it is here."""
        place = self._place(geometry, options)
        try:
            return place.read()
        except OSError:
            return None  # not here, or not ours to read
        except ValueError:
            with self._locked(place):
                return self._read_or_set_aside(place)

    def peek(self, geometry: ConvGeometry, options: EmitOptions) -> KernelInfo | None:
        """Return what is known of a kernel that seems to be here; its text is not looked at."""
        place = self._place(geometry, options)
        try:
            info = read_info(place.folder)
        except (OSError, ValueError):
            return None
        return info if info.recipe == place.recipe else None

    def put(self, kernel: StoredKernel) -> None:
        """Keep a kernel that is not here yet.

        Raises:
            CacheUnwritable: nothing can be written; the message says where and why.
        """
        place = self._place_of(kernel)
        with self._locked(place):
            if self._read_or_set_aside(place) is None:
                self._write(place, kernel)

    def fetch(
        self,
        geometry: ConvGeometry,
        options: EmitOptions,
        emit: Callable[[ConvGeometry, EmitOptions], StoredKernel],
    ) -> StoredKernel:
        """Return a kernel from here, or have it emitted and keep it.

        Of several processes that want the same kernel, one emits it and the others wait. A cache
        that cannot be written to costs a warning, not the kernel.
        """
        found = self.get(geometry, options)
        if found is not None:
            return found
        place = self._place(geometry, options)
        with self._locked(place):
            found = self._read_or_set_aside(place)
            if found is not None:
                return found
            kernel = emit(geometry, options)
            try:
                self._write(place, kernel)
            except CacheUnwritable as error:
                log.warning("%s", error)
            return kernel

    def put_artifact(self, kernel: StoredKernel, artifact: Artifact) -> None:
        """Keep what a compiler made of a kernel, instead of what the same compiler made before.

        Raises:
            CacheUnwritable: nothing can be written; the message says where and why.
        """
        self.put(kernel)
        place = self._place_of(kernel)
        with self._locked(place), self._reporting():
            write_artifact(place.folder, artifact)

    def artifacts(self, geometry: ConvGeometry, options: EmitOptions) -> tuple[Artifact, ...]:
        """Return everything that was compiled from a kernel; what is damaged is set aside."""
        found = []
        for folder in artifact_folders(self._place(geometry, options).folder):
            try:
                found.append(read_artifact(folder))
            except OSError:
                continue  # deleted since it was listed, or not ours to read
            except ValueError as error:
                self._set_aside(folder, str(error))
        return tuple(found)

    def _place(self, geometry: ConvGeometry, options: EmitOptions) -> _Place:
        # The start of the key says to people what it is, the recipe to the program.
        digest = recipe(geometry, options)
        name = f"{geometry.module_name()[:160]}-{digest[:12]}"
        return _Place(self.root / geometry.target / name, digest)

    def _place_of(self, kernel: StoredKernel) -> _Place:
        place = self._place(kernel.info.geometry, kernel.info.options)
        if kernel.info.recipe != place.recipe:
            raise ValueError(f"{kernel.info.name} was emitted by another generator than this one")
        return place

    def _read_or_set_aside(self, place: _Place) -> StoredKernel | None:
        """Read under the lock, where nobody is between setting an entry aside and a new one."""
        try:
            return place.read()
        except OSError:
            return None
        except ValueError as error:
            self._set_aside(place.folder, str(error))
            return None

    def _set_aside(self, folder: Path, problem: str) -> None:
        """Move a damaged folder out of the way and say so in one line."""
        aside = self.root / DAMAGED / f"{folder.name}-{secrets.token_hex(4)}"
        try:
            aside.parent.mkdir(exist_ok=True)
            os.replace(folder, aside)
        except OSError as error:
            log.warning("damaged cache entry %s is ignored: %s (%s)", folder, problem, error)
        else:
            log.warning("damaged cache entry %s: %s; set aside in %s", folder, problem, aside)

    def _write(self, place: _Place, kernel: StoredKernel) -> None:
        with self._reporting():
            self._prepare()
            write_kernel(place.folder, kernel)

    def _prepare(self) -> None:
        (self.root / LOCKS).mkdir(parents=True, exist_ok=True)
        tag = self.folder / TAG
        if not tag.exists():
            tag.write_text(TAG_TEXT, encoding="utf-8")

    @contextmanager
    def _locked(self, place: _Place) -> Iterator[None]:
        """Hold the lock of one entry; where no lock can be made, go on without.

        Locks save work. What is read and written stays whole without them.
        """
        lock = filelock.FileLock(self.root / LOCKS / f"{place.folder.name}.lock")
        with suppress(OSError):
            self._prepare()
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Turn the failure to write into one line about the cache."""
        try:
            yield
        except OSError as error:
            raise CacheUnwritable(
                f"cache folder {self.folder}",
                (error.strerror or str(error)).lower(),
                "a folder with room that this user may write to; name one with --cache-dir",
            ) from None


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a kernel belongs, and the recipe that it must have."""

    folder: Path
    recipe: str

    def read(self) -> StoredKernel:
        """Read and check the kernel; OSError or ValueError if that cannot be done."""
        kernel = read_kernel(self.folder)
        if kernel.info.recipe != self.recipe:
            raise ValueError(f"{META} states the recipe {kernel.info.recipe[:12]}")
        with suppress(OSError):
            os.utime(self.folder / META)  # when it was last of use, for `prune`
        return kernel
