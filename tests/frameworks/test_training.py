# SPDX-License-Identifier: Apache-2.0
"""From a PyTorch model to a training step with kernels out of a pack, the way a user goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from conv3d_codegen import load_pack
from conv3d_codegen.cache import KernelCache
from conv3d_codegen.calls import kernels as lookup
from conv3d_codegen.calls import use_pack
from conv3d_codegen.cli.main import main

torch = pytest.importorskip("torch", reason="PyTorch is the extra `torch`")

from conv3d_codegen import torch as kernels  # noqa: E402 (needs torch)
from networks import SmallNetwork  # noqa: E402 (likewise)

if TYPE_CHECKING:
    from pathlib import Path

SHAPE = (1, 1, 4, 4, 6)


def command(*arguments: object) -> None:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.stderr


def step(network: Any, x: Any, weights: Any) -> Any:
    """Do one step of gradient descent; all numbers are small integers, so nothing is rounded."""
    y = network(x)
    (y * weights).sum().backward()
    torch.optim.SGD(network.parameters(), lr=1.0).step()
    return y


def test_a_training_step_with_gradients_from_a_pack_equals_pytorchs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers, path = tmp_path / "layers.json", tmp_path / "small.pack"
    extents = ",".join(map(str, SHAPE))
    command("import", "torch", "networks:SmallNetwork", "--input", extents, "-o", layers)
    command("pack", "build", layers, "-o", path, "--jobs", 2)
    command("pack", "verify", path)
    pack = load_pack(path)
    assert len(pack) == 5

    torch.manual_seed(0)
    networks = SmallNetwork(), SmallNetwork()
    with torch.no_grad():
        for ours, theirs in zip(*(network.parameters() for network in networks), strict=True):
            ours.copy_(torch.randint(-1, 2, ours.shape))
            theirs.copy_(ours)
    x = torch.randint(-1, 2, SHAPE).float()
    weights = torch.randint(-1, 2, (SHAPE[0], 2, *SHAPE[2:])).float()

    monkeypatch.setattr(lookup, "_used", [])
    use_pack(pack)
    monkeypatch.setattr(KernelCache, "fetch", None)  # every kernel has to come from the pack
    with kernels.simulate_on_cpu():
        step(kernels.convert(networks[0]), x, weights)
    step(networks[1], x, weights)
    for (name, ours), theirs in zip(
        networks[0].named_parameters(), networks[1].parameters(), strict=True
    ):
        assert ours.grad.abs().sum() > 0, name
        assert torch.equal(ours.grad, theirs.grad), name
        assert torch.equal(ours, theirs), name
