# SPDX-License-Identifier: Apache-2.0
"""A convolution whose gradients are computed by the kernel of its geometry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional

from conv3d_codegen.calls.policy import is_simulating, simulates
from conv3d_codegen.calls.run import device_runner, simulator_runner
from conv3d_codegen.torch.tensors import from_numpy, to_numpy

if TYPE_CHECKING:
    from conv3d_codegen.geometry import ConvGeometry

    Operands = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]  # x, w, b

# Device types of PyTorch's two ways to Neuron: through XLA, and the native one.
NEURON_DEVICES = frozenset({"xla", "neuron"})


def wanted_gradients(*operands: torch.Tensor | None) -> tuple[str, ...]:
    """Return which gradients autograd will ask for, of x, w and b."""
    if not torch.is_grad_enabled():
        return ()
    return tuple(
        name
        for name, tensor in zip(("dx", "dw", "db"), operands, strict=True)
        if tensor is not None and tensor.requires_grad
    )


def may_use_kernel(x: torch.Tensor) -> bool:
    """Say whether a layer called with x here could use a kernel for its gradients."""
    if x.shape[0] == 0:
        return False
    return x.device.type in NEURON_DEVICES or (x.device.type == "cpu" and is_simulating())


def uses_kernel(geometry: ConvGeometry, x: torch.Tensor) -> bool:
    """Say whether it does, now that its geometry is known."""
    return x.device.type in NEURON_DEVICES or simulates(geometry)


def convolve(
    geometry: ConvGeometry, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None
) -> torch.Tensor:
    """Convolve as the geometry says; the gradients it asks for will come from its kernel."""
    y: torch.Tensor = _KernelConvolution.apply(geometry, x, w, b)
    return y


def forward(
    geometry: ConvGeometry, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None
) -> torch.Tensor:
    """Compute the output with PyTorch's own convolution."""
    rank = geometry.rank
    before, after = geometry.padding[0::2][-rank:], geometry.padding[1::2][-rank:]
    if before != after:  # PyTorch's convolutions pad evenly; its list starts with the last axis
        ends = zip(reversed(before), reversed(after), strict=True)
        x = functional.pad(x, [pad for pair in ends for pad in pair])
        before = (0,) * rank
    shared = {
        "stride": geometry.stride[-rank:],
        "padding": before,
        "dilation": geometry.dilation[-rank:],
        "groups": geometry.groups,
    }
    if geometry.transposed:
        transposed = getattr(functional, f"conv_transpose{rank}d")
        return transposed(x, w, b, output_padding=geometry.output_padding[-rank:], **shared)
    return getattr(functional, f"conv{rank}d")(x, w, b, **shared)


class _KernelConvolution(torch.autograd.Function):
    """PyTorch forwards, our kernel backwards."""

    @staticmethod
    def forward(
        geometry: ConvGeometry, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None
    ) -> torch.Tensor:
        return forward(geometry, x, w, b)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        geometry, x, w, _ = inputs
        ctx.geometry = geometry
        ctx.save_for_backward(x, w)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, w = ctx.saved_tensors
        results = run(ctx.geometry, dy, x, w)
        found = dict(zip(ctx.geometry.gradients, results, strict=True))
        return None, found.get("dx"), found.get("dw"), found.get("db")


def run(
    geometry: ConvGeometry, dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Run the kernel on tensors: on their Neuron device, or in the simulator."""
    if x.device.type in NEURON_DEVICES:
        return device_runner(geometry)(dy.contiguous(), x.contiguous(), w.contiguous())
    arrays = (to_numpy(tensor) for tensor in (dy, x, w))
    return tuple(from_numpy(result) for result in simulator_runner(geometry)(*arrays))
