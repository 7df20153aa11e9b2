"""Human-normalised scores."""

import pytest

from purejax_sc.envs.atari_games import SCORES
from purejax_sc.studies import scores


def test_a_random_agent_scores_0_and_a_human_1() -> None:
    assert len(SCORES) == 57
    for game, (random, human) in SCORES.items():
        assert random < human
        assert scores.human_normalised(game, random) == 0
        assert scores.human_normalised(game, human) == 1


def test_a_score_on_paper() -> None:
    # Breakout: random 1.7, human 30.5. (16.1 - 1.7) / (30.5 - 1.7) = 14.4 / 28.8
    assert scores.human_normalised("Breakout", 16.1) == pytest.approx(0.5)


def test_aggregates_are_over_games_by_seed() -> None:
    # 0, 1, 2 and 5 times a human's score above random: the interquartile mean leaves out the lowest and the highest.
    found: scores.Scores = {"Catch": {"none": {"final": {0: 1.0}}}}
    for game, x in {"Pong": 0.0, "Alien": 1.0, "Hero": 2.0, "Qbert": 5.0}.items():
        low, high = SCORES[game]
        found[game] = {"none": {"final": {0: low + x * (high - low), 1: high}}, "direct": {"final": {0: low}}}
    found["Pong"]["none"]["final"] |= {7: 0.0}  # of which no other game has a run
    found["Boxing"] = {"none": {"final": {0: 9.9}}}  # which the other arm has not
    scores.add_human(found)
    cell = found["all games"]["none"]
    assert cell["human_median"] == pytest.approx({0: 1.5, 1: 1.0})
    assert found["all games"]["direct"]["human_median"] == {0: 0.0}
    assert found["Hero"]["none"]["human"][0] == pytest.approx(2.0)
    assert "human" not in found["Catch"]["none"]
