"""Environments: the protocol, the stream that the driver makes of it, and what names and options are refused."""

import functools
import sys

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnax.environments import spaces
from helpers import probe_envs
from helpers.configs import env_names

from purejax_sc.config import Config, ConfigError, EnvOptions
from purejax_sc.envs import base, garnet, make_env
from purejax_sc.envs.garnet import sample_garnet
from purejax_sc.envs.gymnax import from_gymnax, names
from purejax_sc.types import Env, EnvSpec, Step


def make(name: str, **options) -> Env:
    return make_env(Config(env=name, env_options=EnvOptions(**options)))


def layout(tree):
    """What jit compiles for: structure, shapes, dtypes and weak types."""
    return jax.tree.map(lambda x: (x.shape, str(x.dtype), x.weak_type), jax.eval_shape(lambda: tree))


start = jax.jit(base.init, static_argnums=(0, 2))


@functools.partial(jax.jit, static_argnums=0)
def rollout(env, state, key, actions):
    """Driver steps through actions [T, B] -> (state, (state after each step, reward, discount, stats))."""

    def body(state, x):
        key, action = x
        state, reward, discount, stats = base.step(env, key, state, action)
        return state, (state, reward, discount, stats)

    return jax.lax.scan(body, state, (jax.random.split(key, len(actions)), actions))


def played(env, actions):
    """A fresh start, and what `rollout` gives for actions [T, B]."""
    state = start(env, jax.random.key(0), actions.shape[1])
    return jax.device_get((state, *rollout(env, state, jax.random.key(1), jnp.asarray(actions, jnp.int32))[1]))


# --- Protocol ---


LONG = {"pgx/animal_shogi", "pgx/chess", "pgx/gardner_chess", "pgx/shogi"}  # seconds to import and trace


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=pytest.mark.integration) if x in LONG else x for x in env_names()]
)
def test_every_environment_keeps_its_layout_from_init_to_step(name):
    env, key = make(name), jax.random.key(0)
    state, shown = jax.eval_shape(lambda key: env.init(key, env.make_shared(key)), key)
    stepped_state, stepped = jax.eval_shape(env.step, key, state, jax.ShapeDtypeStruct((), jnp.int32))
    for before, after in ((state, stepped_state), (shown, stepped)):
        assert jax.tree.structure(before) == jax.tree.structure(after)
        for x, y in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
            assert (x.shape, x.dtype, x.weak_type) == (y.shape, y.dtype, y.weak_type)
            assert not x.weak_type
    assert (shown.obs.shape, shown.obs.dtype) == (env.spec.obs_shape, env.spec.obs_dtype)
    assert (shown.legal.shape, shown.legal.dtype) == ((env.spec.num_actions,), bool)
    dtypes = [x.dtype for x in (shown.reward, shown.discount, shown.truncated, shown.player)]
    assert dtypes == [jnp.float32, jnp.float32, bool, jnp.int32]
    assert all((x.shape, x.dtype) == ((), jnp.float32) for x in shown.metrics.values())


def test_driver_runs_under_jit_scan_and_vmap_and_compiles_once():
    env = make("gymnax/MountainCar-v0")  # its reset state is weakly typed in gymnax
    num_seeds, num_envs, num_steps = 2, 3, 8
    state = jax.jit(jax.vmap(lambda key: base.init(env, key, num_envs)))(jax.random.split(jax.random.key(0), num_seeds))
    before = layout(state)
    traced = []

    @jax.jit
    @jax.vmap
    def run(state, key, actions):
        traced.append(env)
        return rollout(env, state, key, actions)

    for seed in range(2):
        key_env, key_action = jax.random.split(jax.random.key(seed))
        actions = jax.random.randint(key_action, (num_seeds, num_steps, num_envs), 0, env.spec.num_actions)
        state, (states, reward, discount, stats) = run(state, jax.random.split(key_env, num_seeds), actions)
    assert layout(state) == before
    assert len(traced) == 1
    assert states.obs.frame.shape == (num_seeds, num_steps, num_envs, *env.spec.obs_shape)
    assert states.obs.frame.dtype == env.spec.obs_dtype
    assert reward.shape == discount.shape == (num_seeds, num_steps, num_envs)
    assert stats.count.shape == (num_seeds, num_steps)


