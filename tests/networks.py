# SPDX-License-Identifier: Apache-2.0
"""Networks for tests, in plain PyTorch; only tests that have PyTorch import this."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Sequence


class Block(nn.Sequential):
    """Two convolutions with norm and activation; the first one strides."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        layers: list[nn.Module] = []
        for channels, step in ((inputs, stride), (outputs, 1)):
            layers.append(nn.Conv3d(channels, outputs, 3, step, padding=1))
            layers += [nn.InstanceNorm3d(outputs, affine=True), nn.LeakyReLU(0.01)]
        super().__init__(*layers)


class NnUNet(nn.Module):
    """The nnU-Net for 3-D volumes: per level two convolutions down, one up, two behind it."""

    def __init__(self, features: Sequence[int] = (32, 64, 128, 256, 320, 320)) -> None:
        super().__init__()
        inputs = (1, *features)
        self.encoder = nn.ModuleList(
            Block(inputs[level], outputs, 2 if level else 1)
            for level, outputs in enumerate(features)
        )
        pairs = list(zip(features[1:], features, strict=False))[::-1]
        self.up = nn.ModuleList(nn.ConvTranspose3d(low, high, 2, 2) for low, high in pairs)
        self.decoder = nn.ModuleList(Block(2 * high, high) for _, high in pairs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = []
        for block in self.encoder:
            x = block(x)
            skips.append(x)
        for up, block, skip in zip(self.up, self.decoder, skips[-2::-1], strict=True):
            x = block(torch.cat((up(x), skip), dim=1))
        return x


class SmallNetwork(nn.Module):
    """As small as a 3-D network with every kind of convolution gets."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv3d(1, 4, 3, padding=1)
        self.down = nn.Conv3d(4, 8, 3, stride=2, padding=1, bias=False)
        self.grouped = nn.Conv3d(8, 8, (1, 3, 3), padding=(0, 1, 1), groups=4)
        self.up = nn.ConvTranspose3d(8, 4, 2, stride=2)
        self.head = nn.Conv3d(4, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        y = torch.relu(self.grouped(torch.relu(self.down(x))))
        return self.head(torch.relu(self.up(y)) + x)
