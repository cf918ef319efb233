# SPDX-License-Identifier: Apache-2.0
"""What the NKI modules contain, version by version, and whether a call fits."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, cast

from conv3d_codegen.errors import RequestError

ISA, LANGUAGE, NKI = "nki.isa", "nki.language", "nki"


@dataclass(frozen=True, slots=True)
class Signature:
    """Parameters of a function in one version; those in `optional` have defaults."""

    parameters: tuple[str, ...]
    optional: frozenset[str]
    is_open: bool  # takes any keyword


@cache
def _parse(text: str) -> Signature:
    """Read the table's form: `dst src engine= name=`, `**` for any keyword."""
    words = text.split()
    names = tuple(word.rstrip("=") for word in words if word != "**")
    optional = frozenset(word[:-1] for word in words if word.endswith("="))
    return Signature(names, optional, "**" in words)


@cache
def _table() -> dict[str, Any]:
    text = files(__package__).joinpath("nki_signatures.json").read_text(encoding="utf-8")
    return cast("dict[str, Any]", json.loads(text))


def known_versions() -> tuple[str, ...]:
    """All NKI versions in the table, oldest first."""
    return tuple(_table()["versions"])


def parse_versions(nki: str) -> tuple[str, ...]:
    """Read the versions that `0.6` or `0.3..0.7` names."""
    known = known_versions()
    first, separator, last = nki.partition("..")
    last = last if separator else first
    if first not in known or last not in known or known.index(first) > known.index(last):
        accepted = f"one of {', '.join(known)}, or a range such as {known[0]}..{known[-1]}"
        raise RequestError("unknown-nki", f"nki {nki}: no such version; accepted: {accepted}")
    return known[known.index(first) : known.index(last) + 1]


def _at(history: dict[str, Any], version: str) -> Any:
    """Find the entry that holds for a version, None where the name does not exist."""
    known = known_versions()
    current = None
    for since, entry in history.items():
        if known.index(since) <= known.index(version):
            current = entry
    return current


class Signatures:
    """Lookups in the table for a set of versions, all of which must agree."""

    def __init__(self, versions: tuple[str, ...]) -> None:
        self.versions = versions
        self._functions: dict[tuple[str, str], list[Signature | None]] = {}

    def functions(self, module: str) -> tuple[str, ...]:
        """Every function that some version of the module has."""
        return tuple(_table()[module]["functions"])

    def names(self, module: str) -> frozenset[str]:
        """Every name that some version of the module has."""
        table = _table()[module]
        return frozenset(table["functions"]) | frozenset(table["names"])

    def missing_versions(self, module: str, name: str) -> tuple[str, ...] | None:
        """Versions without the name; None when no version has it."""
        table = _table()[module]
        history = table["functions"].get(name) or table["names"].get(name)
        if history is None:
            return None
        return tuple(version for version in self.versions if _at(history, version) is None)

    def enum_members(self, name: str) -> tuple[str, ...]:
        """Members of an enumeration of nki.isa in the newest version asked for."""
        return tuple(_at(_table()[ISA]["classes"][name], self.versions[-1]).split())

    def newest(self, module: str, function: str) -> Signature | None:
        """Return the signature in the newest of the versions that has the function."""
        present = [s for s in self._signatures(module, function) if s is not None]
        return present[-1] if present else None

    def problems(
        self, module: str, function: str, positional: int, keywords: tuple[str, ...]
    ) -> list[tuple[str, str]]:
        """Say what is wrong with a call's arguments, as (rule, message)."""
        if module == ISA and positional and not function.startswith("register_"):
            return [
                ("keywords", f"nisa.{function}: positions moved between releases, use keywords")
            ]
        found: dict[str, list[str]] = {}
        for version, signature in zip(
            self.versions, self._signatures(module, function), strict=True
        ):
            if signature is not None:
                for message in _misfits(signature, positional, keywords):
                    found.setdefault(message, []).append(version)
        short = module.replace("nki.isa", "nisa").replace("nki.language", "nl")
        return [
            ("signature", f"{short}.{function}: {message} (NKI {', '.join(versions)})")
            for message, versions in found.items()
        ]

    def _signatures(self, module: str, function: str) -> list[Signature | None]:
        key = (module, function)
        if key not in self._functions:
            history = _table()[module]["functions"].get(function, {})
            texts = [_at(history, version) for version in self.versions]
            self._functions[key] = [None if t is None else _parse(t) for t in texts]
        return self._functions[key]


def _misfits(signature: Signature, positional: int, keywords: tuple[str, ...]) -> list[str]:
    messages = []
    if positional > len(signature.parameters):
        messages.append(f"takes {len(signature.parameters)} arguments, {positional} given")
    given = set(signature.parameters[:positional])
    for keyword in keywords:
        if keyword in given:
            messages.append(f"{keyword}= is given twice")
        elif keyword not in signature.parameters and not signature.is_open:
            messages.append(f"no argument {keyword}=")
    given.update(keywords)
    for parameter in signature.parameters:
        if parameter not in given and parameter not in signature.optional:
            messages.append(f"{parameter}= is missing")
    return messages
