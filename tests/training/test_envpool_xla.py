"""The jitted driver of host environments: it sees what actors see, and its runs are those of any driver."""

from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from helpers import host_games
from helpers.runs import Watch, at_once

from purejax_sc.acting.frames import Memory
from purejax_sc.config import Config, ConfigError, from_tree
from purejax_sc.envs import host, make_host_envs, make_host_program, make_spec
from purejax_sc.runs.train import Factories, train
from purejax_sc.training import actors, envpool_xla
from purejax_sc.training.devices import make_layout
from purejax_sc.types import Sequence

LENGTHS = (3, 2, 5, 7)
SMALL: dict[str, Any] = {
    "env": "atari/Pong",
    "atari": {"stack": 3, "size": 16, "gray": True},
    "network": {"kind": "impala", "width": 8, "model_width": 8, "channels": (4,), "head_width": 0},
    "train": {
        "env_steps": 4 * 6 * 8, "num_envs": 4, "sequence_length": 6, "batch_sequences": 8, "replay_share": 0.5,
        "log_points": 4,
    },
    "replay": {"capacity": 4 * 6 * 4},
    "host": {"driver": "xla", "actors": 1},
    "muesli": {"unroll": 2, "bins": 11, "bins_max": 5.0, "num_action_samples": 0},
    "sc": {"update": "none"},
}  # fmt: skip


def config(**sections: dict[str, Any]) -> Config:
    tree = dict(SMALL)
    for name, section in sections.items():
        tree[name] = {**tree.get(name, {}), **section}
    return from_tree(tree)


def make_games(num_envs: int, seed: int) -> host.HostProgram:
    return host_games.make_counting_program(LENGTHS[:num_envs])


SPEC = make_games(1, 0).spec


def rows_of(states: Any, capacity: int) -> list[Sequence]:
    """The blocks of 4 rows in the ring, in the order in which they were added."""
    data = jax.device_get(jax.tree.map(lambda x: x[0], states.replay.data))
    return [jax.tree.map(lambda x, i=i: x[i : i + 4], data) for i in range(0, capacity, 4)]


def blocks_of_actor(config: Config, spec: Any, make_envs: Any, actions: np.ndarray) -> list[actors.Block]:
    """What an actor thread hands over that plays these actions [B, steps]."""
    script = iter(actions.T)

    def act(params: Any, memory: Any, obs: Any, key: Any) -> Any:
        action = next(script, np.zeros(len(actions), np.int32))
        return action, np.zeros((len(actions), spec.num_actions), np.float32), memory, key

    threads = actors.Actors(config, spec, make_envs)
    threads.publish([()], 0)
    threads.start(0, config.seed, act, Memory(np.zeros(0), ()), jax.random.key(0))
    blocks = [threads.take() for _ in range(actions.shape[1] // config.train.sequence_length)]
    threads.close()
    return blocks


def assert_same_stream(rows: list[Sequence], blocks: list[actors.Block]) -> None:
    for row, block in zip(rows, blocks, strict=True):
        for name in ("obs", "action", "reward", "discount"):
            jax.tree.map(np.testing.assert_array_equal, getattr(row, name), getattr(block.rows, name))


def test_rows_and_statistics_are_those_of_actors() -> None:
    small = config()
    program = envpool_xla.Driver(small, SPEC, make_games, make_layout(1)).compile()
    states, metrics = program.chunk(program.init(), 1)
    states, more = program.chunk(states, 3)
    program.close()
    rows = rows_of(states, 16)
    actions = np.concatenate([row.action for row in rows], axis=1)
    assert len(np.unique(actions)) == 3
    blocks = blocks_of_actor(small, SPEC, lambda num_envs, seed: host_games.CountingEnvs(LENGTHS[:num_envs]), actions)
    assert_same_stream(rows, blocks)
    for name, value in blocks[0].episodes.items():
        assert metrics[name] == [value]
        assert more[name] == pytest.approx(sum(block.episodes[name] for block in blocks[1:]) / 3)
    returns = [x for block in blocks for x in block.returns]
    assert np.asarray(states.driver[0, -len(returns) :]).tolist() == returns
    assert np.isnan(states.driver[0, : -len(returns)]).all()
    assert more["episode_score"] == pytest.approx(np.mean(returns))
    assert states.learner.updates.tolist() == [4]


def test_envpool_plays_the_same_games_in_a_program_and_in_a_pool() -> None:
    pytest.importorskip("envpool", reason="envpool is not installed")
    small = config(atari={"sticky": 0.25})
    spec = make_spec(small)
    program = envpool_xla.Driver(small, spec, partial(make_host_program, small), make_layout(1)).compile()
    states, _ = program.chunk(program.init(), 4)
    program.close()
    rows = rows_of(states, 16)
    actions = np.concatenate([row.action for row in rows], axis=1)
    # the driver's games have the run's seed, as this actor's have
    blocks = blocks_of_actor(small, spec, partial(make_host_envs, small), actions)
    assert_same_stream(rows, blocks)


def test_where_envpool_has_no_xla_the_cure_is_named_and_nothing_written(tmp_path, monkeypatch) -> None:
    pytest.importorskip("envpool", reason="envpool is not installed")
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(ConfigError, match=r"host\.driver=xla is not possible here: .* Set host\.driver=threads"):
        train(config(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


COUNTERS = Factories(
    make_spec=lambda config: SPEC, make_host_program=lambda config, num_envs, seed: make_games(num_envs, seed)
)


@pytest.mark.parametrize("replay", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_stopped_run_goes_on_with_its_learner_and_replay(tmp_path, replay) -> None:
    small = config(checkpoint={"updates": 2, "replay": replay})
    with pytest.raises(KeyboardInterrupt):  # after the third log point, whose checkpoint is not written
        train(small, tmp_path / "run", progress=Watch(at=6, stop=at_once), factories=COUNTERS)
    summary = train(small, tmp_path / "run", resume=True, factories=COUNTERS)
    assert summary["status"] == "complete"
    assert summary["updates"] == 8
    assert summary["memory"]["replay_bytes"] > 0
    header, *lines = (tmp_path / "run/metrics.csv").read_text().splitlines()
    assert len(lines) == 4
    last = dict(zip(header.split(","), lines[-1].split(","), strict=True))
    assert float(last["episode_frames"]) == pytest.approx(4 * float(last["episode_length"]))


def test_a_run_without_replay_keeps_no_ring(tmp_path) -> None:
    small = config(train={"replay_share": 0.0, "batch_sequences": 4})
    assert train(small, tmp_path / "run", factories=COUNTERS)["memory"]["replay_bytes"] == 0


def test_a_replay_that_does_not_fit_is_refused_before_anything_is_written(tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"replay\.capacity=1000000000000 takes .* GiB for 1 seed\(s\), the device"):
        train(config(replay={"capacity": 10**12}), tmp_path / "run", factories=COUNTERS)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"atari": {"backend": "ale"}}, r"atari\.backend='ale'"),
        ({"atari": {"max_over": 4}}, r"atari\.max_over=4"),
        ({"host": {"actor_devices": 1}}, r"host\.actor_devices=1"),
        ({"train": {"data_shards": 2}}, r"train\.data_shards=2"),
        ({"replay": {"file": "x", "capacity": 96}}, r"replay\.file='x'"),
    ],
)
def test_what_needs_threads_is_refused_with_its_cure(sections: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=rf"{words} is not possible with host\.driver=xla: set host\.driver=threads"):
        config(**sections)
