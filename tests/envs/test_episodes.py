"""Episodes of given players: whose turn and whose return it is, what players see, and players of known strength."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from helpers import game_references, probe_envs

from purejax_sc.config import Config
from purejax_sc.envs import episodes, make_env
from purejax_sc.envs.episodes import Episodes, Player
from purejax_sc.types import Array, Env, EnvSpec, Observation, Step


class Ply(NamedTuple):
    """ply: int32, plies so far.   last: int32, how many end the episode."""

    ply: Array
    last: Array


def points(shortest: int, longest: int) -> Env:
    """Two players in turn choose 0 or 1, which is how many points they take from the other. The observation is the ply.

    The number of plies is drawn from `shortest` to `longest`. After the end it goes on, as if it had not ended.
    """
    spec = EnvSpec(num_actions=2, obs_shape=(1,), obs_dtype=jnp.dtype(jnp.float32), two_player=True)

    def show(state: Ply, reward: Array) -> Step:
        return Step(
            obs=state.ply.astype(jnp.float32)[None],
            legal=jnp.ones(2, bool),
            reward=reward.astype(jnp.float32),
            discount=jnp.where(state.ply == state.last, 0.0, -1.0).astype(jnp.float32),
            truncated=jnp.array(False),
            player=state.ply % 2,
            metrics={"left": (state.last - state.ply).astype(jnp.float32)},
        )

    def init(key, pool):
        state = Ply(jnp.zeros((), jnp.int32), jax.random.randint(key, (), shortest, longest + 1))
        return state, show(state, jnp.zeros(()))

    def step(key, state, action):
        state = state._replace(ply=state.ply + 1)
        return state, show(state, action)

    return Env(spec, init, step)


def always(action: int) -> Player:
    return Player(lambda num: (), lambda state, obs, memory, key: (jnp.full(obs.first.shape, action), memory))


def results(env: Env, *players: Player, num: int, max_steps: int = 100) -> Episodes:
    return jax.device_get(jax.jit(lambda key: episodes.play(env, players, key, num, max_steps))(jax.random.key(0)))


# --- Whose turn it is, and whose return ---


def test_the_return_is_that_of_the_first_player_given():
    # of three plies, the one who takes a point each time has two, one, two, one
    env = points(3, 3)
    winner, loser = always(1), always(0)
    np.testing.assert_array_equal(results(env, winner, loser, num=4).episode_return, [2, 1, 2, 1])
    np.testing.assert_array_equal(results(env, loser, winner, num=4).episode_return, [-1, -2, -1, -2])


def test_the_player_who_is_not_on_turn_has_no_influence():
    def meddler(seat: int) -> Player:
        """Takes a point when on turn, and else does what nobody may do."""

        def act(state, obs, memory, key):
            moves_first = jnp.arange(len(obs.first)) % 2 == seat
            on_turn = (obs.frame[:, 0] % 2 == 0) == moves_first
            return jnp.where(on_turn, 1, 99), memory

        return Player(lambda num: (), act)

    env = points(2, 5)
    expected = results(env, always(1), always(1), num=16)
    for players in ((meddler(0), always(1)), (always(1), meddler(1)), (meddler(0), meddler(1))):
        jax.tree.map(np.testing.assert_array_equal, results(env, *players, num=16), expected)


def test_nothing_counts_after_the_end_of_an_episode():
    played = results(points(1, 6), always(1), always(0), num=64)
    assert set(played.length) == {1, 2, 3, 4, 5, 6}
    first = np.arange(64) % 2 == 0  # has one ply more where their number is odd
    np.testing.assert_array_equal(played.episode_return, (played.length + first) // 2)
    np.testing.assert_array_equal(played.metrics["left"], 0)
    assert not played.running.any()


def test_episodes_that_are_cut_are_still_running():
    played = results(points(1, 6), always(1), always(0), num=64, max_steps=3)
    left = played.metrics["left"]
    assert set(left) == {0, 1, 2, 3}
    np.testing.assert_array_equal(played.running, left > 0)
    np.testing.assert_array_equal(played.length[played.running], 3)
    assert not results(probe_envs.counting(3), always(0), num=4, max_steps=3).running.any()  # it ends at the limit


def test_one_player_makes_all_moves_and_has_all_rewards():
    # rewards 1 + 2 + 3, and then the environment truncates; or 1 + 2, and the match cuts
    env = probe_envs.counting(limit=3)
    played = results(env, always(0), num=4)
    np.testing.assert_array_equal(played.episode_return, 6)
    np.testing.assert_array_equal(played.length, 3)
    assert not played.running.any()
    played = results(env, always(0), num=4, max_steps=2)
    np.testing.assert_array_equal(played.episode_return, 3)
    assert played.running.all()
    played = results(env, always(1), num=4)  # terminates at once
    np.testing.assert_array_equal((played.episode_return, played.length), 1)


def test_a_key_fixes_the_episodes():
    run = jax.jit(lambda key: episodes.play(points(1, 6), (episodes.uniform(), episodes.uniform()), key, 50, 6))
    one, other = run(jax.random.key(1)), run(jax.random.key(2))
    jax.tree.map(np.testing.assert_array_equal, run(jax.random.key(1)), one)
    assert (one.length != other.length).any()
    assert (one.episode_return != other.episode_return).any()


# --- What players see ---


def test_players_remember_every_position_in_order_on_turn_or_not():
    num, plies = 4, 5

    def recorder(action: int) -> Player:
        """Its memory: how many observations it saw [N], and these [N, plies, ...]."""

        def init(num):
            seen = jnp.full((num, plies), -1.0)
            names = ("frame", "first", "valid", "action", "reward", "ply", "chosen")
            return jnp.zeros(num, jnp.int32), dict.fromkeys(names, seen)

        def act(state, obs: Observation, memory, key):
            count, seen = memory
            shown = {"frame": obs.frame[:, 0], "first": obs.first, "valid": obs.valid, "ply": state.ply}
            shown |= {"action": obs.prev_action, "reward": obs.prev_reward, "chosen": jnp.full(num, action)}
            at = jnp.arange(num)
            seen = {name: value.at[at, count].set(shown[name].astype(jnp.float32)) for name, value in seen.items()}
            return shown["chosen"], (count + 1, seen)

        return Player(init, act)

    env, players = points(plies, plies), (recorder(1), recorder(0))
    state = jax.jit(lambda key: episodes.start(env, players, key, num))(jax.random.key(0))
    advance = jax.jit(lambda state: episodes.advance(env, players, state))
    for _ in range(plies):
        state = advance(state)
    # 1 is played at the plies of the first player given: 0, 2, 4 where it moves first, else 1 and 3
    played = np.array([[1, 0, 1, 0], [0, 1, 0, 1]] * 2)
    for action, (count, seen) in zip((1, 0), state.memories, strict=True):
        np.testing.assert_array_equal(count, plies)
        for name in ("frame", "ply"):
            np.testing.assert_array_equal(seen[name], [range(plies)] * num)
        np.testing.assert_array_equal(seen["valid"], 1)
        np.testing.assert_array_equal(seen["first"], [[1, 0, 0, 0, 0]] * num)
        np.testing.assert_array_equal(seen["action"], np.pad(played, ((0, 0), (1, 0))))
        np.testing.assert_array_equal(seen["reward"], seen["action"])
        np.testing.assert_array_equal(seen["chosen"], action)  # each has its own memory


def observation(frame, legal) -> Observation:
    """N observations at the start of an episode."""
    num = len(frame)
    zeros = jnp.zeros(num)
    return Observation(frame, legal, zeros.astype(jnp.int32), zeros, jnp.ones(num, bool), jnp.ones(num, bool))


def test_uniform_plays_each_legal_action_equally_often_and_no_other():
    num = 6_000
    legal = jnp.tile(jnp.array([[True, False, True, True, False]]), (num, 1))
    action, _ = episodes.uniform().act((), observation(jnp.zeros((num, 1)), legal), (), jax.random.key(0))
    shares = np.bincount(action, minlength=5) / num
    np.testing.assert_array_equal(shares[[1, 4]], 0)
    np.testing.assert_allclose(shares[[0, 2, 3]], 1 / 3, atol=0.025)  # standard error 0.006


# --- Players of known strength ---


def test_perfect_tic_tac_toe_never_loses():
    tic_tac_toe, perfect = make_env(Config(env="pgx/tic_tac_toe")), game_references.minimax_tic_tac_toe()
    played = results(tic_tac_toe, perfect, episodes.uniform(), num=1_000)
    assert played.episode_return.min() == 0
    assert played.episode_return.mean() > 0.5
    turned = results(tic_tac_toe, episodes.uniform(), perfect, num=1_000)
    assert turned.episode_return.max() == 0
    assert turned.episode_return.mean() < -0.5
