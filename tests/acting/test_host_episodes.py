"""Whole episodes on the host, on a pool of counters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import host_games

from purejax_sc import networks
from purejax_sc.acting import host_episodes
from purejax_sc.agent import muesli
from purejax_sc.agent.search import SearchOptions
from purejax_sc.config import from_tree
from purejax_sc.envs.host import stacked_spec
from purejax_sc.evaluation.evaluate import EvaluationOptions, evaluate_agents, record
from purejax_sc.runs.agents import Agents

LENGTHS = (3, 2, 5, 7)
CONFIG = from_tree(
    {
        "env": "atari/Pong",
        "atari": {"stack": 2},
        "network": {"kind": "impala", "width": 8, "model_width": 8, "channels": (4,), "head_width": 0},
        "muesli": {"bins": 11, "bins_max": 5.0},
        "train": {"num_envs": 8, "sequence_length": 6},
    }
)
SPEC = stacked_spec(host_games.CountingEnvs().spec, 2)
MODEL = networks.make_model(CONFIG, SPEC)


def always(action: int):
    return lambda params, e, legal, key: jnp.full(len(e), action)


def play(choose, max_steps=100):
    pool, params = host_games.CountingEnvs(LENGTHS), MODEL.init(jax.random.key(0))
    return host_episodes.play(CONFIG, pool, MODEL, choose, params, jax.random.key(1), max_steps)


def test_every_environment_plays_its_first_episode_and_no_more():
    episodes, frames = play(always(1))
    np.testing.assert_array_equal(episodes.length, LENGTHS)
    # each step is worth its count and ten for the action
    np.testing.assert_array_equal(episodes.episode_return, [n * (n + 1) / 2 + 10 * n for n in LENGTHS])
    np.testing.assert_array_equal(episodes.metrics["frames"], 4 * np.array(LENGTHS))
    assert not episodes.running.any()
    np.testing.assert_array_equal(frames[:, 0, 0, 0], np.arange(LENGTHS[0] + 1))


def test_episodes_beyond_the_limit_are_cut_there():
    episodes, _ = play(always(0), max_steps=3)
    np.testing.assert_array_equal(episodes.running, [False, False, True, True])
    np.testing.assert_array_equal(episodes.length, [3, 2, 3, 3])


def make_host_envs(config, num_envs, seed):
    return host_games.CountingEnvs(LENGTHS[:num_envs])


@pytest.fixture
def agents():
    state = muesli.make_learner(CONFIG, MODEL, SPEC).init(jax.random.key(0))
    return Agents(CONFIG, [0], jax.tree.map(lambda x: x[None], state))


def test_evaluation_plays_greedily_by_samples_and_by_search(agents):
    report = evaluate_agents(
        agents, EvaluationOptions(episodes=4, searches=(SearchOptions(2),)), make_host_envs=make_host_envs
    )
    assert set(report["policies"]) == {"greedy", "sampled", "search"}
    for policy in report["policies"].values():
        assert policy["length"] == pytest.approx(np.mean(LENGTHS))
        assert policy["cut"] == 0
        assert policy["metrics"]["frames"]["mean"] == pytest.approx(4 * np.mean(LENGTHS))


def test_an_episode_is_recorded_frame_by_frame(agents):
    frames, caption = record(agents, EvaluationOptions(), None, make_host_envs)
    assert frames.shape == (LENGTHS[0] + 1, 4, 4, 1)
    assert caption.startswith("drew a greedy episode of seed 0: return ")
