"""Trained agents as players of whole episodes: by policy, or by a search over the model or the environment.

In a search over the environment each step of the tree is a real one, and the root heads evaluate every node.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mctx
import numpy as np

from purejax_sc.agent.search import NO_SEARCH, SearchOptions, SearchResult, make_plan, make_root, make_search
from purejax_sc.agent.transforms import masked_logits
from purejax_sc.config import Config
from purejax_sc.envs import base
from purejax_sc.envs.episodes import Choose, Episodes, Player, encode, policy_player
from purejax_sc.envs.host import HostEnvs
from purejax_sc.training.frames import first_memory, make_act, observation
from purejax_sc.types import Array, Env, EnvSpec, Key, Model, Observation, Params, Scalar, Step, Tree


class RealNode(NamedTuple):
    """Real states in B trees."""

    env: Tree  # states of the environment [B, ...]
    carry: Tree  # of the encoder there [B, ...]
    running: Array  # bool [B], False beyond the end of an episode, where rewards and values are 0


# (params, encodings e [B, ...], legal bool [B, A], real states of B, key) -> SearchResult
RealSearch = Callable[[Params, Array, Array, RealNode, Key], SearchResult]


def make_choice(
    config: Config,
    model: Model,
    spec: EnvSpec,
    name: str = "greedy",
    search: SearchOptions = NO_SEARCH,
    temperature: float = 1.0,
) -> Choose:
    """Return an agent's way to act: by a search over the model, or without simulations `greedy` or `sampled`.

    temperature: above 0; samples are drawn from pi^(1 / temperature).
    """
    if search.simulations:
        look, discount = make_search(model, spec, search, config.muesli.unroll), config.hyper.discount
        return lambda params, e, legal, key: look(params, e, legal, key, discount).action

    def logits(params: Params, e: Array, legal: Array, scale: float) -> Array:
        return masked_logits(model.root_policy(params.root_policy, e) / scale, legal)

    if name == "sampled":
        return lambda params, e, legal, key: jax.random.categorical(key, logits(params, e, legal, temperature))
    return lambda params, e, legal, key: jnp.argmax(logits(params, e, legal, 1.0), axis=-1)


def make_player(
    config: Config,
    model: Model,
    env: Env,
    params: Params,
    name: str = "greedy",
    search: SearchOptions = NO_SEARCH,
    temperature: float = 1.0,
) -> Player:
    """Return the agent as a player: by a search before each move, or as `make_choice` does without one.

    Raises ValueError as `make_plan` does.
    """
    if not search.simulations:
        choose = make_choice(config, model, env.spec, name, temperature=temperature)
        return policy_player(model, choose, params)
    look = make_real_search(config, model, env, search)

    def act(state: Tree, obs: Observation, memory: Tree, key: Key) -> tuple[Array, Tree]:
        e, memory = encode(model, params, obs, memory)
        node = RealNode(state, memory, jnp.ones(len(obs.legal), bool))
        return look(params, e, obs.legal, node, key).action, memory

    return Player(model.initial_carry, act)


def make_real_search(config: Config, model: Model, env: Env, options: SearchOptions) -> RealSearch:
    """Build a search from real states over `options.dynamics`. Raises ValueError as `make_plan` does."""
    if options.dynamics == "model":
        over_model = make_search(model, env.spec, options, config.muesli.unroll)
        return lambda params, e, legal, node, key: over_model(params, e, legal, key, config.hyper.discount)
    plan = make_plan(model, env.spec, options, config.muesli.unroll)
    expand = partial(_expand, env, model, config.hyper.discount)

    def search(params: Params, e: Array, legal: Array, node: RealNode, key: Key) -> SearchResult:
        return plan(params, make_root(model, params, e, legal, node), expand, legal, key)

    return search


def real_step(
    env: Env, model: Model, params: Params, keys: Key, action: Array, node: RealNode
) -> tuple[Step, Array, RealNode]:
    """Step B real states by action [B], with keys [B]. Return the step, its encoding e and the new states."""
    state, step = jax.vmap(env.step)(keys, node.env, action)
    e, carry = encode(model, params, base.observe(step, action), node.carry)
    return step, e, RealNode(state, carry, node.running & (step.discount != 0.0))


def _expand(
    env: Env, model: Model, discount: Scalar, params: Params, key: Key, action: Array, node: RealNode
) -> tuple[mctx.RecurrentFnOutput, RealNode]:
    """One real step in each tree: mctx's recurrent function. In a stochastic environment a node is one sample."""
    step, e, after = real_step(env, model, params, jax.random.split(key, len(action)), action, node)
    root = make_root(model, params, e, step.legal, None)
    output = mctx.RecurrentFnOutput(
        reward=jnp.where(node.running, step.reward, 0.0),
        discount=jnp.where(node.running, discount * step.discount, 0.0),  # negative where the mover changes
        prior_logits=root.prior_logits,
        value=jnp.where(after.running, root.value, 0.0),
    )
    return output, after


def play_on_host(
    config: Config, envs: HostEnvs, model: Model, choose: Choose, params: Params, key: Key, max_steps: int
) -> tuple[Episodes, np.ndarray]:
    """Play the first episode of each of N environments on the host, until all have ended or reach `max_steps`.

    Returns the episodes as NumPy arrays, and every frame [steps + 1, *obs_shape] of the first environment's.
    """

    def pick(params: Params, obs: Observation, carry: Tree, key: Key) -> tuple[Array, Tree, Tree]:
        e, carry = encode(model, params, obs, carry)
        return choose(params, e, obs.legal, key), (), carry

    act = jax.jit(make_act(pick))
    memory, step = first_memory(config, envs.spec, model, envs.num_envs), envs.recv()
    action, running = np.zeros(envs.num_envs, np.int32), np.ones(envs.num_envs, bool)
    returns, lengths, game_frames = np.zeros(envs.num_envs, np.float32), np.zeros(envs.num_envs, int), running * 0
    frames = [step.frame[0]]
    while (running & (lengths < max_steps)).any():
        obs = observation(step, action, envs.spec.num_actions)
        chosen, _, memory, key = act(params, memory, obs, key)
        action = np.asarray(chosen)
        envs.send(action)
        step = envs.recv()
        returns = np.where(running, step.episode_return, returns)
        lengths = np.where(running, step.episode_length, lengths)
        game_frames = np.where(running, step.episode_frames, game_frames)
        if running[0]:
            frames.append(step.frame[0])
        running = running & ~step.ended
    arrays: tuple[Any, ...] = (returns, lengths, running, {"frames": game_frames.astype(np.float32)})
    return Episodes(*arrays), np.stack(frames)
