# SPDX-License-Identifier: Apache-2.0
"""Drop-in modules: PyTorch's convolutions with our gradients, and `convert` for whole models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.modules.conv import _ConvNd

from conv3d_codegen.compile.toolchain import host_target
from conv3d_codegen.importers.torch_modules import DTYPES, module_geometry, module_padding
from conv3d_codegen.torch.function import (
    convolve,
    may_use_kernel,
    uses_kernel,
    wanted_gradients,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conv3d_codegen.torch.function import Operands


class _KernelConv(_ConvNd):
    """What all drop-in modules share; `lnc` is the number of cores that a kernel runs on."""

    lnc = 1

    def _by_kernel(
        self, operands: Operands, output_size: Sequence[int] | None = None
    ) -> torch.Tensor | None:
        """Convolve with gradients from a kernel, or return None where PyTorch has to do it."""
        x, w, b = _autocast(operands)
        gradients = wanted_gradients(x, w, b)
        if not (gradients and may_use_kernel(x) and x.dtype == w.dtype and x.dtype in DTYPES):
            return None
        rank = len(self.kernel_size)
        is_batched = x.dim() == rank + 2
        x = x if is_batched else x.unsqueeze(0)
        geometry = module_geometry(
            self,
            tuple(x.shape),
            None if output_size is None else tuple(output_size[-rank:]),
            gradients=gradients,
            dtype=DTYPES[x.dtype],
            target=host_target(),
            lnc=self.lnc,
        )
        if not uses_kernel(geometry, x):
            return None
        y = convolve(geometry, self._bordered(x), w, b)
        return y if is_batched else y.squeeze(0)

    def _bordered(self, x: torch.Tensor) -> torch.Tensor:
        """Put around x what padding modes other than zeros take from x itself."""
        if self.padding_mode == "zeros":
            return x
        pads = module_padding(self)
        ends = [pads[axis : axis + 2] for axis in reversed(range(0, len(pads), 2))]
        return functional.pad(x, [pad for pair in ends for pad in pair], self.padding_mode)


class _Ordinary(_KernelConv):
    def _conv_forward(
        self, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        y = self._by_kernel((input, weight, bias))
        return super()._conv_forward(input, weight, bias) if y is None else y


class _Transposed(_KernelConv):
    def forward(self, input: torch.Tensor, output_size: list[int] | None = None) -> torch.Tensor:
        """Convolve, as PyTorch's module does."""
        y = self._by_kernel((input, self.weight, self.bias), output_size)
        return super().forward(input, output_size) if y is None else y


class Conv1d(_Ordinary, nn.Conv1d):
    """`torch.nn.Conv1d` whose gradients come from a kernel."""


class Conv2d(_Ordinary, nn.Conv2d):
    """`torch.nn.Conv2d` whose gradients come from a kernel."""


class Conv3d(_Ordinary, nn.Conv3d):
    """`torch.nn.Conv3d` whose gradients come from a kernel."""


class ConvTranspose1d(_Transposed, nn.ConvTranspose1d):
    """`torch.nn.ConvTranspose1d` whose gradients come from a kernel."""


class ConvTranspose2d(_Transposed, nn.ConvTranspose2d):
    """`torch.nn.ConvTranspose2d` whose gradients come from a kernel."""


class ConvTranspose3d(_Transposed, nn.ConvTranspose3d):
    """`torch.nn.ConvTranspose3d` whose gradients come from a kernel."""


_DROP_INS = {
    nn.Conv1d: Conv1d,
    nn.Conv2d: Conv2d,
    nn.Conv3d: Conv3d,
    nn.ConvTranspose1d: ConvTranspose1d,
    nn.ConvTranspose2d: ConvTranspose2d,
    nn.ConvTranspose3d: ConvTranspose3d,
}


def convert(module: nn.Module, *, lnc: int = 1) -> nn.Module:
    """Turn every convolution of a model into its drop-in, in place.

    Parameters, hooks, names and state dict stay what they are. Subclasses of PyTorch's modules
    are left alone: they may compute something else.

    Args:
        module: a model, or a convolution.
        lnc: physical cores per logical core that kernels run on, as NEURON_LOGICAL_NC_CONFIG says.

    Returns:
        The same module.
    """
    for part in module.modules():
        if type(part) in _DROP_INS:
            part.__class__ = _DROP_INS[type(part)]
        if isinstance(part, _KernelConv):
            part.lnc = lnc
    return module


def _autocast(operands: Operands) -> Operands:
    """Cast the operands to what autocast has PyTorch's convolutions compute in."""
    kind = operands[0].device.type
    if not torch.is_autocast_enabled(kind):
        return operands
    dtype = torch.get_autocast_dtype(kind)

    def cast(tensor: Any) -> Any:
        return tensor.to(dtype) if tensor is not None and tensor.is_floating_point() else tensor

    x, w, b = operands
    return cast(x), cast(w), cast(b)
