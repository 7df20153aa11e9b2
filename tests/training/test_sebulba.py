"""The host driver: actors, blocks, the same update as on the device, failures, and whole runs on a pool of counters."""

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import host_games
from helpers.configs import LENGTHS, make_envs
from helpers.configs import small_host as config
from helpers.runs import Watch, at_once

from purejax_sc import envs, networks
from purejax_sc.agent import muesli
from purejax_sc.config import Config, ConfigError
from purejax_sc.envs.host import stacked_spec
from purejax_sc.results.files import RunError
from purejax_sc.runs import checkpoint
from purejax_sc.runs.directory import Run
from purejax_sc.runs.fit import train
from purejax_sc.training import actors, sebulba
from purejax_sc.training.frames import Memory, row_shapes, stacked
from purejax_sc.training.host_replay import HostReplay
from purejax_sc.training.sharding import make_layout
from purejax_sc.training.train_state import as_arrays

SPEC = make_envs(1, 0).spec


def plain(**sections: dict[str, Any]) -> Config:
    """A configuration of runs of which it does not matter what they learn: it compiles faster."""
    return config(sc={"update": "none"}, **sections)


def make_driver(config: Config) -> sebulba.Driver:
    return sebulba.Driver(config, SPEC, make_envs, make_layout(1, config.train.data_shards))


def some_blocks(config: Config, num: int) -> list[actors.Block]:
    """The first blocks of one actor, which acts uniformly."""

    def act(params, memory, obs, key):
        key, key_action = jax.random.split(key)
        logits = jnp.zeros((len(obs.first), SPEC.num_actions))
        return jax.random.categorical(key_action, logits), logits, memory, key

    threads = actors.Actors(config, SPEC, make_envs)
    threads.publish((), 5)
    threads.start("actor", 0, act, Memory(jnp.zeros(0), ()), jax.random.key(0))
    blocks = [threads.take() for _ in range(num)]
    threads.close()
    return blocks


# Blocks


def test_blocks_hold_the_stream_of_the_environments_without_a_gap():
    both = some_blocks(config(), 2)
    for block in both:
        obs, rows = block.rows.obs, block.rows
        assert obs.frame.shape == (2, 8, 4, 4, 1)
        count, action_shown = obs.frame[:, 1:, 0, 0, 0], obs.frame[:, 1:, 0, 3, 0]
        # index t + 1 of the observations, the first of which is one frame early, follows the action at t
        acted = obs.valid[:, :-1]
        np.testing.assert_array_equal(rows.reward, np.where(acted, count[:, 1:] + 10 * rows.action, 0))
        np.testing.assert_array_equal(action_shown[:, 1:], np.where(acted, rows.action, 0))
        np.testing.assert_array_equal(obs.prev_action[:, 1:], np.where(acted, rows.action, 0))
        np.testing.assert_array_equal(obs.first[:, 1:], count == 0)
        np.testing.assert_array_equal(obs.prev_reward[:, 1:], rows.reward)
        ended = ~obs.valid[:, 1:]
        lengths = np.array(LENGTHS[:2])[:, None]
        np.testing.assert_array_equal(ended, count[:, 1:] == lengths)
        terminated = ended & (np.arange(2) % 2 == 1)[:, None]
        np.testing.assert_array_equal(rows.discount, np.where(terminated | ~acted, 0, 1))
    one, two = (block.rows.obs for block in both)
    np.testing.assert_array_equal(one.frame[:, -2:], two.frame[:, :2])  # the stack goes on
    np.testing.assert_array_equal(one.prev_action[:, -1], two.prev_action[:, 0])


def test_blocks_count_the_episodes_that_ended():
    block = some_blocks(config(), 1)[0]
    # 6 steps: row 0 ends after 3 and after the reset's step twice more is under way; row 1 ends after 2 and 5
    assert block.episodes["episode_count"] == 3
    assert block.episodes["episode_length_sum"] == 3 + 2 + 2
    assert block.episodes["episode_frames_sum"] == 4 * (3 + 2 + 2)
    assert sum(block.returns) == block.episodes["episode_return_sum"]
    assert block.updates == 5


