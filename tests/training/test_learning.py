"""What the shipped configurations promise, as learning curves of several seeds. Minutes long: pytest -m slow."""

import jax
import numpy as np
import pytest
from helpers import game_references

from purejax_sc.agent.search import SearchOptions
from purejax_sc.config import Config, load
from purejax_sc.envs import episodes, make_env, network_spec
from purejax_sc.evaluation import evaluate, players
from purejax_sc.networks import make_model
from purejax_sc.runs.agents import Agents
from purejax_sc.training import compiled
from purejax_sc.training.sharding import compile_program, make_layout, make_local_trainer

SEEDS = 5

pytestmark = [pytest.mark.slow, pytest.mark.timeout(14_400)]


def compile_seeds(config: Config) -> compiled.Program:
    layout = make_layout(SEEDS)
    trainer = make_local_trainer(config, layout)
    return compile_program(trainer, config, range(SEEDS), [config.hyper] * SEEDS, layout)


def mean_returns(name: str, overrides: list[str], windows: list[tuple[int, int]]) -> list[float]:
    """Mean return [windows] over the seeds and over the episodes that end in each window (first, last] of env steps."""
    config = load(name, overrides)
    compiled = compile_seeds(config)
    states, done, returns = compiled.init(), 0, []
    for until in (step for window in windows for step in window):
        n = until // config.steps_per_iteration - done
        states, metrics = compiled.chunk(states, n)
        done += n
        returns.append(float(np.mean(metrics["episode_return_sum"][:SEEDS] / metrics["episode_count"][:SEEDS])))
    return returns[1::2]


@pytest.mark.parametrize("update", ["none", "direct"])
def test_catch_is_learned_in_64_000_steps(update):
    assert mean_returns("catch", [f"sc.update={update}"], [(60_000, 64_000)])[0] >= 0.95


@pytest.mark.parametrize("update", ["none", "direct"])
def test_cartpole_is_learned_in_100_000_steps(update):
    early, late = mean_returns("cartpole", [f"sc.update={update}"], [(7_000, 9_000), (95_000, 100_000)])
    assert early >= 163
    assert late >= 450


@pytest.mark.parametrize("update", ["none", "direct"])
def test_breakout_is_learned_in_1_000_000_steps(update):
    # The lowest mean of five seeds in bench/results/breakout_search.md is 28.0 [24.1, 31.9].
    assert mean_returns("minatar_breakout", [f"sc.update={update}"], [(900_000, 1_000_000)])[0] >= 24


def trained(config: Config) -> Agents:
    """Agents of `SEEDS` seeds after a whole run."""
    compiled = compile_seeds(config)
    states, _ = compiled.chunk(compiled.init(), config.num_iterations)
    return Agents(config, list(range(SEEDS)), jax.tree.map(lambda x: x[:SEEDS], states.learner), network_spec(config))


@pytest.mark.parametrize("update", ["none", "direct"])
def test_sokoban_of_easy_levels_is_solved_where_levels_are_new(update):
    agents = trained(load("sokoban_small", [f"sc.update={update}"]))
    options = evaluate.EvaluationOptions(episodes=256)
    agents = agents._replace(config=evaluate.evaluation_config(agents.config, options.episodes, []))
    assert evaluate.evaluate_agents(agents, options)["policies"]["sampled"]["metrics"]["solved"]["mean"] >= 0.8


def results(
    agents: Agents, way: str, opponent: episodes.Player, games: int = 1_000, simulations: int = 30
) -> np.ndarray:
    """Results [seeds, games] against a player, each side moving first in every other game."""
    env = make_env(agents.config)
    model = make_model(agents.config, env.spec)
    search = SearchOptions(simulations if way == "search" else 0)
    choose = players.make_choice(agents.config, model, env.spec, way, search)

    @jax.jit
    def play(params, key):
        sides = (episodes.policy_player(model, choose, params), opponent)
        return episodes.play(env, sides, key, games, 1_000).episode_return

    params, seeds = agents.learner.target, range(len(agents.seeds))
    return np.stack([play(jax.tree.map(lambda x, i=i: x[i], params), jax.random.key(i)) for i in seeds])


@pytest.mark.parametrize("update", ["none", "direct"])
def test_tic_tac_toe_is_never_lost_to_perfect_play(update):
    agents = trained(load("tic_tac_toe", [f"sc.update={update}"]))
    for way in ("greedy", "search"):
        assert (results(agents, way, game_references.minimax_tic_tac_toe()) == 0).all()


@pytest.mark.parametrize("update", ["none", "direct"])
def test_connect_four_is_won_against_random_moves_and_a_short_look_ahead(update):
    agents = trained(load("connect_four", [f"sc.update={update}"]))
    assert (results(agents, "greedy", episodes.uniform()) == 1).mean() >= 0.95
    assert (results(agents, "greedy", game_references.look_ahead_connect_four()) == 1).mean() >= 0.8
