"""The promises of the on-device driver: seeds, hyper-parameters, probes, the replay."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import probe_envs
from helpers.configs import assert_close, small

from purejax_sc import networks
from purejax_sc.agent.consistency import UPDATES
from purejax_sc.config import ConfigError
from purejax_sc.envs import base, make_env
from purejax_sc.training.anakin import generate_unroll, make_chunk, make_train, make_trainer
from purejax_sc.training.sharding import over_seeds
from purejax_sc.training.train_state import as_arrays, join
from purejax_sc.types import Observation, Sequence

# One configuration for most tests, so that they share its programs. Its replay is large beside all else of a run.
LARGE = {"replay": {"capacity": 100_000}, "muesli": {"unroll": 1}}
CONFIG = small(**LARGE, sc={"unroll": 2})
BASELINE = small(**LARGE, sc={"update": "none"})


@functools.cache
def chunked(config):
    """init, and the compiled chunk, which donates its state: one program for all tests of a configuration."""
    trainer = make_trainer(config)
    shapes = jax.eval_shape(trainer.init, jax.random.key(0))
    chunk = jax.jit(make_chunk(trainer), donate_argnums=0).lower(shapes, config.hyper, 1)
    return jax.jit(trainer.init), chunk.compile()


def trained(config, seed=0, **values):
    """State and mean metrics of a single run, with other values of hyper-parameters."""
    init, chunk = chunked(config)
    return chunk(init(jax.random.key(seed)), config.hyper._replace(**values), config.num_iterations)


ROWS = [{"seed": 0}, {"seed": 1}, {"learning_rate": 1e-3}, {"sc_weight": 0.0}]


@functools.cache
def swept():
    """Parameters of runs side by side, one of each row of `ROWS`; the update is a number of the program, too."""
    hypers = [CONFIG.hyper._replace(**{k: v for k, v in row.items() if k != "seed"}) for row in ROWS]
    hypers = [as_arrays(hyper._replace(gates=UPDATES[CONFIG.sc.update])) for hyper in hypers]
    keys = jax.vmap(jax.random.key)(jnp.array([row.get("seed", 0) for row in ROWS]))
    train = make_train(CONFIG)
    run = jax.jit(over_seeds(lambda row: train(*row)[0].learner.params, "vmap"))
    return run((keys, jax.tree.map(lambda *x: jnp.stack(x), *hypers)))


@pytest.mark.parametrize("row", [1, 2, 3], ids=lambda row: str(ROWS[row]))
def test_row_i_of_a_sweep_over_seeds_hyper_parameters_and_updates_equals_the_single_run(row):
    config = BASELINE if ROWS[row] == {"sc_weight": 0.0} else CONFIG
    single = trained(config, **ROWS[row])[0].learner
    assert_close(jax.tree.map(lambda x: x[row], swept()), single.params, rtol=2e-3, atol=2e-5)


def test_sc_weight_zero_is_the_baseline_bit_for_bit():
    # As a single run, which is also what a sweep placed by `map` runs. Under `vmap` over seeds the compiler rounds the
    # batched products of the two programs differently, and they agree to the last digit or so.
    baseline, weightless, weighted = (
        trained(config, sc_weight=weight)[0].learner
        for config, weight in ((BASELINE, 0.25), (CONFIG, 0.0), (CONFIG, 0.25))
    )
    jax.tree.map(np.testing.assert_array_equal, weightless, baseline)
    assert not np.array_equal(*(x.params.encoder["params"]["torso"]["Dense_0"]["kernel"] for x in (weighted, baseline)))


def test_chunks_of_any_length_continue_one_run():
    init, chunk = chunked(CONFIG)
    state, first = chunk(init(jax.random.key(0)), CONFIG.hyper, 1)
    state, second = chunk(state, CONFIG.hyper, 3)
    whole, metrics = trained(CONFIG)
    assert CONFIG.num_iterations == 4
    jax.tree.map(np.testing.assert_array_equal, state.learner, whole.learner)
    np.testing.assert_allclose((first["loss"] + 3 * second["loss"]) / 4, metrics["loss"], rtol=1e-5)


@functools.cache
def two_updates_per_iteration():
    """A run of three iterations of eight environments that count their steps: configuration, state, metrics."""
    train = {"num_envs": 8, "batch_sequences": 12, "replay_share": 2 / 3, "env_steps": 96}
    config = small(train=train, sc={"update": "none"})
    return config, *jax.jit(make_train(config, probe_envs.counting(3)))(jax.random.key(0))


def test_every_fresh_sequence_is_used_once_when_an_iteration_holds_several_updates():
    config, state, metrics = two_updates_per_iteration()
    assert config.updates_per_iteration == 2
    assert state.learner.updates == config.num_updates == 6
    assert metrics["loss"].shape == (3,)


def test_the_ring_holds_what_was_acted_in_order():
    ring = two_updates_per_iteration()[1].replay
    assert ring.size == 24
    assert ring.cursor == 24
    obs = ring.data.obs
    assert obs.frame.shape[:2] == (64, 5)  # capacity 256 steps / 4 = 64 rows of T + 1 observations
    # Row i + 8 continues row i in the same environment: its first observation is row i's last.
    np.testing.assert_array_equal(obs.frame[8:24, 0], obs.frame[0:16, -1])
    np.testing.assert_array_equal(obs.first[8:24, 0], obs.first[0:16, -1])


def test_a_batch_without_replay_keeps_no_ring():
    config = small(train={"replay_share": 0.0, "batch_sequences": 4}, sc={"update": "none"})
    state, _ = jax.eval_shape(make_train(config), jax.random.key(0))
    assert state.replay == ()


def test_a_replay_that_no_device_can_hold_is_refused_with_its_size():
    with pytest.raises(ConfigError, match=r"takes [0-9.,]+ GiB, and the device has .*: lower replay.capacity"):
        make_trainer(small(replay={"capacity": 10**13}))


def test_the_update_does_not_copy_the_replay():
    init, chunk = chunked(CONFIG)
    shapes = jax.eval_shape(init, jax.random.key(0))
    analysis = chunk.memory_analysis()
    ring = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(shapes.replay.data))
    assert analysis.temp_size_in_bytes < 0.2 * ring
    assert analysis.alias_size_in_bytes > ring


PROBE = {
    "network": {"kind": "mlp", "width": 32, "head_width": 32},
    "train": {"env_steps": 8_000, "num_envs": 8, "sequence_length": 5, "batch_sequences": 16, "replay_share": 0.5},
    "replay": {"capacity": 2_000},
    "muesli": {"unroll": 2, "bins": 21, "value_max": 5.0, "num_action_samples": 0},
    "sc": {"update": "direct", "unroll": 2},
    "hyper": {"learning_rate": 3e-3, "discount": 0.5},
}


PROBES = {
    "constant reward": probe_envs.constant_reward(),
    "reward by observation": probe_envs.reward_by_observation(),
    "reward by action": probe_envs.reward_by_action(),
    "reward by both": probe_envs.reward_by_observation_and_action(),
    "delayed reward": probe_envs.delayed_reward(),
    "endless reward": probe_envs.endless_reward(5),
}


# Runs that are trained: each probe with the numbers of `PROBE`, and some with others. An SC weight of 0 is the
# baseline, bit for bit.
RUNS: dict[tuple[str, str], dict[str, float]] = {
    **{(probe, ""): {} for probe in PROBES},
    ("reward by action", "without SC"): {"sc_weight": 0.0},
    ("reward by both", "without policy gradient"): {"pg_weight": 0.0},
}


@functools.cache
def probe_training():
    """The configuration, and the learners and metrics of all `RUNS`, side by side in one program."""
    config = small(**PROBE)

    def train(number, hyper):
        state, metrics = make_train(config, probe_envs.one_of(tuple(PROBES.values()), number))(jax.random.key(0), hyper)
        return state.learner, metrics

    numbers = jnp.array([list(PROBES).index(probe) for probe, _ in RUNS])
    hypers = [as_arrays(config.hyper._replace(**values)) for values in RUNS.values()]
    return config, *jax.jit(jax.vmap(train))(numbers, jax.tree.map(lambda *x: jnp.stack(x), *hypers))


def learned(probe, setting=""):
    """A trained agent on a probe: its mean reward per episode at the end, and root values of given frames."""
    config, learners, metrics = probe_training()
    row = list(RUNS).index((probe, setting))
    tail = {name: np.asarray(metrics[name][row, -50:]) for name in ("episode_return_sum", "episode_count")}
    episode_return = tail["episode_return_sum"].sum() / max(tail["episode_count"].sum(), 1)
    return config, jax.tree.map(lambda x: np.asarray(x)[row], learners), episode_return


def root_values(config, learner, frames):
    model, n = networks.make_model(config, probe_envs.SPEC), len(frames)
    obs = Observation(
        jnp.array(frames, jnp.float32)[None, :, None],
        jnp.ones((1, n, 2), bool),
        jnp.zeros((1, n), jnp.int32),
        jnp.zeros((1, n)),
        jnp.ones((1, n), bool),
        jnp.ones((1, n), bool),
    )

    @jax.jit
    def values(params):
        e, _ = model.encode(params.encoder, obs, model.initial_carry(n))
        return model.decode(model.root_value(params.root_value, e[0]))

    return values(learner.params)


@pytest.mark.parametrize(
    ("probe", "frames", "values"),
    [
        ("constant reward", [0.0], [1.0]),
        ("reward by observation", [0.0, 1.0], [0.0, 1.0]),
        ("delayed reward", [0.0, 1.0], [0.5, 1.0]),  # two steps, reward 1 after the second: v = (gamma, 1)
        # Reward 1 for ever at discount 0.5, although every episode is cut after 5 steps: truncation bootstraps.
        ("endless reward", [0.0], [2.0]),
    ],
)
def test_probe_is_valued(probe, frames, values):
    config, learner, _ = learned(probe)
    atol = 0.1 if probe == "endless reward" else 0.05
    np.testing.assert_allclose(root_values(config, learner, frames), values, atol=atol)


@pytest.mark.parametrize("setting", ["", "without SC"])
def test_probe_reward_by_action_is_found(setting):
    assert learned("reward by action", setting)[2] > 0.95


@pytest.mark.parametrize("setting", ["", "without policy gradient"])
def test_probe_reward_by_observation_and_action_is_found(setting):
    assert learned("reward by both", setting)[2] > 0.9


def test_the_actor_carry_is_stored_and_continues_from_sequence_to_sequence():
    network = {"kind": "impala", "width": 8, "model_width": 8, "channels": (4,), "head_width": 0}
    config = small(env="pgx/tic_tac_toe", network=network)
    env = make_env(config)
    model = networks.make_model(config, env.spec)

    @jax.jit
    def run(key):
        """Carries that were stored with two sequences in a row, and the encoder's after the first of them."""
        params, driver, carry = model.init(key), base.init(env, key, 4), model.initial_carry(4)
        carries, seen = [], None
        for _ in range(3):
            before = seen
            driver, carry, seen, _ = generate_unroll(env, model, params, driver, carry, key, config.hyper, 4)
            carries.append(seen.carry)
        obs = jax.tree.map(lambda x: x[:-1], before.obs)
        return *carries[1:], model.encode(params.encoder, obs, before.carry)[1]

    first, second, after = run(jax.random.key(0))
    assert_close(after, second, rtol=1e-4, atol=1e-5)
    assert all(np.any(np.asarray(x) != 0) for x in jax.tree.leaves(first))


