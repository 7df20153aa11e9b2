"""Whole episodes, side by side, of one player or of two players against each other.

Each of N environments plays its first episode and stops. The stream of `base`, which resets, would favour short ones.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from purejax_sc.envs import base
from purejax_sc.types import Array, Env, Key, Model, Observation, Params, Tree

# (params, encodings e [N, ...], legal bool [N, A], key) -> action int32 [N]
Choose = Callable[[Params, Array, Array, Key], Array]

MAX_STEPS = 10_000  # limit for games between players, longer than any game


class Player(NamedTuple):
    """A policy in N environments at once.

    init: (N) -> memory, a tree of [N, ...].
    act:  (environment states [N, ...], Observation [N, ...], memory, key) -> (action int32 [N], memory), at every step.
          When the other player is to move, the action is ignored.
    """

    init: Callable[[int], Tree]
    act: Callable[[Tree, Observation, Tree, Key], tuple[Array, Tree]]


class Episodes(NamedTuple):
    """The first episode of each of N environments.

    episode_return: float32 [N] undiscounted, to the first player given.
    length:         int32 [N] steps of all players.
    running:        bool [N] the episode has not ended: it was cut, or goes on.
    metrics:        float32 [N] `Step.metrics` of the last step.
    """

    episode_return: Array
    length: Array
    running: Array
    metrics: dict[str, Array]


class PlayState(NamedTuple):
    """N environments between two steps. env: tree of [N, ...].   obs: Observation [N, ...] to act on.

    player:      int32 [N] whose turn it is, 0 for the side that moved first in this episode.
    moves_first: bool [N] the first player given is that side.   memories: of the players.
    """

    env: Tree
    obs: Observation
    player: Array
    moves_first: Array
    memories: tuple[Tree, ...]
    episodes: Episodes
    key: Key


def encode(model: Model, params: Params, obs: Observation, memory: Tree) -> tuple[Array, Tree]:
    """Encode observations [N, ...] of one moment. Return e [N, ...] and the next memory."""
    e, memory = model.encode(params.encoder, jax.tree.map(lambda x: x[None], obs), memory)
    return e[0], memory


def policy_player(model: Model, choose: Choose, params: Params) -> Player:
    """Return the agent as a player that chooses by the encoding of its observation."""

    def act(state: Tree, obs: Observation, memory: Tree, key: Key) -> tuple[Array, Tree]:
        e, memory = encode(model, params, obs, memory)
        return choose(params, e, obs.legal, key), memory

    return Player(model.initial_carry, act)


def uniform() -> Player:
    """A player that draws each legal action with the same probability."""

    def act(state: Tree, obs: Observation, memory: Tree, key: Key) -> tuple[Array, Tree]:
        return jax.random.categorical(key, jnp.where(obs.legal, 0.0, -jnp.inf)), memory

    return Player(lambda num: (), act)


def after_opening(player: Player, num_moves: int) -> Player:
    """The same player, after `num_moves` uniformly random moves of both sides together."""
    opener = uniform()

    def act(state: Tree, obs: Observation, memory: tuple[Array, Tree], key: Key) -> tuple[Array, Tree]:
        count, inner = memory
        key_opening, key_player = jax.random.split(key)
        action, inner = player.act(state, obs, inner, key_player)
        opening, _ = opener.act(state, obs, (), key_opening)
        return jnp.where(count < num_moves, opening, action), (count + 1, inner)

    return Player(lambda num: (jnp.zeros(num, jnp.int32), player.init(num)), act)


def play(env: Env, players: tuple[Player, ...], key: Key, num_episodes: int, max_steps: int) -> Episodes:
    """Play episodes until all have ended or reach `max_steps`. Of two players, each moves first in every other one."""

    def unfinished(state: PlayState) -> Array:
        return jnp.any(state.episodes.running & (state.episodes.length < max_steps))

    state = start(env, players, key, num_episodes)
    return jax.lax.while_loop(unfinished, lambda state: advance(env, players, state), state).episodes


def start(env: Env, players: tuple[Player, ...], key: Key, num_episodes: int) -> PlayState:
    """Reset `num_episodes` = N environments."""
    assert len(players) == 1 or env.spec.two_player
    key_env, key_play = jax.random.split(key)
    driver = base.init(env, key_env, num_episodes)
    shapes = jax.eval_shape(env.init, key_env, driver.shared)[1].metrics
    metrics = {name: jnp.zeros(num_episodes, x.dtype) for name, x in shapes.items()}
    return PlayState(
        env=driver.env,
        obs=driver.obs,
        player=jnp.zeros(num_episodes, jnp.int32),
        moves_first=jnp.arange(num_episodes) % 2 == 0,
        memories=tuple(player.init(num_episodes) for player in players),
        episodes=Episodes(driver.episode_return, driver.episode_length, jnp.ones(num_episodes, bool), metrics),
        key=key_play,
    )


def advance(env: Env, players: tuple[Player, ...], state: PlayState) -> PlayState:
    """Step every environment once, without resets: steps beyond the end of an episode do not count."""
    key_next, key_env, *keys_act = jax.random.split(state.key, 2 + len(players))
    asked = zip(players, state.memories, keys_act, strict=True)
    chosen, memories = zip(*(x.act(state.env, state.obs, memory, key) for x, memory, key in asked), strict=True)
    mine = jnp.ones_like(state.moves_first)
    if len(players) == 2:
        mine = (state.player == 0) == state.moves_first
    action = jnp.where(mine, chosen[0], chosen[-1]).astype(jnp.int32)
    env_state, step = jax.vmap(env.step)(jax.random.split(key_env, len(action)), state.env, action)
    before = state.episodes
    reward = jnp.where(mine, step.reward, -step.reward)
    episodes = Episodes(
        episode_return=before.episode_return + jnp.where(before.running, reward, 0.0),
        length=before.length + before.running.astype(jnp.int32),
        running=before.running & (step.discount != 0.0) & ~step.truncated,
        metrics=jax.tree.map(lambda old, new: jnp.where(before.running, new, old), before.metrics, step.metrics),
    )
    obs = base.observe(step, action)
    return PlayState(env_state, obs, step.player, state.moves_first, tuple(memories), episodes, key_next)
