# SPDX-License-Identifier: Apache-2.0
"""The JAX convolution against XLA's own gradients and the reference, bit for bit on integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from conv3d_codegen.dtypes import dtype
from conv3d_codegen.errors import RequestError
from conv3d_codegen.geometry import ConvGeometry
from conv3d_codegen.reference import conv_backward_reference

jax = pytest.importorskip("jax", reason="JAX is the extra `jax`")
jnp = jax.numpy

from conv3d_codegen import jax as kernels  # noqa: E402 (needs jax)

CASES = {
    "3-D": ((1, 3, 3, 4, 5), (4, 2, 3, 3), {"stride": (1, 2, 1), "padding": 1}),
    "bf16": ((2, 3, 5, 4), (4, 3, 3), {"dtype": "bf16", "dilation": (1, 1)}),
    "uneven padding": ((2, 3, 7), (4, 3), {"padding": (1, 2), "dilation": 2}),
    "groups, layouts": (
        (2, 4, 5, 6),
        (6, 3, 2),
        {"groups": 2, "layout": "NHWC", "filter_layout": "OIHW"},
    ),
    "transposed": (
        (1, 4, 3, 4),
        (6, 3, 2),
        {"transposed": True, "groups": 2, "stride": (3, 2), "output_padding": (1, 0)},
    ),
    "transposed 3-D": (
        (1, 3, 2, 3, 2),
        (4, 2, 1, 2),
        {"transposed": True, "stride": 2, "padding": (0, 1, 0, 0, 1, 0), "filter_layout": "ODHWI"},
    ),
}


def case(name: str) -> tuple[ConvGeometry, dict[str, Any]]:
    shape, filters, how = CASES[name]
    geometry = ConvGeometry.from_shapes(shape, filters, **{"dtype": "fp32", **how})
    return geometry, {field: value for field, value in how.items() if field != "dtype"}


def operands(geometry: ConvGeometry) -> dict[str, Any]:
    random = np.random.default_rng(0)
    shapes = {
        "x": geometry.x_shape,
        "filters": geometry.filter_shape,
        "bias": geometry.db_shape,
        "dy": geometry.dy_shape,
    }
    kind = dtype(geometry.dtype).numpy
    return {
        name: jnp.asarray(random.integers(-2, 3, shape).astype(kind))
        for name, shape in shapes.items()
    }


def pullback(dy: Any, how: dict[str, Any]) -> Any:
    """Return a new function, for JAX keeps the traces of those that it has seen."""

    def pulled_back(x: Any, filters: Any, bias: Any) -> Any:
        y, pull = jax.vjp(lambda *tensors: kernels.conv(*tensors, **how), x, filters, bias)
        return y, pull(dy)

    return pulled_back


def kernels_called(function: Any, *arguments: Any) -> int:
    return str(jax.make_jaxpr(function)(*arguments)).count("pure_callback")


@pytest.mark.parametrize("name", CASES)
def test_gradients_equal_the_reference_with_and_without_kernels(name: str) -> None:
    geometry, how = case(name)
    arrays = operands(geometry)
    dy = arrays.pop("dy")
    tensors = tuple(arrays.values())
    y, gradients = jax.jit(pullback(dy, how))(*tensors)
    assert y.shape == geometry.dy_shape
    with kernels.simulate_on_cpu():
        with_kernel = pullback(dy, how)
        assert kernels_called(with_kernel, *tensors) == 1
        found_y, found = jax.jit(with_kernel)(*tensors)
    np.testing.assert_array_equal(found_y, y)
    wide = (np.asarray(array).astype(np.int64) for array in (dy, tensors[0], tensors[1]))
    reference = conv_backward_reference(geometry, *wide)
    for gradient, (ours, xlas) in zip(reference, zip(found, gradients, strict=True), strict=True):
        right = reference[gradient].astype(xlas.dtype)
        np.testing.assert_array_equal(xlas, right, err_msg=f"XLA's {gradient}")
        np.testing.assert_array_equal(ours, right, err_msg=f"our {gradient}")


def test_only_what_is_differentiated_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    runner = kernels.simulator_runner
    monkeypatch.setattr(
        kernels, "simulator_runner", lambda geometry: asked.append(geometry) or runner(geometry)
    )
    geometry, how = case("3-D")
    x, filters, *_ = operands(geometry).values()
    with kernels.simulate_on_cpu():
        jax.grad(lambda w: kernels.conv(x, w, **how).sum())(filters)
    assert {geometry.gradients for geometry in asked} == {("dw",)}


def test_a_batch_of_calls_is_a_kernel_per_call() -> None:
    geometry, how = case("uneven padding")
    x, filters, *_ = operands(geometry).values()
    many = jnp.stack((x, 2 * x))

    def gradients() -> Any:
        return jax.vmap(lambda x: jax.grad(lambda w: kernels.conv(x, w, **how).sum())(filters))(
            many
        )

    expected = gradients()
    with kernels.simulate_on_cpu():
        np.testing.assert_array_equal(gradients(), expected)


def test_without_being_asked_for_the_simulator_stays_out() -> None:
    geometry, how = case("3-D")
    x, filters, bias, dy = operands(geometry).values()
    assert kernels_called(pullback(dy, how), x, filters, bias) == 0
    with kernels.simulate_on_cpu(max_macs=100):
        assert kernels_called(pullback(dy, how), x, filters, bias) == 0


def test_on_a_neuron_backend_kernels_go_to_nki(monkeypatch: pytest.MonkeyPatch) -> None:
    traced = []

    def device_runner(geometry: ConvGeometry) -> Any:
        traced.append(geometry)
        return lambda dy, x, w: (2 * w, dy.sum((0, 2)))  # any function of tracers will do

    monkeypatch.setattr(kernels, "_on_neuron", lambda: True)
    monkeypatch.setattr(kernels, "device_runner", device_runner)
    x, filters, bias = jnp.ones((1, 3, 7)), jnp.ones((3, 3, 4)), jnp.zeros(4)
    dw, db = jax.jit(jax.grad(lambda w, b: kernels.conv(x, w, b, lnc=2).sum(), argnums=(0, 1)))(
        filters, bias
    )
    (geometry,) = traced
    assert (geometry.gradients, geometry.lnc) == (("dw", "db"), 2)
    np.testing.assert_array_equal(dw, 2 * filters)
    np.testing.assert_array_equal(db, [5, 5, 5, 5])


def test_mixed_types_are_left_to_xla() -> None:
    x, filters, bias = jnp.ones((1, 3, 7), jnp.bfloat16), jnp.ones((3, 3, 4)), jnp.ones(4)
    with kernels.simulate_on_cpu():
        y = kernels.conv(x, filters.astype(x.dtype), bias)
        assert y.dtype == jnp.float32
        gradient = jax.grad(lambda b: kernels.conv(x, filters.astype(x.dtype), b).sum())(bias)
    assert gradient.dtype == bias.dtype


def test_an_empty_batch() -> None:
    x, filters = jnp.zeros((0, 3, 7)), jnp.ones((3, 3, 4))
    with kernels.simulate_on_cpu():
        dx, dw = jax.grad(lambda *tensors: kernels.conv(*tensors).sum(), argnums=(0, 1))(x, filters)
    assert dx.shape == x.shape
    assert not dw.any()


def test_what_states_no_convolution_is_refused() -> None:
    with pytest.raises(RequestError, match="kernel-exceeds-input"):
        kernels.conv(jnp.zeros((1, 3, 2)), jnp.ones((3, 3, 4)))
    with pytest.raises(RequestError, match="wrong-shape"):
        kernels.conv(jnp.zeros((1, 3, 5)), jnp.ones((3, 2, 4)))
    with pytest.raises(RequestError, match="wrong-shape"):
        kernels.conv(jnp.zeros((1, 3, 5)), jnp.ones((3, 4)))
    with pytest.raises(RequestError, match="rank"):
        kernels.conv(jnp.zeros((1, 3)), jnp.ones((3, 4)))
