# SPDX-License-Identifier: Apache-2.0
"""PyTorch models as LAYERS files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from conv3d_codegen.cli.main import main
from conv3d_codegen.errors import RequestError
from conv3d_codegen.layers import parse_layers, read_layers
from conv3d_codegen.packs import load_pack

torch = pytest.importorskip("torch", reason="PyTorch is the extra `torch`")
nn = torch.nn

from conv3d_codegen.importers.torch_model import load_factory, read_torch  # noqa: E402 (needs torch)

if TYPE_CHECKING:
    from pathlib import Path

    from conv3d_codegen.geometry import ConvGeometry


def geometries(factory: Any, *shapes: tuple[int, ...]) -> dict[str, ConvGeometry]:
    imported = read_torch(factory, shapes, "M")
    assert not imported.skipped
    return {layer.layer: layer.geometry for layer in imported.layers}


def test_a_whole_nnunet_in_one_command(tmp_path: Path) -> None:
    file = tmp_path / "nnunet.json"
    arguments = ["import", "torch", "networks:NnUNet", "--input", "2,1,128,128,128"]
    result = CliRunner().invoke(main, [*arguments, "--dtype", "bf16", "-o", str(file)])
    assert result.exit_code == 0, result.stderr
    layers = read_layers(file)
    assert len(layers) == 27
    assert sum(layer.geometry.transposed for layer in layers) == 5
    first, last = layers[0], layers[-1]
    assert first.name == "NnUNet/encoder.0.0"
    assert first.geometry.key() == (
        "conv3d-n2-ci1-co32-i128x128x128-k3x3x3-s1x1x1-p1.1.1.1.1.1-d1x1x1-bf16-trn2-dw.db-oidhw"
    )
    assert last.geometry.gradients == ("dx", "dw", "db")
    assert last.geometry.x_shape == (2, 32, 128, 128, 128)


@pytest.mark.sweep
def test_a_whole_nnunet_in_one_pack(tmp_path: Path) -> None:
    layers, path = tmp_path / "nnunet.json", tmp_path / "nnunet.pack"
    arguments = ["import", "torch", "networks:NnUNet", "--input", "2,1,128,128,128"]
    CliRunner().invoke(main, [*arguments, "--dtype", "bf16", "-o", str(layers)])
    result = CliRunner().invoke(main, ["pack", "build", str(layers), "-o", str(path)])
    assert result.exit_code == 0, result.stderr
    names = [name for entry in load_pack(path).manifest.entries for name in entry.layers]
    assert sorted(names) == sorted(layer.name for layer in read_layers(layers))


def test_the_order_is_that_of_the_calls_and_names_are_the_modules() -> None:
    found = geometries(load_factory("networks:SmallNetwork"), (1, 1, 4, 6, 6))
    assert list(found) == ["first", "down", "grouped", "up", "head"]
    assert found["down"].gradients == ("dx", "dw")
    assert found["grouped"].groups == 4
    assert found["up"].transposed
    assert found["up"].x_shape == (1, 8, 2, 3, 3)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_every_rank_ordinary_and_transposed(rank: int) -> None:
    size = (5, 6, 7)[:rank]
    ordinary = getattr(nn, f"Conv{rank}d")
    transposed = getattr(nn, f"ConvTranspose{rank}d")
    found = geometries(lambda: nn.Sequential(ordinary(3, 4, 2), transposed(4, 3, 3)), (2, 3, *size))
    assert [geometry.rank for geometry in found.values()] == [rank, rank]
    assert found["1"].x_shape == (2, 4, *(extent - 1 for extent in size))


def test_an_output_size_becomes_output_padding() -> None:
    class Asking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up = nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1)

        def forward(self, x: Any) -> Any:
            return self.up(x, output_size=(10, 9))

    (geometry,) = geometries(Asking, (1, 3, 5, 5)).values()
    assert geometry.output_padding == (0, 1, 0)
    assert geometry.output_size == (1, 10, 9)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
def test_paddings_by_name_and_by_value() -> None:
    class Padded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.same = nn.Conv2d(1, 1, (2, 3), padding="same", dilation=(3, 1))
            self.valid = nn.Conv2d(1, 1, 3, padding="valid")
            self.circular = nn.Conv2d(1, 1, 3, padding=(1, 0), padding_mode="circular")

        def forward(self, x: Any) -> Any:
            return self.same(x).sum() + self.valid(x).sum() + self.circular(x).sum()

    found = geometries(Padded, (1, 1, 8, 8))
    assert found["same"].padding[2:] == (1, 2, 1, 1)
    assert found["same"].output_size == (1, 8, 8)
    assert not any(found["valid"].padding)
    assert found["circular"].input_size == (1, 10, 8)
    assert not any(found["circular"].padding)


def test_a_module_called_twice_is_a_layer_per_shape() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shared = nn.Conv1d(2, 2, 3)

        def forward(self, x: Any) -> Any:
            shorter = self.shared(x)
            return self.shared(shorter), self.shared(shorter)

    found = geometries(Twice, (1, 2, 9))
    assert [geometry.input_size[2] for geometry in found.values()] == [9, 7]
    assert list(found) == ["shared", "shared.call2"]


def test_frozen_layers_need_no_gradients() -> None:
    def half_frozen() -> Any:
        network = nn.Sequential(nn.Conv1d(2, 2, 3), nn.Conv1d(2, 2, 3))
        network[0].requires_grad_(False)
        network[1].bias.requires_grad_(False)
        return network

    found = geometries(half_frozen, (1, 2, 9))
    assert {name: geometry.gradients for name, geometry in found.items()} == {"1": ("dw",)}


def test_unbatched_inputs_are_a_batch_of_one() -> None:
    (geometry,) = geometries(lambda: nn.Conv2d(3, 4, 3), (3, 8, 9)).values()
    assert geometry.x_shape == (1, 3, 8, 9)


def test_a_model_that_looks_at_values_runs_on_the_cpu() -> None:
    class Looking(nn.Conv1d):
        def forward(self, x: Any) -> Any:
            return super().forward(x) if x.sum().item() == 0 else x

    with pytest.raises(RequestError, match="--device cpu") as caught:
        read_torch(lambda: Looking(1, 1, 1), [(1, 1, 4)], "M")
    assert caught.value.code == "forward-failed"
    assert len(read_torch(lambda: Looking(1, 1, 1), [(1, 1, 4)], "M", device="cpu").layers) == 1


def test_types_without_a_kernel_are_skipped_and_named() -> None:
    imported = read_torch(lambda: nn.Conv1d(1, 1, 1).double(), [(1, 1, 4)], "M")
    assert not imported.layers
    assert "torch.float64" in imported.skipped[0].problem


@pytest.mark.parametrize(
    ("place", "code"),
    [
        ("networks", "no-factory"),
        ("networks:", "no-factory"),
        ("no_such_module:f", "no-factory"),
        ("networks:Missing", "no-factory"),
        ("networks:__doc__", "no-factory"),
        ("builtins:dict", "no-module"),
        ("networks:Block", "forward-failed"),  # needs arguments
    ],
)
def test_what_makes_no_model_is_one_line(place: str, code: str) -> None:
    result = CliRunner().invoke(main, ["import", "torch", place, "--input", "1,1,4,4,4"])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error[{code}]: ")
    assert result.stderr.count("\n") == 1


def test_the_product_on_standard_output_is_a_layers_file() -> None:
    arguments = ["import", "torch", "networks:SmallNetwork", "--input", "1,1,4,6,6"]
    result = CliRunner().invoke(main, [*arguments, "--model", "Small", "--grads", "dx"])
    layers = parse_layers(result.stdout, "layers.json")
    assert layers[0].name == "Small/first"
    assert {layer.geometry.gradients for layer in layers} == {("dx",)}
