"""What the shipped configurations promise, as learning curves of several seeds. Minutes long: pytest -m slow."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purejax_sc import config as config_module
from purejax_sc.train import make_chunk, make_trainer, over_seeds

SEEDS = 5

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def mean_returns(name, overrides, windows):
    """Mean return [windows] over the seeds and over the episodes that end in each window (first, last] of env steps."""
    config = config_module.load(name, overrides)
    trainer = make_trainer(config)
    states = jax.jit(jax.vmap(trainer.init))(jax.vmap(jax.random.key)(jnp.arange(SEEDS)))
    chunk = jax.jit(over_seeds(make_chunk(trainer), "map"), donate_argnums=0)
    returns, done = [], 0
    for first, last in windows:
        for until in (first, last):
            n = until // config.steps_per_iteration - done
            if n:
                states, metrics = chunk(states, config.hyper, jnp.int32(n))
            done += n
        returns.append(np.mean(metrics["episode_return_sum"] / metrics["episode_count"]))
    return returns


@pytest.mark.parametrize("update", ["none", "direct"])
def test_catch_is_learned_in_64_000_steps(update):
    assert mean_returns("catch", [f"sc.update={update}"], [(60_000, 64_000)])[0] >= 0.95


@pytest.mark.parametrize("update", ["none", "direct"])
def test_cartpole_is_learned_in_100_000_steps(update):
    early, late = mean_returns("cartpole", [f"sc.update={update}"], [(7_000, 9_000), (95_000, 100_000)])
    assert early >= 163
    assert late >= 450


@pytest.mark.parametrize("update", ["none", "direct"])
def test_breakout_is_learned_in_1_000_000_steps(update):
    early, late = mean_returns("minatar_breakout", [f"sc.update={update}"], [(280_000, 300_000), (950_000, 1_000_000)])
    assert early >= 20
    assert late >= 32
