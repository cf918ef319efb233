# SPDX-License-Identifier: Apache-2.0
"""Drop-in modules against PyTorch's own gradients, on small integers: equal bit for bit."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is the extra `torch`")
nn = torch.nn

from conv3d_codegen import torch as kernels  # noqa: E402 (needs torch)
from conv3d_codegen.errors import RequestError  # noqa: E402 (likewise)
from conv3d_codegen.torch import function  # noqa: E402 (likewise)
from networks import SmallNetwork  # noqa: E402 (likewise)

torch.set_num_threads(1)  # the problems are tiny; threads would only wait for each other


def integers(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.randint(-2, 3, shape).to(dtype)


def with_integers(module: Any) -> Any:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(integers(*parameter.shape))
    return module


def from_kernel(y: Any) -> bool:
    """Say whether a tensor's gradients come from a kernel, here or one step behind a reshape."""
    nodes = [y.grad_fn, *(node for node, _ in y.grad_fn.next_functions)]
    return any("KernelConvolution" in node.name() for node in nodes if node is not None)


def check(module: Any, x: Any, *more: Any) -> None:
    """Compare one forward and backward pass of a module before and after its conversion."""
    torch.manual_seed(0)
    with_integers(module)
    x = x.requires_grad_()
    leaves = [x, *module.parameters()]
    y = module(x, *more)
    dy = integers(*y.shape, dtype=y.dtype)
    expected = torch.autograd.grad(y, leaves, dy)
    with kernels.simulate_on_cpu():
        found_y = kernels.convert(module)(x, *more)
    assert from_kernel(found_y)
    assert torch.equal(found_y, y)
    for found, right in zip(torch.autograd.grad(found_y, leaves, dy), expected, strict=True):
        assert found.dtype == right.dtype
        assert torch.equal(found, right)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_every_dtype(dtype: Any) -> None:
    module = nn.Conv3d(3, 4, (2, 3, 3), stride=(1, 2, 1), padding=(0, 1, 1)).to(dtype)
    check(module, integers(2, 3, 3, 4, 5, dtype=dtype))


@pytest.mark.parametrize(
    "module",
    [
        nn.Conv1d(3, 4, 3, padding=2, dilation=2),
        nn.Conv2d(3, 4, 3, padding="same"),
        nn.Conv2d(4, 6, 3, groups=2, bias=False),
        nn.Conv2d(3, 4, 3, padding=(1, 0), padding_mode="circular"),
        nn.ConvTranspose1d(3, 4, 3, stride=2),
        nn.ConvTranspose2d(3, 4, 2, stride=2, padding=1),
        nn.ConvTranspose3d(3, 4, 2, stride=2, output_padding=1),
    ],
    ids=str,
)
def test_every_kind(module: Any) -> None:
    rank = len(module.kernel_size)
    check(module, integers(2, module.in_channels, *(5, 4, 3)[:rank]))


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
def test_uneven_padding() -> None:
    check(nn.Conv2d(3, 4, (2, 4), padding="same"), integers(1, 3, 5, 6))


def test_an_unbatched_input() -> None:
    check(nn.Conv2d(3, 4, 3), integers(3, 5, 6))


def test_an_output_size_asked_for() -> None:
    check(nn.ConvTranspose2d(3, 4, 3, stride=2), integers(1, 3, 3, 3), (8, 7))


def test_an_input_that_is_not_contiguous() -> None:
    module = with_integers(kernels.Conv2d(3, 4, 3))
    x = integers(1, 5, 6, 3).permute(0, 3, 1, 2)
    dense = x.contiguous()
    with kernels.simulate_on_cpu():
        found, expected = (
            torch.autograd.grad(module(tensor).sum(), module.weight)[0] for tensor in (x, dense)
        )
    assert torch.equal(found, expected)


def test_gradcheck() -> None:
    # Inputs are small integers and the step is 1: for a function linear in each of its arguments,
    # the difference quotient is then exact in fp32, and so may the tolerance be none.
    torch.manual_seed(0)
    module = kernels.Conv3d(2, 2, (1, 2, 2), padding=(0, 1, 0))
    leaves = [integers(1, 2, 1, 2, 2), *(integers(*p.shape) for p in module.parameters())]

    def convolved(x: Any, weight: Any, bias: Any) -> Any:
        with kernels.simulate_on_cpu():
            parameters = {"weight": weight, "bias": bias}
            return torch.func.functional_call(module, parameters, (x,))

    inputs = tuple(leaf.requires_grad_() for leaf in leaves)
    assert from_kernel(convolved(*inputs))
    with pytest.warns(UserWarning, match="not a double precision"):
        assert torch.autograd.gradcheck(convolved, inputs, eps=1.0, atol=0.0, rtol=0.0)


