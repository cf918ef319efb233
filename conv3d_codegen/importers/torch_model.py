# SPDX-License-Identifier: Apache-2.0
"""A PyTorch model's convolutions, found by running its forward pass once.

The model is built and run on PyTorch's meta device, where tensors have shapes and no values: the
largest model takes a moment and no memory.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.conv import _ConvNd

from conv3d_codegen.errors import RequestError
from conv3d_codegen.importers.collect import Imported, Skipped
from conv3d_codegen.importers.torch_modules import module_geometry
from conv3d_codegen.layers import Layer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from conv3d_codegen.geometry import ConvGeometry


def load_factory(place: str) -> Callable[[], Any]:
    """Find the callable that PACKAGE.MODULE:FACTORY names, in the current folder too."""
    module_name, colon, name = place.partition(":")
    if not (module_name and colon and name):
        raise _no_factory(place, "not of the form PACKAGE.MODULE:FACTORY")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = import_module(module_name)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise _no_factory(place, str(error)) from None
    if not callable(found):
        raise _no_factory(place, "not callable")
    factory: Callable[[], Any] = found
    return factory


def read_torch(
    factory: Callable[[], Any],
    inputs: Sequence[tuple[int, ...]],
    model: str,
    *,
    device: str = "meta",
) -> Imported:
    """Run a model on inputs of these shapes and note its convolutions, in the order of the calls.

    A layer's gradients are those that a training step computes: no dx for what comes from the
    model's input alone, no db without a bias, none of frozen parameters.

    Raises:
        RequestError: the factory makes no module, or the forward pass fails.
    """
    recorder = _Recorder(model)
    try:
        with torch.device(device), torch.enable_grad():
            network = _network(factory)
            for name, module in network.named_modules():
                module.register_forward_hook(recorder.hook(name or "model"), with_kwargs=True)
            dtype = next((weight.dtype for weight in network.parameters()), None)
            network(*(torch.zeros(shape, dtype=dtype) for shape in inputs))
    except RequestError:
        raise
    except Exception as error:
        shapes = " and ".join(",".join(map(str, shape)) for shape in inputs)
        raise RequestError(
            "forward-failed",
            f"{model} on {shapes}: {type(error).__name__}: {error}; accepted: shapes that the "
            "model takes; a model that needs values to run takes --device cpu",
        ) from error
    return recorder.imported()


def _network(factory: Callable[[], Any]) -> torch.nn.Module:
    network = factory()
    if not isinstance(network, torch.nn.Module):
        kind = type(network).__name__
        raise RequestError("no-module", f"the factory returned {kind}; accepted: nn.Module")
    return network


class _Recorder:
    """Notes every call of a convolution; a repeated call of the same shape is the same layer."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._layers: dict[tuple[str, ConvGeometry], Layer] = {}
        self._calls: dict[str, int] = {}
        self._skipped: list[Skipped] = []

    def hook(self, name: str) -> Callable[..., None]:
        """Return the hook of the module of this name."""

        def note(module: Any, arguments: tuple[Any, ...], named: dict[str, Any], y: Any) -> None:
            if isinstance(module, _ConvNd):
                self._note(name, module, arguments[0] if arguments else named["input"], y)

        return note

    def imported(self) -> Imported:
        """Return what was noted."""
        return Imported(tuple(self._layers.values()), tuple(self._skipped))

    def _note(self, name: str, module: _ConvNd, x: torch.Tensor, y: torch.Tensor) -> None:
        bias = module.bias
        asked = {
            "dx": x.requires_grad,
            "dw": module.weight.requires_grad,
            "db": bias is not None and bias.requires_grad,
        }
        if not any(asked.values()):
            return
        rank = len(module.kernel_size)
        shape = (x.shape[0] if x.dim() > rank + 1 else 1, *x.shape[-rank - 1 :])
        gradients = tuple(gradient for gradient, is_asked in asked.items() if is_asked)
        try:
            geometry = module_geometry(module, shape, tuple(y.shape[-rank:]), gradients=gradients)
        except RequestError as error:
            self._skipped.append(Skipped(name, str(error)))
            return
        if (name, geometry) not in self._layers:
            self._calls[name] = count = self._calls.get(name, 0) + 1
            layer = Layer(self._model, name, geometry)
            self._layers[name, geometry] = (
                layer if count == 1 else replace(layer, layer=f"{name}.call{count}")
            )


def _no_factory(place: str, problem: str) -> RequestError:
    return RequestError("no-factory", f"{place}: {problem}; accepted: PACKAGE.MODULE:FACTORY")
