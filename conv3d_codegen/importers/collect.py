# SPDX-License-Identifier: Apache-2.0
"""What all readers of line-by-line notations share: problems in, distinct layers out.

Logs of a training step state a layer once per pass and once per step. Lines about one problem
become one layer, whose gradients are those that any of the lines computes. Lines about the forward
pass alone ask for no gradient; a layer with no other lines gets all three.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from conv3d_codegen.errors import RequestError
from conv3d_codegen.geometry import ConvGeometry
from conv3d_codegen.geometry.rules import GRADIENTS
from conv3d_codegen.layers import Layer

if TYPE_CHECKING:
    from collections.abc import Collection


@dataclass(frozen=True, slots=True)
class Skipped:
    """A problem that was read, and for which no kernel can be made."""

    where: str
    problem: str


@dataclass(frozen=True, slots=True)
class Imported:
    """What an importer found."""

    layers: tuple[Layer, ...]
    skipped: tuple[Skipped, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One convolution as some notation states it, by the arguments of `ConvGeometry.from_shapes`.

    `gradients` are what the line computes: none if it is about the forward pass.
    """

    shape: tuple[int, ...]
    filters: tuple[int, ...]
    steps: dict[str, Any]
    gradients: Collection[str] = ()
    name: str = ""
    out: tuple[int, ...] = ()  # output extents, where they are stated

    def geometry(self) -> ConvGeometry:
        """Return the geometry with all gradients."""
        geometry = ConvGeometry.from_shapes(self.shape, self.filters, **self.steps)
        follows = geometry.output_size[-geometry.rank :]
        if self.out and self.out != follows:
            raise RequestError(
                "wrong-output", f"the output is stated as {self.out}, but {follows} follows"
            )
        return geometry


@dataclass
class Collector:
    """Gathers the problems of one file."""

    model: str
    layers: dict[ConvGeometry, Layer] = field(default_factory=dict)
    gradients: dict[ConvGeometry, set[str]] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    skipped: list[Skipped] = field(default_factory=list)

    def add(self, number: int, problem: Problem) -> None:
        """Note the problem that line `number` states."""
        try:
            geometry = problem.geometry()
        except RequestError as error:
            self.skip(number, str(error))
            return
        if geometry not in self.layers:
            name = problem.name or f"line{number}"
            if name in self.names:
                name = f"{name}.line{number}"
            self.names.add(name)
            self.layers[geometry] = Layer(self.model, name, geometry)
        self.gradients.setdefault(geometry, set()).update(problem.gradients)

    def skip(self, number: int, problem: str) -> None:
        """Note that no layer can be made of line `number`."""
        self.skipped.append(Skipped(f"line {number}", problem))

    def imported(self) -> Imported:
        """Return what was gathered, in the order of first appearance."""
        layers = [
            replace(
                layer,
                geometry=replace(geometry, gradients=tuple(self.gradients[geometry] or GRADIENTS)),
            )
            for geometry, layer in self.layers.items()
        ]
        return Imported(tuple(layers), tuple(self.skipped))