def test_gradcheck_of_double_precision_is_pytorchs() -> None:
    module = kernels.Conv1d(2, 2, 3).double()
    x = torch.randn(1, 2, 5, dtype=torch.float64, requires_grad=True)
    with kernels.simulate_on_cpu():
        assert not from_kernel(module(x))
        assert torch.autograd.gradcheck(module, x)


def test_without_being_asked_for_the_simulator_stays_out() -> None:
    module = kernels.Conv2d(3, 4, 3)
    x = integers(1, 3, 5, 6)
    assert not from_kernel(module(x))
    with kernels.simulate_on_cpu(max_macs=1000):
        assert not from_kernel(module(x))  # too large
    with kernels.simulate_on_cpu():
        assert not from_kernel(module(x[:0]))  # nothing to compute
        with torch.no_grad():
            assert not module(x).requires_grad


def test_the_kernel_computes_what_autograd_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def simulator_runner(geometry: Any) -> Any:
        asked.append(geometry.gradients)
        return runner(geometry)

    runner = function.simulator_runner
    monkeypatch.setattr(function, "simulator_runner", simulator_runner)
    module = kernels.Conv1d(2, 3, 2)
    x = integers(1, 2, 4)
    with kernels.simulate_on_cpu():
        module(x).sum().backward()
        module.requires_grad_(False)
        module(x.requires_grad_()).sum().backward()
    assert asked == [("dw", "db"), ("dx",)]
    assert module.bias.grad is not None


def test_tensors_on_a_neuron_device_go_to_nki(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def device_runner(geometry: Any) -> Any:
        def launch(*tensors: Any) -> Any:
            seen.append((geometry, tensors))
            arrays = (tensor.numpy() for tensor in tensors)
            return tuple(map(torch.from_numpy, function.simulator_runner(geometry)(*arrays)))

        return launch

    monkeypatch.setattr(function, "NEURON_DEVICES", {"cpu"})
    monkeypatch.setattr(function, "device_runner", device_runner)
    module = kernels.convert(with_integers(nn.Conv2d(3, 4, 2)), lnc=1)
    x = integers(1, 5, 6, 3).permute(0, 3, 1, 2)
    module(x).sum().backward()
    ((geometry, tensors),) = seen
    assert (geometry.gradients, geometry.filter_layout) == (("dw", "db"), "OIDHW")
    assert all(tensor.is_contiguous() for tensor in tensors)
    assert torch.equal(module.bias.grad, torch.full((4,), 20.0))


def test_autocast_decides_the_type_as_for_pytorch() -> None:
    module = with_integers(kernels.Conv2d(3, 4, 3))
    x = integers(1, 3, 5, 6)
    with kernels.simulate_on_cpu(), torch.autocast("cpu", torch.bfloat16):
        y = module(x)
    assert y.dtype == torch.bfloat16
    assert from_kernel(y)
    y.sum().backward()
    assert module.weight.grad.dtype == torch.float32
    torch.testing.assert_close(module.bias.grad, torch.full((4,), 12.0))


def test_a_second_derivative_is_refused() -> None:
    module = kernels.Conv1d(2, 3, 2)
    x = integers(1, 2, 4).requires_grad_()
    with kernels.simulate_on_cpu():
        (dx,) = torch.autograd.grad(module(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        dx.sum().backward()


def test_convert_keeps_everything_else() -> None:
    network = SmallNetwork()
    called = []
    network.first.register_forward_hook(lambda *_: called.append("hook"))
    state, parameters = network.state_dict(), list(network.parameters())
    assert kernels.convert(network, lnc=2) is network
    assert type(network.first) is kernels.Conv3d
    assert type(network.up) is kernels.ConvTranspose3d
    assert isinstance(network.first, nn.Conv3d)
    assert network.head.lnc == 2
    assert all(a is b for a, b in zip(network.parameters(), parameters, strict=True))
    assert network.state_dict().keys() == state.keys()
    network(integers(1, 1, 4, 4, 4))
    assert called == ["hook"]


def test_convert_leaves_other_peoples_layers_alone() -> None:
    class Scaled(nn.Conv1d):
        def forward(self, x: Any) -> Any:
            return 2 * super().forward(x)

    network = nn.Sequential(Scaled(1, 1, 1), nn.Conv1d(1, 1, 1))
    kernels.convert(network)
    assert type(network[0]) is Scaled
    assert type(network[1]) is kernels.Conv1d


def test_a_wrong_output_size_is_refused() -> None:
    module = kernels.ConvTranspose1d(1, 1, 3, stride=2)
    with kernels.simulate_on_cpu(), pytest.raises(RequestError, match="output-padding-range"):
        module(integers(1, 1, 3), (11,))
