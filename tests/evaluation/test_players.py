"""Agents as players: searches over the environment itself, and whole episodes on the host."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import agents, host_games, probe_envs
from helpers.configs import small

from purejax_sc import networks
from purejax_sc.agent import muesli
from purejax_sc.agent.search import SearchOptions
from purejax_sc.config import from_tree
from purejax_sc.envs.host import stacked_spec
from purejax_sc.evaluation import evaluate, players
from purejax_sc.evaluation.evaluate import EvaluationOptions, evaluate_agents
from purejax_sc.runs.agents import Agents
from purejax_sc.types import Env, Params

REAL = SearchOptions(64, dynamics="environment")


def searched(env: Env, *searches: SearchOptions) -> dict[str, np.ndarray]:
    """Returns by way to act. Heads are zeros, but the network that acts prefers action 0."""
    minds = agents.two_minds(small(), env=probe_envs.reward_by_action(), preferred=0)
    policies = evaluate_agents(minds, EvaluationOptions(4, searches=searches), env)["policies"]
    return {name: np.array(policy["per_seed"]["return"]) for name, policy in policies.items()}


def test_search_over_the_environment_finds_what_the_model_does_not_know() -> None:
    # The model has learned nothing and follows the prior; a real step shows that action 1 is paid.
    returns = searched(probe_envs.reward_by_action(), SearchOptions(64), REAL)
    np.testing.assert_array_equal(returns["search dynamics=model"], 0.0)
    np.testing.assert_array_equal(returns["search dynamics=environment"], 1.0)


def test_nothing_counts_beyond_the_end_of_an_episode() -> None:
    # Either action ends the episode, by 0.6 or by 0.5; a step after action 1 would be paid 10.
    def step(key, state, action):
        reward = jnp.where(state == 0, jnp.where(action == 1, 0.5, 0.6), jnp.where(state == 2, 10.0, 0.0))
        return action + 1, probe_envs.show(0, reward=reward, terminated=True)

    env = Env(probe_envs.SPEC, probe_envs.start_at_zero, step)
    np.testing.assert_allclose(searched(env, REAL._replace(max_depth=4))["search"], 0.6, rtol=1e-6)


def test_search_over_the_environment_looks_further_than_the_first_reward() -> None:
    # `counting` pays 1, 2, 3, ...: action 1 ends it at once, action 0 goes on to the limit of 4.
    np.testing.assert_array_equal(searched(probe_envs.counting(4), REAL)["search"], 1.0 + 2.0 + 3.0 + 4.0)


@pytest.mark.parametrize("temperature", [1e-6, 1e12])
def test_no_temperature_lets_an_illegal_action_be_drawn(temperature: float) -> None:
    model = networks.make_model(small(), probe_envs.SPEC)._replace(root_policy=lambda params, logits: logits)
    sampled = players.make_choice(small(), model, probe_envs.SPEC, "sampled", temperature=temperature)
    params, legal = Params(*[()] * len(Params._fields)), jnp.array([[False, True, True]] * 64)
    actions = sampled(params, jnp.zeros(legal.shape), legal, jax.random.key(0))
    assert set(actions.tolist()) == {1, 2}


# On the host


LENGTHS = (3, 2, 5, 7)
CONFIG = from_tree(
    {
        "env": "atari/Pong",
        "atari": {"stack": 2},
        "network": {"kind": "impala", "width": 8, "model_width": 8, "channels": (4,), "head_width": 0},
        "muesli": {"bins": 11, "value_max": 5.0},
        "train": {"num_envs": 8, "sequence_length": 6},
    }
)
SPEC = stacked_spec(host_games.CountingEnvs().spec, 2)
MODEL = networks.make_model(CONFIG, SPEC)


def play_on_host(action: int, max_steps: int):
    def choose(params, e, legal, key):
        return jnp.full(len(e), action)

    pool, params = host_games.CountingEnvs(LENGTHS), MODEL.init(jax.random.key(0))
    return players.play_on_host(CONFIG, pool, MODEL, choose, params, jax.random.key(1), max_steps)


def test_every_environment_on_the_host_plays_its_first_episode_and_no_more() -> None:
    episodes, frames = play_on_host(1, max_steps=100)
    np.testing.assert_array_equal(episodes.length, LENGTHS)
    # each step is worth its count and ten for the action
    np.testing.assert_array_equal(episodes.episode_return, [n * (n + 1) / 2 + 10 * n for n in LENGTHS])
    np.testing.assert_array_equal(episodes.metrics["frames"], 4 * np.array(LENGTHS))
    assert not episodes.running.any()
    np.testing.assert_array_equal(frames[:, 0, 0, 0], np.arange(LENGTHS[0] + 1))


def test_episodes_on_the_host_beyond_the_limit_are_cut_there() -> None:
    episodes, _ = play_on_host(0, max_steps=3)
    np.testing.assert_array_equal(episodes.running, [False, False, True, True])
    np.testing.assert_array_equal(episodes.length, [3, 2, 3, 3])


def test_agents_on_the_host_are_evaluated_and_recorded(monkeypatch) -> None:
    monkeypatch.setattr(evaluate, "make_host_envs", lambda config, num, seed: host_games.CountingEnvs(LENGTHS[:num]))
    state = muesli.make_learner(CONFIG, MODEL, SPEC).init(jax.random.key(0))
    trained = Agents(CONFIG, [0], jax.tree.map(lambda x: x[None], state), SPEC)
    report = evaluate_agents(trained, EvaluationOptions(episodes=4, searches=(SearchOptions(2),)))
    assert set(report["policies"]) == {"greedy", "sampled", "search"}
    for policy in report["policies"].values():
        assert policy["length"] == pytest.approx(np.mean(LENGTHS))
        assert policy["cut"] == 0
        assert policy["metrics"]["frames"]["mean"] == pytest.approx(4 * np.mean(LENGTHS))
    frames, caption = evaluate.record(trained, EvaluationOptions(), None)
    assert frames.shape == (LENGTHS[0] + 1, 4, 4, 1)
    assert caption.startswith("drew a greedy episode of seed 0: return ")
