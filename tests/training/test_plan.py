"""`bench/plan.py`: sizes and operations that can be checked on paper, and one refusal of what does not fit."""

import jax
import jax.numpy as jnp
import plan
import pytest
from helpers.configs import small

from purejax_sc.config import ConfigError, from_tree, to_tree
from purejax_sc.envs import make_env
from purejax_sc.training import anakin


def test_products_and_convolutions_count_as_often_as_they_run() -> None:
    def program(x: jax.Array) -> jax.Array:
        x = jax.lax.fori_loop(0, 5, lambda _, x: x @ x, x)  # 5 * 2 * 4^3 = 640
        image = jnp.ones((1, 6, 6, 2))
        kernel = jnp.ones((3, 3, 2, 7))  # 4 * 4 * 7 outputs of 3 * 3 * 2 inputs each: 2 * 2016 = 4032
        return (
            jax.lax.conv_general_dilated(
                image, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
            ).sum()
            + x.sum()
        )

    assert plan.flops(jax.make_jaxpr(program)(jnp.ones((4, 4)))) == 640 + 4032


def test_a_plan_holds_the_state_of_a_run() -> None:
    config = small()
    planned = plan.make_plan(config, compiles=False)
    state = jax.eval_shape(anakin.make_trainer(config).init, jax.random.key(0))
    assert planned.num_params == sum(x.size for x in jax.tree.leaves(state.learner.params))
    assert planned.replay >= sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(state.replay.data))
    assert planned.temporaries is None
    assert planned.flops > 0


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"network": {"width": 300_000}}, "lower network.* or muesli.bins"),
        ({"sc": {"rollout_ratio": 1e9}}, "lower sc.rollout_ratio or muesli.bins"),
        (
            {"train": {"num_envs": 1_000_000_000, "sequence_length": 2}, "replay": {"capacity": 2_000_000_000}},
            "lower train.num_envs or train.sequence_length",
        ),
    ],
)
def test_sizes_beyond_memory_are_refused_before_anything_is_compiled(section: dict, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        anakin.make_trainer(small(**section))
    assert str(error.value).endswith(words)


def test_searches_for_levels_beyond_memory_are_refused_by_name() -> None:
    tree = to_tree(small()) | {"env": "jumanji/Sokoban", "levels": {"positions": 2**28, "pool": 1024, "refresh": 0}}
    # 2^30 slots of 4 bytes and 2^28 orders of 16: 8 GiB each
    with pytest.raises(ConfigError, match=r"takes 8,192.0 GiB, .* lower levels.positions=268435456, levels.pool=1024"):
        make_env(from_tree(tree))
