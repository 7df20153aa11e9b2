"""Search over the environment itself: a perfect model, whatever the learned one says."""

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import agents, probe_envs
from helpers.configs import small

from purejax_sc.agent.search import SearchOptions
from purejax_sc.config import from_tree
from purejax_sc.evaluation.evaluate import EvaluationOptions, evaluate_agents
from purejax_sc.types import Env

REAL = SearchOptions(64, dynamics="environment")


def minds() -> agents.Agents:
    """Heads of zeros, but that the network that acts prefers action 0."""
    return agents.two_minds(small(), env=probe_envs.reward_by_action(), preferred=0)


def returns(report, name) -> np.ndarray:
    return np.array(report["policies"][name]["per_seed"]["return"])


@pytest.mark.parametrize("kind", ["muzero", "gumbel"])
def test_it_finds_what_the_model_does_not_know(kind) -> None:
    # The model has learned nothing and follows the prior; a real step shows that action 1 is paid.
    searches = (SearchOptions(64, kind), REAL._replace(kind=kind))
    report = evaluate_agents(minds(), EvaluationOptions(8, searches=searches), probe_envs.reward_by_action())
    np.testing.assert_array_equal(returns(report, "search over the model"), 0.0)
    np.testing.assert_array_equal(returns(report, "search over the environment"), 1.0)


def test_nothing_counts_beyond_the_end_of_an_episode() -> None:
    # Either action ends the episode, by 0.6 or by 0.5; who steps on after action 1 is paid 10 and must not see it.
    def step(key, state, action):
        reward = jnp.where(state == 0, jnp.where(action == 1, 0.5, 0.6), jnp.where(state == 2, 10.0, 0.0))
        return action + 1, probe_envs.show(0, reward=reward, terminated=True)

    env = Env(probe_envs.SPEC, probe_envs.start_at_zero, step)
    report = evaluate_agents(minds(), EvaluationOptions(4, searches=(REAL._replace(max_depth=4),)), env)
    np.testing.assert_allclose(returns(report, "search"), 0.6, rtol=1e-6)


def test_it_looks_further_than_the_first_reward() -> None:
    # `counting` pays 1, 2, 3, ...: action 1 ends it at once, action 0 goes on to the limit of 4.
    report = evaluate_agents(minds(), EvaluationOptions(4, searches=(REAL,)), probe_envs.counting(4))
    np.testing.assert_array_equal(returns(report, "search"), 1.0 + 2.0 + 3.0 + 4.0)


@pytest.mark.slow  # that signs change, in a game of two moves, is what tests/evaluation/test_chosen.py says
def test_a_game_is_won_by_results_alone() -> None:
    # Heads of zeros at tic-tac-toe: all strength is from the results that the search comes upon. With wrong signs it
    # would help the other side; without any it is level, as the search of a model that knows nothing is.
    config = from_tree({"env": "pgx/tic_tac_toe", "network": {"kind": "mlp", "width": 4, "head_width": 0}})
    search = SearchOptions(100, max_depth=9, dynamics="environment")
    report = evaluate_agents(agents.two_minds(config, (3,)), EvaluationOptions(30, searches=(search,)))
    assert report["policies"]["search"]["return"]["mean"] > 0.5
    assert report["policies"]["search"]["against_greedy"]["mean"] > 0.65