def test_rows_differ_and_a_key_fixes_the_run():
    env = make("gymnax/Catch-bsuite")
    actions = jnp.ones((12, 16), jnp.int32)
    run = jax.jit(lambda key: rollout(env, base.init(env, key, 16), key, actions)[1][0].obs.frame)
    frames = run(jax.random.key(0))
    assert len(np.unique(np.asarray(frames[0]).reshape(16, -1), axis=0)) > 1  # the ball starts in 5 columns
    np.testing.assert_array_equal(frames, run(jax.random.key(0)))
    assert not np.array_equal(frames, run(jax.random.key(1)))


# --- The stream ---


def test_truncation_shows_the_final_observation_and_then_a_dead_slot():
    # One row that counts to 3, with action 0 throughout, and its reward is the count reached.
    state, states, reward, discount, stats = played(probe_envs.counting(limit=3), np.zeros((6, 1)))
    stream = jax.tree.map(lambda x, xs: np.concatenate([x[None], xs])[:, 0], state.obs, states.obs)
    # The step from 2 to 3 keeps discount 1 and shows 3; at 3 the action is ignored and the row resets.
    np.testing.assert_array_equal(stream.frame[:, 0], [0, 1, 2, 3, 0, 1, 2])
    np.testing.assert_array_equal(stream.first, [1, 0, 0, 0, 1, 0, 0])
    np.testing.assert_array_equal(stream.valid, [1, 1, 1, 0, 1, 1, 1])
    np.testing.assert_array_equal(stream.prev_reward, [0, 1, 2, 3, 0, 1, 2])
    np.testing.assert_array_equal(reward[:, 0], [1, 2, 3, 0, 1, 2])
    np.testing.assert_array_equal(discount[:, 0], [1, 1, 1, 0, 1, 1])
    np.testing.assert_array_equal(stats.count, [0, 0, 1, 0, 0, 0])
    np.testing.assert_array_equal(stats.return_sum, [0, 0, 6, 0, 0, 0])  # 1 + 2 + 3
    np.testing.assert_array_equal(stats.length_sum, [0, 0, 3, 0, 0, 0])


def test_stream_and_statistics_match_a_slow_replay():
    limit, num_envs, num_steps = 4, 3, 60
    env = probe_envs.counting(limit)
    actions = np.random.default_rng(2).random((num_steps, num_envs)) < 0.25
    _, states, reward, discount, stats = played(env, actions)
    expected = np.zeros((num_steps, 3))
    for b in range(num_envs):
        count, total, dead = 0, 0, False
        for t in range(num_steps):
            if dead:
                count, total, dead = 0, 0, False
                assert (reward[t, b], discount[t, b], states.obs.first[t, b]) == (0, 0, True)
                continue
            count, total = count + 1, total + count + 1
            terminated = bool(actions[t, b] == 1)
            dead = not terminated and count == limit
            assert (reward[t, b], discount[t, b]) == (count, 1 - terminated)
            if terminated or dead:
                expected[t] += 1, total, count
            if terminated:
                count, total = 0, 0
            assert (states.obs.frame[t, b, 0], states.obs.valid[t, b]) == (count, not dead)
    np.testing.assert_array_equal(np.stack(stats[:3], axis=1), expected)


