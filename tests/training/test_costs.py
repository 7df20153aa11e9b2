"""What programs cost: numbers that can be counted by hand, and XLA's own where it has no loop to overlook."""

import jax
import jax.numpy as jnp
import pytest

from purejax_sc.config import load
from purejax_sc.training import costs
from purejax_sc.training.update import abstract_update


def shaped(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def flops(function, *shapes, platform="cuda") -> int:
    return costs.flops(jax.make_jaxpr(function)(*shapes), platform)


def peak(function, *shapes, platform="cuda") -> int:
    return costs.peak_bytes(jax.make_jaxpr(function)(*shapes), platform)


def test_a_product_is_a_multiplication_and_an_addition_per_entry_and_term() -> None:
    assert flops(lambda x, y: x @ y, shaped(3, 5), shaped(5, 7)) == 2 * 3 * 5 * 7
    assert flops(lambda x, y: jnp.einsum("bij,bjk->bik", x, y), shaped(4, 3, 5), shaped(4, 5, 7)) == 4 * 2 * 3 * 5 * 7
    assert flops(lambda x: jnp.sum(jnp.exp(x)), shaped(3, 5)) == 0


def test_a_convolution_counts_what_its_window_meets() -> None:
    # 3x3 over 4x4 with padding: along an axis 2 + 3 + 3 + 2 = 10 of 12; 10 x 10 places, 2 images, 3 to 5 channels
    def conv(padding, strides=(1, 1)):
        numbers = ("NHWC", "HWIO", "NHWC")
        return lambda x, k: jax.lax.conv_general_dilated(x, k, strides, padding, dimension_numbers=numbers)

    shapes = shaped(2, 4, 4, 3), shaped(3, 3, 3, 5)
    assert flops(conv("SAME"), *shapes) == 2 * 10 * 10 * 2 * 3 * 5
    assert flops(conv("VALID"), *shapes) == 2 * 6 * 6 * 2 * 3 * 5
    assert flops(conv("VALID", (2, 2)), *shapes) == 2 * 3 * 3 * 2 * 3 * 5


def test_a_loop_counts_as_often_as_it_runs_and_xla_counts_it_once() -> None:
    def repeated(x, y):
        return jax.lax.scan(lambda x, _: (x @ y, None), x, length=9)[0]

    x = shaped(8, 8)
    assert flops(repeated, x, x) == 9 * 2 * 8**3
    assert jax.jit(repeated).lower(x, x).cost_analysis()["flops"] < 2 * 2 * 8**3  # why we count ourselves
    nested = flops(lambda x, y: jax.lax.fori_loop(0, 5, lambda _, z: repeated(z, y), x), x, x)
    assert nested == 5 * 9 * 2 * 8**3


def test_a_loop_without_a_stated_length_counts_once() -> None:
    x = shaped(8, 8)
    assert flops(lambda x, n: jax.lax.fori_loop(0, n, lambda _, z: z @ x, x), x, jnp.int32(3)) == 2 * 8**3


def test_functions_within_functions_count() -> None:
    @jax.checkpoint
    def twice(x, y):
        return jax.jit(jnp.matmul)(jnp.matmul(x, y), y)

    x = shaped(4, 4)
    assert flops(twice, x, x) == 2 * 2 * 4**3
    # two forward, of which one again in the backward pass, and two gradients of each
    gradient = flops(jax.grad(lambda x, y: jnp.sum(twice(x, y)), argnums=(0, 1)), x, x)
    assert gradient in (2 * n * 4**3 for n in (6, 7, 8))  # as much as JAX writes again


def test_of_conditions_the_branch_of_the_platform_or_the_largest_counts() -> None:
    def product(x):
        return x @ x

    x = shaped(8, 8)
    chosen = [
        flops(lambda x: jax.lax.platform_dependent(x, cpu=product, default=jnp.exp), x, platform=name)
        for name in ("cpu", "cuda", "tpu")
    ]
    assert chosen == [2 * 8**3, 0, 0]
    assert flops(lambda x: jax.lax.cond(x[0, 0] > 0, product, jnp.exp, x), x) == 2 * 8**3


@pytest.mark.parametrize("strides", [(1, 1), (2, 3)])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_products_and_gradients_of_convolutions_are_as_xla_counts_them(strides, padding) -> None:
    def loss(x, kernel, weights):
        numbers = ("NHWC", "HWIO", "NHWC")
        y = jax.lax.conv_general_dilated(x, kernel, strides, padding, dimension_numbers=numbers)
        return jnp.vdot(y.reshape(len(y), -1) @ weights, jnp.ones((3, 11)))

    y = jax.eval_shape(
        lambda x, k: jax.lax.conv_general_dilated(x, k, strides, padding, dimension_numbers=("NHWC", "HWIO", "NHWC")),
        shaped(3, 9, 8, 4), shaped(3, 3, 4, 6),
    )  # fmt: skip
    shapes = shaped(3, 9, 8, 4), shaped(3, 3, 4, 6), shaped(y.size // 3, 11)
    gradient = jax.value_and_grad(loss, argnums=(0, 1, 2))
    known = jax.jit(gradient).lower(*shapes).cost_analysis()["flops"]
    assert 0.99 * known <= flops(gradient, *shapes) <= known


def test_memory_is_what_is_alive_at_once() -> None:
    # y and z of 400 bytes are alive while z is written; the argument and the result are the caller's
    assert peak(lambda x: jnp.sin(jnp.sin(jnp.sin(x))), shaped(100)) == 2 * 400
    # x waits for its use at the end, as activations do for gradients
    assert peak(lambda x: (lambda a: jnp.sin(jnp.sin(a)) * a)(jnp.sin(x)), shaped(100)) == 3 * 400
    assert peak(lambda x: x + jnp.zeros(100), shaped(100)) == 0  # constants are made where they are used


def test_memory_of_a_loop_is_that_of_its_body_and_of_what_it_leaves() -> None:
    def body(x, _):
        return jnp.sin(jnp.sin(x)), jnp.sin(x)

    # 7 results of 400 bytes, not returned; in the body, sin x for the next sin, while the other sin x is a result
    assert peak(lambda x: jnp.sum(jax.lax.scan(body, x, length=7)[1]), shaped(100)) >= 7 * 400
    assert peak(lambda x: jax.lax.scan(body, x, length=7)[1], shaped(100)) < 4 * 400


def test_what_other_platforms_would_leave_for_gradients_takes_no_memory() -> None:
    def on_cpu(x, k):  # leaves patches, nine times the image
        return jnp.tanh(jnp.sum(jnp.sin(jnp.tile(x, 9)) * jnp.tile(k, 9)))

    def loss(x, k):
        return jax.lax.platform_dependent(x, k, cpu=on_cpu, default=lambda x, k: jnp.sum(jnp.sin(x)) * k[0])

    shapes = shaped(1000), shaped(1000)
    gradient = jax.value_and_grad(loss, argnums=(0, 1))
    elsewhere, alone = (
        peak(f, *shapes)
        for f in (gradient, jax.value_and_grad(lambda x, k: jnp.sum(jnp.sin(x)) * k[0], argnums=(0, 1)))
    )
    assert elsewhere <= alone + 100
    assert peak(gradient, *shapes, platform="cpu") > 9 * 4000


def test_the_estimate_of_memory_is_near_what_xla_takes() -> None:
    def loss(weights, x):
        for w in weights:
            x = jax.nn.relu(x @ w)
        return jnp.sum(x**2)

    shapes = [shaped(64, 64)] * 8, shaped(4096, 64)
    taken = jax.jit(jax.grad(loss)).lower(*shapes).compile().memory_analysis().temp_size_in_bytes
    assert taken / 2 < peak(jax.grad(loss), *shapes) < 2 * taken


@pytest.mark.slow
@pytest.mark.parametrize("name", ["smoke", "catch", "cartpole", "minatar_breakout", "sokoban_small", "go_5x5"])
def test_the_estimate_of_memory_is_near_what_xla_takes_for_an_update(name: str) -> None:
    """As docs/performance.md says. XLA's flags of other tests make other programs."""
    update = abstract_update(load(name))
    taken = jax.jit(update.run, donate_argnums=0).lower(*update.arguments).compile().memory_analysis()
    ratio = costs.peak_bytes(jax.make_jaxpr(update.run)(*update.arguments), "cpu") / taken.temp_size_in_bytes
    assert 0.7 < ratio < 1.15