def test_stacked_frames_go_back_to_the_start_of_their_episode_and_no_further():
    num_frames, steps = 3, 5
    first = np.array([[0, 0, 0, 1, 0, 0, 0, 1], [1, 0, 1, 0, 0, 0, 0, 0]], bool)  # T + S entries
    frame = np.arange(16, dtype=np.uint8).reshape(2, 8, 1, 1, 1)
    row = some_blocks(config(), 1)[0].rows
    obs = row.obs._replace(frame=frame, first=first)
    seen = stacked(row._replace(obs=obs), num_frames).obs
    expected = np.zeros((2, steps + 1, num_frames), int)
    for b in range(2):
        for t in range(steps + 1):
            at = t + num_frames - 1
            for back in range(num_frames):
                start = max((i for i in range(at + 1) if first[b, i]), default=0)
                expected[b, t, num_frames - 1 - back] = 8 * b + max(at - back, start)
    np.testing.assert_array_equal(seen.frame[:, :, 0, 0], expected)
    np.testing.assert_array_equal(seen.first, first[:, num_frames - 1 :])


def test_actors_see_the_stacks_that_the_learner_sees_and_keep_their_carry():
    network = {"kind": "impala", "width": 8, "model_width": 8, "channels": (4,), "head_width": 0}
    still = plain(hyper={"learning_rate": 0.0}, network=network)
    program = make_driver(still).compile()
    states, _ = program.chunk(program.init(), 3)
    program.close()
    model = networks.make_model(still, stacked_spec(SPEC, 2))
    replay = HostReplay(row_shapes(still, SPEC, model), still.replay_capacity_sequences)
    replay.load(states.replay)
    rows = replay.sample(np.random.default_rng(0), 16)

    @jax.jit
    def policies(learner, rows):
        """What the network says about the rows as the learner sees them, and what the actors stored."""
        params = jax.tree.map(lambda x: x[0], learner.target)
        obs = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1)[:-1], stacked(rows, 2).obs)
        e, _ = model.encode(params.encoder, obs, rows.carry)
        logits = jax.vmap(lambda e: model.root_policy(params.root_policy, e))(e)
        return jax.nn.softmax(logits), jax.nn.softmax(jnp.swapaxes(rows.logits, 0, 1))

    np.testing.assert_allclose(*policies(states.learner, rows), rtol=1e-4)
    assert any(np.any(x != 0) for x in jax.tree.leaves(rows.carry))


# The learner


def test_the_same_batch_through_both_drivers_gives_the_same_parameters():
    small = config(atari={"stack": 1})
    rows = jax.tree.map(lambda *x: np.concatenate(x), *(block.rows for block in some_blocks(small, 4)))
    model = networks.make_model(small, SPEC)
    rows = rows._replace(carry=jax.tree.map(np.asarray, model.initial_carry(8)))
    learner, hyper = muesli.make_learner(small, model, SPEC), as_arrays(small.hyper)
    state, key = jax.jit(learner.init)(jax.random.key(1)), jax.random.key(2)
    layout = make_layout(1, 1)
    update = jax.jit(sebulba.make_update(small, learner, layout))
    here, *_ = update(*jax.tree.map(lambda x: x[None], (state,)), rows, key[None], hyper)
    batch = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), rows._replace(carry=()))._replace(carry=rows.carry)
    there, _ = jax.jit(learner.update)(state, batch, jax.random.split(key)[1], hyper)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[0], b), here.params, there.params)
    assert not np.array_equal(jax.tree.leaves(here.params)[0][0], jax.tree.leaves(state.params)[0])


def test_two_learner_devices_equal_one():
    rows = jax.tree.map(lambda *x: np.concatenate(x), *(block.rows for block in some_blocks(config(), 4)))
    model = networks.make_model(config(), stacked_spec(SPEC, 2))
    rows = rows._replace(carry=jax.tree.map(np.asarray, model.initial_carry(8)))

    def updated(shards: int):
        small, layout = config(train={"data_shards": shards}, sc={"update": "none"}), make_layout(1, shards)
        learner = muesli.make_learner(small, model, stacked_spec(SPEC, 2), layout.axis)
        state = jax.tree.map(lambda x: x[None], jax.jit(learner.init)(jax.random.key(1)))
        update = jax.jit(sebulba.make_update(small, learner, layout))
        return update(state, rows, jax.random.key(2)[None], as_arrays(small.hyper))[0].params

    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6), updated(1), updated(2))


# Whole runs


class Counters(NamedTuple):
    """made: the environments of `train` so far, which count.   maker: holds what makes them, as `make`."""

    train: Callable[..., dict[str, Any]]
    made: list[host_games.CountingEnvs]
    maker: dict[str, Callable[[int, int], host_games.CountingEnvs]]


@pytest.fixture
def counters(monkeypatch: pytest.MonkeyPatch) -> Counters:
    made: list[host_games.CountingEnvs] = []
    maker = {"make": make_envs}

    def make(config: Config, num_envs: int, seed: int) -> host_games.CountingEnvs:
        made.append(maker["make"](num_envs, seed))
        return made[-1]

    monkeypatch.setattr(envs, "make_played_spec", lambda config: SPEC)
    monkeypatch.setattr(envs, "make_host_envs", make)
    return Counters(train, made, maker)


