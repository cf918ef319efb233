# SPDX-License-Identifier: Apache-2.0
"""Tensors as numpy arrays and back, without copying where the types have a common form.

numpy has no bfloat16 of its own and PyTorch does not know ml_dtypes': the bits travel as int16.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from conv3d_codegen.dtypes import dtype

BFLOAT16 = dtype("bf16").numpy


def to_numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Return a CPU tensor's values; the array shares a contiguous tensor's memory."""
    plain = tensor.detach().contiguous()
    if plain.dtype == torch.bfloat16:
        return plain.view(torch.int16).numpy().view(BFLOAT16)
    return plain.numpy()


def from_numpy(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """Return a tensor of an array's values, in its memory."""
    plain = np.ascontiguousarray(array)
    if plain.dtype == BFLOAT16:
        return torch.from_numpy(plain.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(plain)
