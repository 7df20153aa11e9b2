"""Acting by the policy in environments on the device."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from purejax_sc.agent import transforms
from purejax_sc.agent.search import make_improvement
from purejax_sc.agent.transforms import masked_logits
from purejax_sc.config import Config, Hyper
from purejax_sc.envs import base
from purejax_sc.types import (
    Array,
    Env,
    EnvSpec,
    EpisodeStats,
    Key,
    LearnerState,
    Model,
    Observation,
    Params,
    Sequence,
    Transition,
    Tree,
)


class Actor(NamedTuple):
    """What acts in training. unit: of advantages, see `transforms.moment_scale`; a search weighs values by it."""

    params: Params
    unit: Array


# (actor, Observation [B, ...], carry, key, hyper) -> (action int32 [B], logits [B, A] it was drawn by, carry after it)
Policy = Callable[[Actor, Observation, Tree, Key, Hyper], tuple[Array, Array, Tree]]

UNKNOWN = 1e9  # unit of advantages: larger than any of them
LEAST = 1e-30  # probability of a legal action, whose logarithm is asked for


def acting_params(config: Config, learner: LearnerState) -> Params:
    """The parameters that act (L7)."""
    return learner.target if config.muesli.actor == "prior" else learner.params


def make_actor(config: Config, learner: LearnerState, hyper: Hyper) -> Actor:
    """What acts between two updates. Before the first, nothing is known of advantages: none counts."""
    unit = transforms.moment_scale(learner.moment, hyper.moment_epsilon)
    return Actor(acting_params(config, learner), jnp.where(learner.updates > 0, unit * hyper.cmpo_temperature, UNKNOWN))


def make_policy(config: Config, model: Model, spec: EnvSpec) -> Policy:
    """Who acts in training: the policy head, or the policy that a search makes of it, with a share of uniform actions.

    Either way the action is drawn from known probabilities, so that returns can be corrected for them.
    """
    searching = config.acting.policy == "search"
    improve = make_improvement(config, model, spec) if searching else None

    def choose(actor: Actor, obs: Observation, carry: Tree, key: Key, hyper: Hyper) -> tuple[Array, Array, Tree]:
        params = actor.params
        e, carry = model.encode(params.encoder, jax.tree.map(lambda x: x[None], obs), carry)
        logits = masked_logits(model.root_policy(params.root_policy, e[0]), obs.legal)
        if improve is not None:
            key, key_search = jax.random.split(key)
            weights = improve(params, e[0], obs.legal, key_search, hyper, actor.unit)
            logits = masked_logits(jnp.log(jnp.maximum(weights, LEAST)), obs.legal)

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
    actor: Actor,
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
        action, logits, carry = policy(actor, driver.obs, carry, key_action, hyper)
        after, reward, discount, episodes = base.step(env, key_env, driver, action)
        return (after, carry), (Transition(driver.obs, action, logits, reward, discount), episodes)

    (after, carry_after), (steps, episodes) = jax.lax.scan(step, (driver, carry), jax.random.split(key, num_steps))
    obs = jax.tree.map(lambda x, last: jnp.concatenate([x, last[None]]), steps.obs, after.obs)
    sequence = Sequence(obs, steps.action, steps.logits, steps.reward, steps.discount, carry)
    return after, carry_after, sequence, jax.tree.map(jnp.sum, episodes)