def test_a_changed_mover_passes_through_and_rewards_are_summed_for_the_mover():
    # Two steps of a two-player game: discount -1, then the mover loses 1.
    spec = EnvSpec(num_actions=2, obs_shape=(1,), obs_dtype=jnp.dtype(jnp.float32), two_player=True)

    def show(count):
        last = count == 2
        discount = jnp.where(last, 0.0, -1.0).astype(jnp.float32)
        reward = jnp.where(last, -1.0, 0.0).astype(jnp.float32)
        return Step(jnp.zeros(1), jnp.array([True, False]), reward, discount, jnp.array(False), count % 2, {})

    zero = jnp.zeros((), jnp.int32)
    env = Env(spec, lambda key, pool: (zero, show(zero)), lambda key, count, action: (count + 1, show(count + 1)))
    _, states, reward, discount, stats = played(env, np.zeros((2, 1)))
    np.testing.assert_array_equal(discount[:, 0], [-1, 0])
    np.testing.assert_array_equal(reward[:, 0], [0, -1])
    np.testing.assert_array_equal(stats.return_sum, [0, -1])
    np.testing.assert_array_equal(states.obs.legal[1, 0], [True, False])


# --- gymnax ---


@jax.numpy_dtype_promotion("standard")  # for gymnax itself
def test_cartpole_agrees_with_gymnax():
    env, (theirs, params) = make("gymnax/CartPole-v1"), gymnax.make("CartPole-v1")
    step, key = jax.jit(env.step), jax.random.key(3)
    state, shown = env.init(key, ())
    obs, their_state = theirs.reset(key, params)
    np.testing.assert_array_equal(shown.obs, obs)
    action, length, terminated = jnp.int32(1), 0, False
    while not terminated:  # always the same push: the pole falls
        state, shown = step(key, state, action)
        _, their_state, reward, terminated, truncated, info = theirs.step(key, their_state, action, params)
        np.testing.assert_allclose(shown.obs, info["final_observation"], rtol=1e-5)  # XLA fuses the two differently
        assert shown.reward == reward == 1
        assert (shown.discount == 0) == terminated
        assert shown.truncated == truncated
        length += 1
    assert 5 < length < 20


def test_time_limit_truncates_and_does_not_terminate():
    with base.lenient_promotion():
        environment, params = gymnax.make("CartPole-v1")
    env = from_gymnax(environment, params.replace(max_steps_in_episode=2))
    _, states, _, discount, _ = played(env, np.zeros((4, 1)))
    np.testing.assert_array_equal(discount[:, 0], [1, 1, 0, 1])
    np.testing.assert_array_equal(states.obs.valid[:, 0], [True, False, True, True])


def test_deep_sea_terminates_after_size_steps_though_gymnax_says_both():
    env = make("gymnax/DeepSea-bsuite")
    assert env.spec.obs_shape == (8, 8)
    _, states, _, discount, stats = played(env, np.zeros((16, 1)))
    np.testing.assert_array_equal(discount[:, 0], [*[1] * 7, 0] * 2)
    assert states.obs.valid.all()
    np.testing.assert_array_equal(stats.length_sum, [*[0] * 7, 8] * 2)


@jax.numpy_dtype_promotion("standard")
def test_a_bandit_pays_every_arm_its_own_reward():
    env, key = make("gymnax/SimpleBandit-bsuite"), jax.random.key(0)
    state, _ = env.init(key, ())
    rewards = [float(env.step(key, state, jnp.int32(arm))[1].reward) for arm in range(11)]
    np.testing.assert_allclose(sorted(rewards), np.linspace(0, 1, 11), rtol=1e-6)


def test_all_of_gymnax_is_listed_and_what_has_discrete_actions_runs():
    registered = [name for name in gymnax.registered_envs if not name.startswith("MNIST")]  # that one downloads
    discrete = []
    for name in registered:
        with base.lenient_promotion():
            environment, params = gymnax.make(name)
        if isinstance(environment.action_space(params), spaces.Discrete):
            discrete.append(name)
    assert list(names()) == [f"gymnax/{name}" for name in registered]
    assert [name for name in env_names() if name.startswith("gymnax/")] == [f"gymnax/{name}" for name in discrete]


# --- Garnet ---


