# SPDX-License-Identifier: Apache-2.0
"""A pack as a wheel: data alone, found through an entry point once it is installed."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import TYPE_CHECKING

from conv3d_codegen.errors import RequestError
from conv3d_codegen.files import replacing
from conv3d_codegen.packs.archive import ArchiveWriter
from conv3d_codegen.packs.installed import ENTRY_POINTS, PACK_FILE

if TYPE_CHECKING:
    from pathlib import Path

    from conv3d_codegen.packs.pack import Pack

# Names and versions as the core metadata specification has them, the latter in their usual form.
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?", re.ASCII)
_VERSION = re.compile(r"\d+(?:\.\d+)*(?:(?:a|b|rc)\d+)?(?:\.post\d+)?(?:\.dev\d+)?", re.ASCII)


def write_wheel(pack: Pack, folder: Path, name: str, version: str) -> Path:
    """Write a wheel that installs the pack, and return its path.

    The same pack, name and version give the same bytes.

    Raises:
        RequestError: the name or version is none that packages may have.
        MalformedPack: something in the pack is damaged.
    """
    _check("name", name, _NAME, "letters, digits, and - . _ between them")
    _check("version", version, _VERSION, "versions such as 1.0 or 2.1.0rc1")
    pack.check()
    module = re.sub(r"[-_.]+", "_", name).lower()
    dist_info = f"{module}-{version}.dist-info"
    members = {
        f"{module}/{PACK_FILE}": pack.path.read_bytes(),
        f"{dist_info}/METADATA": _metadata(pack, name, version).encode(),
        f"{dist_info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: conv3d_codegen\n"
        b"Root-Is-Purelib: true\nTag: py3-none-any\n",
        f"{dist_info}/entry_points.txt": f"[{ENTRY_POINTS}]\n{name} = {module}\n".encode(),
    }
    record = f"{dist_info}/RECORD"
    rows = [_record_row(path, content) for path, content in members.items()]
    members[record] = "".join([*rows, f"{record},,\n"]).encode()
    path = folder / f"{module}-{version}-py3-none-any.whl"
    with replacing(path) as stream, ArchiveWriter(stream, level=0) as archive:
        for member, content in members.items():
            archive.add(member, content)
    return path


def _metadata(pack: Pack, name: str, version: str) -> str:
    return (
        "Metadata-Version: 2.1\n"
        f"Name: {name}\n"
        f"Version: {version}\n"
        f"Summary: {len(pack)} convolution backward kernels for conv3d_codegen\n"
        f"Requires-Dist: conv3d-codegen\n"
    )


def _record_row(path: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(content)}\n"


def _check(what: str, value: str, pattern: re.Pattern[str], accepted: str) -> None:
    if pattern.fullmatch(value) is None:
        raise RequestError(f"wheel-{what}", f"{what} {value}: no package's; accepted: {accepted}")
