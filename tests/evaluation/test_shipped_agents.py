"""What search over the models of shipped agents is worth, in games and levels anew. Minutes long: pytest -m slow."""

import pytest

from purejax_sc.agent.search import SearchOptions
from purejax_sc.evaluation.evaluate import EvaluationOptions, evaluate_agents, evaluation_config
from purejax_sc.evaluation.matches import MatchOptions, round_robin
from purejax_sc.runs.agents import load_agents

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def test_a_game_is_won_by_search_against_the_policy_alone():
    pairs = round_robin(["go_5x5_planes:32:gumbel", "go_5x5_planes"], MatchOptions(games=256, openings=4))["pairs"]
    assert pairs[0]["score"] >= 0.65


def test_more_levels_of_sokoban_are_solved_by_search():
    agents = load_agents("sokoban_planes", pytest.fail)
    searches = tuple(SearchOptions(simulations, temperature=0.5) for simulations in (25, 100))
    options = EvaluationOptions(512, searches=searches, temperature=0.5)
    agents = agents._replace(config=evaluation_config(agents.config, options.episodes, []))
    policies = evaluate_agents(agents, options)["policies"]
    solved = {name: policy["metrics"]["solved"]["mean"] for name, policy in policies.items()}
    best = max(solved["greedy"], solved["sampled"])
    assert solved["search 25"] >= best + 0.02
    assert solved["search 100"] >= best + 0.03
