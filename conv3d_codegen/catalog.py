# SPDX-License-Identifier: Apache-2.0
"""The committed kernels: which there are and why, and whether they are what is emitted today.

`catalog.toml` lists geometries by key, each with the reason it is there. Beside it lie one kernel
file per geometry, in a folder per target, and `MANIFEST.json` with what changes when a kernel
does. Everything but `catalog.toml` is a product of it.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

from conv3d_codegen import __version__
from conv3d_codegen.api import emit
from conv3d_codegen.emitter.header import Header
from conv3d_codegen.errors import RequestError
from conv3d_codegen.files import read_text, write_product
from conv3d_codegen.geometry import ConvGeometry

if TYPE_CHECKING:
    from pathlib import Path

    from conv3d_codegen.api import Kernel

CATALOG = "catalog.toml"
MANIFEST = "MANIFEST.json"


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A geometry worth keeping a kernel of, and why."""

    geometry: ConvGeometry
    why: str

    @property
    def path(self) -> str:
        """Where the kernel lies, relative to the catalog."""
        return str(PurePosixPath(self.geometry.target, f"{self.geometry.module_name()}.py"))


@dataclass(frozen=True, slots=True)
class Drift:
    """A file that is not what the catalog makes today."""

    path: str
    kind: Literal["missing", "changed", "not in the catalog"]


def load_catalog(folder: Path) -> tuple[CatalogEntry, ...]:
    """Read the entries of a catalog, in the order written.

    Raises:
        RequestError: the file is not TOML, an entry lacks a field, or a geometry stands twice.
    """
    path = folder / CATALOG
    try:
        tables = tomllib.loads(read_text(path)).get("kernel", [])
    except tomllib.TOMLDecodeError as error:
        raise RequestError("malformed-catalog", f"{path}: {error}") from None
    entries: dict[str, CatalogEntry] = {}
    for position, table in enumerate(tables, 1):
        if set(table) != {"key", "why"}:
            raise RequestError(
                "malformed-catalog",
                f"{path}: entry {position} has {', '.join(sorted(table))}; accepted: key, why",
            )
        entry = CatalogEntry(ConvGeometry.parse(table["key"]), table["why"])
        if entry.path in entries:
            raise RequestError("malformed-catalog", f"{path}: {table['key']} stands twice")
        entries[entry.path] = entry
    return tuple(entries.values())


def render_catalog(folder: Path) -> dict[str, str]:
    """Emit every kernel of the catalog and its manifest: relative path → text."""
    kernels = {entry.path: (entry, emit(entry.geometry)) for entry in load_catalog(folder)}
    products = {path: kernel.source for path, (_, kernel) in kernels.items()}
    manifest = {
        "generator": f"conv3d_codegen {__version__}",
        "kernels": {path: _summary(*kernels[path]) for path in sorted(kernels)},
    }
    products[MANIFEST] = json.dumps(manifest, indent=2) + "\n"
    return products


def _summary(entry: CatalogEntry, kernel: Kernel) -> dict[str, Any]:
    counts = kernel.plan.counts
    return {
        "why": entry.why,
        "key": kernel.key,
        "sha256": kernel.digest,
        "plan": Header(kernel.plan).plan_digest,
        "instructions": counts.instructions,
        "macs": counts.macs,
        "dma_bytes": counts.dma_bytes_in + counts.dma_bytes_out,
        "sbuf_peak_bytes": counts.sbuf_peak_bytes,
        "psum_peak_banks": counts.psum_peak_banks,
    }


def find_drift(folder: Path, products: dict[str, str]) -> tuple[Drift, ...]:
    """Compare the files of the catalog's folder with its products, byte for byte."""
    drifts = []
    for path, text in products.items():
        file = folder / path
        if not file.exists():
            drifts.append(Drift(path, "missing"))
        elif file.read_bytes() != text.encode():
            drifts.append(Drift(path, "changed"))
    present = (file.relative_to(folder).as_posix() for file in folder.glob("*/*.py"))
    drifts += [
        Drift(path, "not in the catalog") for path in sorted(present) if path not in products
    ]
    return tuple(drifts)


def regenerate(folder: Path) -> tuple[Drift, ...]:
    """Bring the folder up to date and return what had drifted."""
    products = render_catalog(folder)
    drifts = find_drift(folder, products)
    for drift in drifts:
        if drift.kind == "not in the catalog":
            (folder / drift.path).unlink()
        else:
            write_product(folder / drift.path, products[drift.path], force=drift.path == MANIFEST)
    return drifts


def diff_text(folder: Path, products: dict[str, str], drift: Drift) -> str:
    """Return the unified diff of one drifted file, from what is committed to what is emitted."""
    file = folder / drift.path
    committed = read_text(file) if file.exists() else ""
    lines = difflib.unified_diff(
        committed.splitlines(keepends=True),
        products.get(drift.path, "").splitlines(keepends=True),
        f"committed/{drift.path}",
        f"emitted/{drift.path}",
    )
    return "".join(lines)
