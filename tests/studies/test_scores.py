"""Human-normalised scores."""

import numpy as np
import pytest

from purejax_sc.envs.atari_games import SCORES
from purejax_sc.studies import scores


def test_a_random_agent_scores_0_and_a_human_1() -> None:
    assert len(SCORES) == 57
    for game, (random, human) in SCORES.items():
        assert random < human
        assert scores.normalise(game, random) == 0
        assert scores.normalise(f"atari/{game}", human) == 1


def test_a_score_on_paper() -> None:
    # Breakout: random 1.7, human 30.5. (16.1 - 1.7) / (30.5 - 1.7) = 14.4 / 28.8
    assert scores.normalise("Breakout", 16.1) == pytest.approx(0.5)
    # Pong: random -20.7, human 14.6. (14.6 + 20.7 + 35.3) / 35.3 and (-20.7 + 20.7) / 35.3
    np.testing.assert_allclose(scores.normalise("Pong", np.array([49.9, -20.7])), [2.0, 0.0])


def test_aggregates_are_over_games() -> None:
    # 0, 1, 2 and 5 times a human's score above random: the interquartile mean leaves out the lowest and the highest.
    raw = {}
    for game, x in {"Pong": 0.0, "Alien": 1.0, "atari/Hero": 2.0, "Qbert": 5.0}.items():
        random, human = SCORES[game.removeprefix("atari/")]
        raw[game] = random + x * (human - random)
    result = scores.aggregate(raw)
    assert result.games == 4
    np.testing.assert_allclose([result.median, result.mean, result.iqm], [1.5, 2.0, 1.5])


def test_one_game_is_its_own_aggregate() -> None:
    assert scores.aggregate({"Boxing": 12.1}) == (1, 1.0, 1.0, 1.0)


@pytest.mark.parametrize(("game", "near"), [("pong", "Pong"), ("Ms_Pacman", "MsPacman"), ("zzz", "Breakout")])
def test_an_unknown_game_names_the_nearest(game, near) -> None:
    with pytest.raises(ValueError, match=near):
        scores.normalise(game, 0.0)


def test_no_games_have_no_aggregate() -> None:
    with pytest.raises(ValueError, match="at least one game"):
        scores.aggregate({})
