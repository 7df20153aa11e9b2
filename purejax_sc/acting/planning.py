"""Agents that search before they act: over their model, or over the environment itself.

The second is a perfect model in which the same root heads judge every node, real states all of them. What it gains over
the first is what a better model could gain; what it lacks is the fault of the values, of the policy or of the search.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import mctx

from purejax_sc.acting.episodes import Player
from purejax_sc.agent import search as searching
from purejax_sc.agent.search import SearchOptions, SearchResult, make_plan, make_root
from purejax_sc.config import Config
from purejax_sc.envs import base
from purejax_sc.types import Array, Env, Key, Model, Observation, Params, Scalar, Step, Tree


class RealNode(NamedTuple):
    """A state in each of B trees. env: the environment's [B, ...].   carry: what the agent remembers there [B, ...].

    running: bool [B], false beyond the end of an episode, where nothing is worth anything.
    """

    env: Tree
    carry: Tree
    running: Array


# (params, encodings e [B, ...], legal bool [B, A], real states of B, key) -> SearchResult
RealSearch = Callable[[Params, Array, Array, RealNode, Key], SearchResult]


def make_player(config: Config, model: Model, env: Env, options: SearchOptions, params: Params) -> Player:
    """An agent of `config` that searches. Raises ValueError as `agent.search.make_plan` does."""
    search = make_search(config, model, env, options)

    def act(state: Tree, obs: Observation, memory: Tree, key: Key) -> tuple[Array, Tree]:
        e, memory = model.encode(params.encoder, jax.tree.map(lambda x: x[None], obs), memory)
        node = RealNode(state, memory, jnp.ones(len(obs.legal), bool))
        return search(params, e[0], obs.legal, node, key).action, memory

    return Player(model.initial_carry, act)


def make_search(config: Config, model: Model, env: Env, options: SearchOptions) -> RealSearch:
    """A search from real states, over what `options.dynamics` says. Raises ValueError as `make_plan` does."""
    if options.dynamics == "model":
        over_model = searching.make_search(model, env.spec, options, config.muesli.unroll)
        return lambda params, e, legal, node, key: over_model(params, e, legal, key, config.hyper.discount)
    plan = make_plan(model, env.spec, options, config.muesli.unroll)
    expand = partial(_expand, env, model, config.hyper.discount)

    def search(params: Params, e: Array, legal: Array, node: RealNode, key: Key) -> SearchResult:
        return plan(params, make_root(model, params, e, legal, node), expand, legal, key)

    return search


def step_on(
    env: Env, model: Model, params: Params, keys: Key, action: Array, node: RealNode
) -> tuple[Step, Array, RealNode]:
    """One real step from each of B states by action [B], with keys [B]: the step, its encoding e, and the new state."""
    state, step = jax.vmap(env.step)(keys, node.env, action)
    seen = jax.tree.map(lambda x: x[None], base.observe(step, action))
    e, carry = model.encode(params.encoder, seen, node.carry)
    return step, e[0], RealNode(state, carry, node.running & (step.discount != 0.0))


def _expand(
    env: Env, model: Model, discount: Scalar, params: Params, key: Key, action: Array, node: RealNode
) -> tuple[mctx.RecurrentFnOutput, RealNode]:
    """mctx's recurrent function. Where the environment draws lots, a node is one of its draws."""
    step, e, after = step_on(env, model, params, jax.random.split(key, len(action)), action, node)
    there = make_root(model, params, e, step.legal, None)
    output = mctx.RecurrentFnOutput(
        reward=jnp.where(node.running, step.reward, 0.0),
        discount=jnp.where(node.running, discount * step.discount, 0.0),  # negative where the mover changes
        prior_logits=there.prior_logits,
        value=jnp.where(after.running, there.value, 0.0),
    )
    return output, after
