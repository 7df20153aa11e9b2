"""Acting by the policy in environments on the device."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from purejax_sc.agent import transforms
from purejax_sc.agent.transforms import masked_logits
from purejax_sc.config import Hyper
from purejax_sc.envs import base
from purejax_sc.types import (
    Array,
    Env,
    EpisodeStats,
    Key,
    Model,
    Observation,
    Params,
    Sequence,
    Transition,
    Tree,
)

# (params, Observation [B, ...], carry, key, hyper) -> (action int32 [B], logits [B, A] it was drawn by, carry after it)
Policy = Callable[[Params, Observation, Tree, Key, Hyper], tuple[Array, Array, Tree]]


def make_policy(model: Model) -> Policy:
    """The policy head with a share of uniform actions: known probabilities, so that returns can be corrected."""

    def choose(params: Params, obs: Observation, carry: Tree, key: Key, hyper: Hyper) -> tuple[Array, Array, Tree]:
        e, carry = model.encode(params.encoder, jax.tree.map(lambda x: x[None], obs), carry)
        logits = masked_logits(model.root_policy(params.root_policy, e[0]), obs.legal)

        def explored(logits: Array) -> Array:
            mu = transforms.with_uniform(jax.nn.softmax(logits), obs.legal, hyper.explore)
            return masked_logits(jnp.log(mu), obs.legal)

        # under a condition: mixed in with a share of 0, the policy would be rounded
        logits = jax.lax.cond(hyper.explore > 0, explored, lambda logits: logits, logits)
        return jax.random.categorical(key, logits), logits, carry

    return choose


def act(
    env: Env,
    policy: Policy,
    params: Params,
    driver: base.DriverState,
    carry: Tree,
    key: Key,
    hyper: Hyper,
    num_steps: int,
) -> tuple[base.DriverState, Tree, Sequence, EpisodeStats]:
    """Act T steps in every environment: the driver and carry after them, the sequence, the episodes that ended."""

    def step(state: tuple[base.DriverState, Tree], key: Key) -> tuple[tuple[base.DriverState, Tree], Any]:
        driver, carry = state
        key_action, key_env = jax.random.split(key)
        action, logits, carry = policy(params, driver.obs, carry, key_action, hyper)
        after, reward, discount, episodes = base.step(env, key_env, driver, action)
        return (after, carry), (Transition(driver.obs, action, logits, reward, discount), episodes)

    (after, carry_after), (steps, episodes) = jax.lax.scan(step, (driver, carry), jax.random.split(key, num_steps))
    obs = jax.tree.map(lambda x, last: jnp.concatenate([x, last[None]]), steps.obs, after.obs)
    sequence = Sequence(obs, steps.action, steps.logits, steps.reward, steps.discount, carry)
    return after, carry_after, sequence, jax.tree.map(jnp.sum, episodes)