def test_a_run_fills_its_directory_and_leaves_no_thread(tmp_path, counters):
    summary = counters.train(plain(), tmp_path / "run")
    assert summary["status"] == "complete"
    assert summary["env_steps"] == 4 * 6 * 8
    assert summary["memory"]["replay_bytes"] > 0
    header, *rows = (tmp_path / "run/metrics.csv").read_text().splitlines()
    assert len(rows) == 4
    last = dict(zip(header.split(","), rows[-1].split(","), strict=True))
    assert float(last["episode_length"]) > 1
    assert float(last["episode_frames"]) == pytest.approx(4 * float(last["episode_length"]))
    table = [dict(zip(header.split(","), row.split(","), strict=True)) for row in rows]
    ended = [(float(row["episodes"]), float(row["episode_return"])) for row in table if float(row["episodes"])]
    mean = sum(count * value for count, value in ended) / sum(count for count, _ in ended)
    assert float(last["episode_score"]) == pytest.approx(mean, rel=1e-4)  # fewer episodes than it is taken over
    assert 0 <= float(last["learner_waiting"]) <= 1
    assert 0 <= float(last["actors_waiting"]) <= 1
    assert float(last["lag_updates"]) >= 1
    assert all(pool.closed for pool in counters.made)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("actor")]


@pytest.mark.parametrize("where", ["memory", pytest.param("left out", marks=pytest.mark.slow)])
def test_a_stopped_run_goes_on_with_its_learner_and_replay(tmp_path, counters, where):
    whole = plain(checkpoint={"updates": 2, "replay": where == "memory"}, replay={"capacity": 4 * 6 * 8})
    with pytest.raises(KeyboardInterrupt):  # after the third log point, whose checkpoint is not written
        counters.train(whole, tmp_path / "run", on_log=Watch(at=6, stop=at_once))
    program = make_driver(whole).compile()
    found = checkpoint.find([tmp_path / "run"], pytest.fail)
    run = Run(whole, [whole.seed], tmp_path / "run")
    states = checkpoint.restore([run], found, program.shapes, program.init, lambda text: None)
    states, _ = program.chunk(states, 1)  # which adds four rows
    program.close()
    assert states.learner.updates.tolist() == [5]
    assert states.replay.size == (4 if where == "left out" else 16 + 4)
    watch = Watch()
    summary = counters.train(whole, tmp_path / "run", resume=True, say=watch.say)
    assert "games on the host cannot be saved: their episodes begin anew" in watch.said
    assert summary["updates"] == 8
    assert len((tmp_path / "run/metrics.csv").read_text().splitlines()) == 5


class FailingPool(host_games.CountingEnvs):
    def recv(self):
        if self._count[0] == 2:
            raise OSError("the joystick broke")
        return super().recv()


def test_an_environment_that_fails_stops_the_run_with_its_own_message(tmp_path, counters):
    made, maker = counters.made, counters.maker
    maker["make"] = lambda num_envs, seed: (FailingPool if len(made) else host_games.CountingEnvs)(LENGTHS[:num_envs])
    with pytest.raises(RunError, match="an environment thread failed: OSError: the joystick broke") as caught:
        counters.train(plain(), tmp_path / "run")
    assert isinstance(caught.value.__cause__, OSError)
    assert all(pool.closed for pool in counters.made)


def test_environments_that_cannot_be_made_stop_the_run(tmp_path, counters):
    def refuse(num_envs: int, seed: int):
        raise ConfigError("no such game")

    counters.maker["make"] = refuse
    with pytest.raises(RunError, match="no such game"):
        counters.train(plain(), tmp_path / "run")


def test_several_seeds_at_once_are_refused_before_anything_is_written(tmp_path, counters):
    with pytest.raises(ConfigError, match="one seed at a time: give each its seed=N and --out"):
        counters.train(config(), tmp_path / "run", num_seeds=2)
    assert not (tmp_path / "run").exists()


def test_a_replay_that_does_not_fit_in_memory_is_refused_with_its_size(tmp_path, counters):
    with pytest.raises(ConfigError, match=r"takes .* GiB, and this machine has .*: lower replay.capacity"):
        counters.train(config(replay={"capacity": 10**12}), tmp_path / "run")


def test_environments_that_actors_cannot_share_are_refused():
    with pytest.raises(ConfigError, match=r"train.num_envs=4 cannot be shared by host.actors=3: set train.num_envs=6"):
        config(host={"actors": 3})
