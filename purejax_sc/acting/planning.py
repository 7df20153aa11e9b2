"""Agents that search before they act: over their model, or over the environment itself.

The second is a perfect model in which the same root heads judge every node, real states all of them. What it gains over
the first is what a better model could gain; what it lacks is the fault of the values, of the policy or of the search.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import mctx

from purejax_sc.acting import episodes
from purejax_sc.acting.episodes import Player
from purejax_sc.agent.search import SearchOptions, default_scale, make_plan, make_root
from purejax_sc.config import Config
from purejax_sc.envs import base
from purejax_sc.types import Array, Env, Key, Model, Observation, Params, Scalar, Tree


class RealNode(NamedTuple):
    """A state in each of B trees. env: the environment's [B, ...].   carry: what the agent remembers there [B, ...].

    running: bool [B], false beyond the end of an episode, where nothing is worth anything.
    """

    env: Tree
    carry: Tree
    running: Array


def make_player(config: Config, model: Model, env: Env, search: SearchOptions, params: Params) -> Player:
    """An agent of `config` that searches. Raises ValueError as `agent.search.make_plan` does."""
    if search.dynamics == "model":
        return episodes.agent(model, episodes.make_choices(config, model, env.spec, search)["search"], params)
    plan = make_plan(env.spec, search, config.muesli.unroll, default_scale(model))
    expand = partial(_expand, env, model, config.hyper.discount)

    def act(state: Tree, obs: Observation, memory: Tree, key: Key) -> tuple[Array, Tree]:
        e, memory = model.encode(params.encoder, jax.tree.map(lambda x: x[None], obs), memory)
        node = RealNode(state, memory, jnp.ones(len(obs.legal), bool))
        root = make_root(model, params, e[0], obs.legal, node)
        return plan(params, root, expand, obs.legal, key).action, memory

    return Player(model.initial_carry, act)


def _expand(
    env: Env, model: Model, discount: Scalar, params: Params, key: Key, action: Array, node: RealNode
) -> tuple[mctx.RecurrentFnOutput, RealNode]:
    """One real step in each of B trees by action [B]. Where the environment draws lots, a node is one of its draws."""
    state, step = jax.vmap(env.step)(jax.random.split(key, len(action)), node.env, action)
    obs = base.observe(step, action)
    e, carry = model.encode(params.encoder, jax.tree.map(lambda x: x[None], obs), node.carry)
    running = node.running & (step.discount != 0.0)
    there = make_root(model, params, e[0], obs.legal, None)
    output = mctx.RecurrentFnOutput(
        reward=jnp.where(node.running, step.reward, 0.0),
        discount=jnp.where(node.running, discount * step.discount, 0.0),  # negative where the mover changes
        prior_logits=there.prior_logits,
        value=jnp.where(running, there.value, 0.0),
    )
    return output, RealNode(state, carry, running)