def test_garnet_has_uniformly_many_successors_and_normal_rewards():
    P, R = jax.jit(jax.vmap(lambda key: sample_garnet(key, 5, 2)))(jax.random.split(jax.random.key(0), 2000))
    P, R = np.asarray(P), np.asarray(R)
    np.testing.assert_allclose(P.sum(-1), 1, rtol=1e-6)
    np.testing.assert_array_equal(P > 0, np.repeat(P[:, :, :1] > 0, 2, axis=2))  # shared by the actions
    successors = np.asarray(P[:, :, 0] > 0)
    counts = successors.sum(-1)
    shares = np.bincount(counts.ravel(), minlength=6)[1:] / counts.size
    np.testing.assert_allclose(shares, 0.2, atol=0.02)  # 10,000 draws: standard error 0.004
    np.testing.assert_allclose(successors.mean((0, 1)), 3 / 5, atol=0.02)  # each state is as likely, mean count 3
    np.testing.assert_allclose((R.mean(), R.std()), (0, 1), atol=0.03)
    assert np.isfinite(P).all()


def test_garnet_steps_follow_its_transitions_and_rewards():
    env, num = make("garnet", mdp_seed=1), 4000
    P, R = jax.device_get(jax.jit(sample_garnet)(jax.random.key(1)))
    steps = jax.vmap(env.step, (0, None, None))

    @jax.jit
    def run(key, keys):
        state, _ = env.init(key, ())
        return state.s, steps(keys, state, jnp.int32(1))[1]

    s, shown = jax.device_get(run(jax.random.key(0), jax.random.split(jax.random.key(2), num)))
    np.testing.assert_allclose(shown.obs.mean(0), P[s, 1], atol=0.03)  # standard error below 0.008
    np.testing.assert_array_equal(shown.reward, np.full(num, R[s, 1]))


def test_garnet_never_terminates_and_is_truncated():
    P, R = jax.jit(sample_garnet)(jax.random.key(0))
    env = garnet.adapt(P, R, max_steps=3)
    _, states, _, discount, _ = played(env, np.zeros((5, 2)))
    np.testing.assert_array_equal(discount[:, 0], [1, 1, 1, 0, 1])
    np.testing.assert_array_equal(states.obs.valid[:, 1], [True, True, False, True, True])


# --- What is refused ---


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("gymnax/Breakout", {}, ["unknown env 'gymnax/Breakout'", "gymnax/Breakout-MinAtar"]),
        ("minatar/asterix", {}, ["gymnax/Asterix-MinAtar"]),
        ("Garnett", {}, ["garnet"]),
        ("zzz", {}, ["garnet", "docs/configurations.md"]),  # nothing is near
        ("gymnax/Pendulum-v1", {}, ["Pendulum-v1 has continuous actions, but the agent needs discrete ones"]),
        ("pgx/go_4x4", {}, ["unknown env 'pgx/go_4x4'", "pgx/go_"]),
        ("pgx/backgammon", {}, ["unknown env 'pgx/backgammon'"]),  # a player moves several times in a row
        ("pgx/kuhn_poker", {}, ["unknown env 'pgx/kuhn_poker'"]),  # cards are hidden
        ("atari/Pong", {}, ["runs on the host"]),
        ("gymnax/CartPole-v1", {"mdp_seed": 5}, ["env_options.mdp_seed=5 has no effect", "gymnax/CartPole-v1"]),
    ],
)
def test_what_cannot_run_is_refused_in_one_line(name, options, words):
    with pytest.raises(ConfigError) as caught:
        make(name, **options)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


@pytest.mark.parametrize(("package", "name"), [("gymnax", "gymnax/Catch-bsuite"), ("pgx", "pgx/tic_tac_toe")])
def test_a_missing_package_is_named_with_its_cure(monkeypatch, package, name):
    make(name)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"purejax_sc.envs.{package}")
    with pytest.raises(ConfigError, match=f"pip install {package}"):
        make(name)
