# SPDX-License-Identifier: Apache-2.0
"""PyTorch layers whose gradients come from our kernels.

    from conv3d_codegen import torch as kernels

    kernels.convert(model)                # every convolution of the model, in place
    layer = kernels.Conv3d(16, 32, 3)     # or one by one, in place of torch.nn.Conv3d

The forward pass is PyTorch's. Backwards, tensors on a Neuron device use the kernel; tensors on the
CPU use PyTorch's own gradients, or the bundled simulator inside `simulate_on_cpu()`.
"""

from __future__ import annotations

from conv3d_codegen.calls.policy import simulate_on_cpu
from conv3d_codegen.torch.modules import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    convert,
)

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "convert",
    "simulate_on_cpu",
]
