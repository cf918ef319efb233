# SPDX-License-Identifier: Apache-2.0
"""The cache under many processes, kills, and folders that cannot be written to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(HERE.parent)))}

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")


def run(*command: object) -> subprocess.CompletedProcess[str]:
    arguments = [str(argument) for argument in command]
    return subprocess.run(arguments, env=ENVIRONMENT, capture_output=True, text=True, check=False)


@needs_fork
def test_sixteen_processes_read_what_is_right_and_emit_it_once(tmp_path: Path) -> None:
    result = run(sys.executable, HERE / "hammer.py", tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    emitted = (tmp_path / "emitted").read_text().split()
    assert sorted(emitted) == [str(key) for key in range(1, 9)]


@needs_fork
def test_killed_writers_never_leave_a_bad_read(tmp_path: Path) -> None:
    result = run(sys.executable, HERE / "killed_writers.py", tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    kernels, artifacts, leftovers = map(int, result.stdout.split())
    # The kills came at moments that matter: with work done, and with work half done.
    assert min(kernels, artifacts, leftovers) > 0


MOUNT_AND_RUN = """
set -e
mount -t tmpfs -o size=64k,nr_inodes=400 none "$1"
if [ "$2" = read-only ]; then mount -o remount,ro "$1"; fi
exec "$3" -c "$4" "$1"
"""
WRITE_UNTIL_FULL = """
import sys
from pathlib import Path
from conv3d_codegen.cache import KernelCache
from conv3d_codegen.errors import CacheUnwritable
from stored_kernels import OPTIONS, geometry, stored
cache = KernelCache(Path(sys.argv[1]) / "cache")
for batch in range(1, 100):
    try:
        cache.put(stored(geometry(batch)))
    except CacheUnwritable as refused:
        error = str(refused)
        break
assert cache.get(geometry(batch), OPTIONS) is None
assert all(cache.get(geometry(k), OPTIONS) == stored(geometry(k)) for k in range(1, batch))
assert cache.fetch(geometry(batch), OPTIONS, stored) == stored(geometry(batch))
print(batch, error)
"""


@pytest.mark.parametrize(
    ("state", "written", "why"),
    [
        ("full", range(2, 60), "no space left on device"),
        ("read-only", [1], "read-only file system"),
    ],
)
def test_full_and_read_only_disks_give_one_clear_line(
    tmp_path: Path, state: str, written: range, why: str
) -> None:
    if shutil.which("unshare") is None or run("unshare", "-rm", "true").returncode != 0:
        pytest.skip("mounting a small disk needs Linux user namespaces")
    script = ("sh", "-c", MOUNT_AND_RUN, "sh", tmp_path, state, sys.executable, WRITE_UNTIL_FULL)
    result = run("unshare", "-rm", *script)
    assert result.returncode == 0, result.stderr
    batch, _, error = result.stdout.partition(" ")
    assert int(batch) in written
    assert error == (
        f"cache-unwritable: cache folder {tmp_path}/cache: {why}; accepted: a folder with room "
        "that this user may write to; name one with --cache-dir\n"
    )
    assert result.stderr == error  # fetching warns with the same line, and gives the kernel
