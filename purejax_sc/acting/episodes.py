"""Whole episodes of given players, side by side: an agent alone, or two players of a game against each other.

Each of N environments plays its first episode and stops. Episodes from a stream that resets would favour short ones.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from purejax_sc.agent.search import NO_SEARCH, SearchOptions, make_search
from purejax_sc.agent.transforms import masked_logits
from purejax_sc.config import Config
from purejax_sc.envs import base
from purejax_sc.types import Array, Env, EnvSpec, Key, Model, Observation, Params, Tree

MAX_STEPS = 10_000  # of a game between players: more than any game lasts

# (params, encodings e [N, ...], legal bool [N, A], key) -> action int32 [N]
Choose = Callable[[Params, Array, Array, Key], Array]


class Player(NamedTuple):
    """Who acts in N environments at once.

    init: (N) -> memory, a tree of [N, ...].
    act:  (environment states [N, ...], Observation [N, ...], memory, key) -> (action int32 [N], memory). It is asked at
          every step, also where the other one is to move: it may remember what it sees, and its action has no effect.
    """

    init: Callable[[int], Tree]
    act: Callable[[Tree, Observation, Tree, Key], tuple[Array, Tree]]


class Episodes(NamedTuple):
    """The first episode of each of N environments.

    episode_return: float32 [N] undiscounted, to the first player given.
    length:         int32 [N] steps of all players.
    running:        bool [N] the episode has not ended: more of it may follow, or it was cut.
    metrics:        float32 [N] what the environment's `Step.metrics` said last.
    """

    episode_return: Array
    length: Array
    running: Array
    metrics: dict[str, Array]


class PlayState(NamedTuple):
    """N environments between two steps. env: tree of [N, ...].   obs: Observation [N, ...] to act on.

    moves_first: bool [N] of the first player given.   memories: of the players.
    player: int32 [N] whose turn it is, 0 for the one who moved first in this episode.
    """

    env: Tree
    obs: Observation
    player: Array
    moves_first: Array
    memories: tuple[Tree, ...]
    episodes: Episodes
    key: Key


def agent(model: Model, choose: Choose, params: Params) -> Player:
    """A network that chooses by its encoding of what it sees."""

    def act(state: Tree, obs: Observation, memory: Tree, key: Key) -> tuple[Array, Tree]:
        e, memory = model.encode(params.encoder, jax.tree.map(lambda x: x[None], obs), memory)
        return choose(params, e[0], obs.legal, key), memory

    return Player(model.initial_carry, act)


def uniform() -> Player:
    """Any legal action, each as likely as the others."""

    def act(state: Tree, obs: Observation, memory: Tree, key: Key) -> tuple[Array, Tree]:
        return jax.random.categorical(key, masked_logits(jnp.zeros(obs.legal.shape), obs.legal)), memory

    return Player(lambda num: (), act)


def after_opening(player: Player, num_moves: int) -> Player:
    """Like `player`, but so many first moves of a game, of both sides together, are drawn uniformly."""
    opener = uniform()

    def act(state: Tree, obs: Observation, memory: tuple[Array, Tree], key: Key) -> tuple[Array, Tree]:
        count, inner = memory
        key_opening, key_player = jax.random.split(key)
        action, inner = player.act(state, obs, inner, key_player)
        opening, _ = opener.act(state, obs, (), key_opening)
        return jnp.where(count < num_moves, opening, action), (count + 1, inner)

    return Player(lambda num: (jnp.zeros(num, jnp.int32), player.init(num)), act)


def make_choices(
    config: Config, model: Model, spec: EnvSpec, search: SearchOptions = NO_SEARCH, temperature: float = 1.0
) -> dict[str, Choose]:
    """The ways to act of an agent of `config`, by name: `greedy`, `sampled` and, with simulations, `search`.

    temperature: of the samples, which are drawn from pi^(1 / temperature); above 0.
    """

    def logits(params: Params, e: Array, legal: Array) -> Array:
        return masked_logits(model.root_policy(params.root_policy, e), legal)

    choices: dict[str, Choose] = {
        "greedy": lambda params, e, legal, key: jnp.argmax(logits(params, e, legal), axis=-1),
        "sampled": lambda params, e, legal, key: jax.random.categorical(key, logits(params, e, legal) / temperature),
    }
    if search.simulations:
        look, discount = make_search(model, spec, search, config.muesli.unroll), config.hyper.discount
        choices["search"] = lambda params, e, legal, key: look(params, e, legal, key, discount).action
    return choices


def play(env: Env, players: tuple[Player, ...], key: Key, num_episodes: int, max_steps: int) -> Episodes:
    """Play `num_episodes` episodes side by side, until all have ended or reach `max_steps`.

    players: one, who makes all moves; or two, each of whom moves first in every other episode.
    """

    def unfinished(state: PlayState) -> Array:
        return jnp.any(state.episodes.running & (state.episodes.length < max_steps))

    state = start(env, players, key, num_episodes)
    return jax.lax.while_loop(unfinished, lambda state: advance(env, players, state), state).episodes


def start(env: Env, players: tuple[Player, ...], key: Key, num_episodes: int) -> PlayState:
    """The beginning of `num_episodes` = N episodes."""
    assert len(players) == 1 or env.spec.two_player
    key_env, key_play = jax.random.split(key)
    driver = base.init(env, key_env, num_episodes)
    shown = jax.eval_shape(env.init, key_env, driver.shared)[1].metrics
    metrics = {name: jnp.zeros(num_episodes, x.dtype) for name, x in shown.items()}
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
    """One step in every environment.

    There is no reset: an environment whose episode has ended is stepped on, and nothing of that counts.
    """
    key_next, key_env, *keys_act = jax.random.split(state.key, 2 + len(players))
    asked = zip(players, state.memories, keys_act, strict=True)
    chosen, memories = zip(*(x.act(state.env, state.obs, memory, key) for x, memory, key in asked), strict=True)
    mine = jnp.ones_like(state.moves_first)
    if len(players) == 2:
        mine = (state.player == 0) == state.moves_first
    action = jnp.where(mine, chosen[0], chosen[-1]).astype(jnp.int32)
    num_episodes = action.shape[0]
    env_state, step = jax.vmap(env.step)(jax.random.split(key_env, num_episodes), state.env, action)
    before = state.episodes
    reward = jnp.where(mine, step.reward, -step.reward)
    episodes = Episodes(
        episode_return=before.episode_return + jnp.where(before.running, reward, 0.0),
        length=before.length + before.running.astype(jnp.int32),
        running=before.running & (step.discount != 0.0) & ~step.truncated,
        metrics=jax.tree.map(lambda old, new: jnp.where(before.running, new, old), before.metrics, step.metrics),
    )
    return PlayState(
        env_state, base.observe(step, action), step.player, state.moves_first, tuple(memories), episodes, key_next
    )