def test_the_target_network_acts():
    init, chunk = chunked(CONFIG)
    hyper = CONFIG.hyper._replace(learning_rate=0.01)
    state, _ = chunk(init(jax.random.key(0)), hyper, 1)
    params = jax.device_get({"target": state.learner.target, "online": state.learner.params})
    stored = chunk(state, hyper, 1)[0].replay.data
    obs = jax.tree.map(lambda x: x[None, 4:8, 0], stored.obs)  # what the second iteration saw first
    model = networks.make_model(CONFIG, make_env(CONFIG).spec)
    policy = jax.jit(lambda p: model.root_policy(p.root_policy, model.encode(p.encoder, obs, ())[0][0]))
    logits = {name: policy(p) for name, p in params.items()}
    np.testing.assert_allclose(stored.logits[4:8, 0], logits["target"], rtol=1e-4, atol=1e-6)
    assert np.abs(logits["target"] - logits["online"]).max() > 1e-3


def test_replayed_rows_start_from_their_stored_carry():
    def row(x):
        return Sequence(x, x, x, x, x, carry=(x, x))

    batch = join(row(jnp.full((1, 3), 5.0)), row(jnp.full((2, 3), 7.0)), jnp)
    for x in (*batch.carry, *batch[:-1]):
        np.testing.assert_array_equal(x[:, 0], [5.0, 7.0, 7.0])
