"""Human-normalised scores of the 57 Atari games, and their aggregates over games."""

import difflib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from purejax_sc.results.statistics import iqm

# Game -> (random agent, human), the points of raw scores that become 0 and 1: the table of DQN Zoo, from episodes that
# start with no-ops. For VideoPinball some papers take 0.0 as the random score, which moves a mean over games a lot.
SCORES: dict[str, tuple[float, float]] = {
    "Alien": (227.8, 7127.7),
    "Amidar": (5.8, 1719.5),
    "Assault": (222.4, 742.0),
    "Asterix": (210.0, 8503.3),
    "Asteroids": (719.1, 47388.7),
    "Atlantis": (12850.0, 29028.1),
    "BankHeist": (14.2, 753.1),
    "BattleZone": (2360.0, 37187.5),
    "BeamRider": (363.9, 16926.5),
    "Berzerk": (123.7, 2630.4),
    "Bowling": (23.1, 160.7),
    "Boxing": (0.1, 12.1),
    "Breakout": (1.7, 30.5),
    "Centipede": (2090.9, 12017.0),
    "ChopperCommand": (811.0, 7387.8),
    "CrazyClimber": (10780.5, 35829.4),
    "Defender": (2874.5, 18688.9),
    "DemonAttack": (152.1, 1971.0),
    "DoubleDunk": (-18.6, -16.4),
    "Enduro": (0.0, 860.5),
    "FishingDerby": (-91.7, -38.7),
    "Freeway": (0.0, 29.6),
    "Frostbite": (65.2, 4334.7),
    "Gopher": (257.6, 2412.5),
    "Gravitar": (173.0, 3351.4),
    "Hero": (1027.0, 30826.4),
    "IceHockey": (-11.2, 0.9),
    "Jamesbond": (29.0, 302.8),
    "Kangaroo": (52.0, 3035.0),
    "Krull": (1598.0, 2665.5),
    "KungFuMaster": (258.5, 22736.3),
    "MontezumaRevenge": (0.0, 4753.3),
    "MsPacman": (307.3, 6951.6),
    "NameThisGame": (2292.3, 8049.0),
    "Phoenix": (761.4, 7242.6),
    "Pitfall": (-229.4, 6463.7),
    "Pong": (-20.7, 14.6),
    "PrivateEye": (24.9, 69571.3),
    "Qbert": (163.9, 13455.0),
    "Riverraid": (1338.5, 17118.0),
    "RoadRunner": (11.5, 7845.0),
    "Robotank": (2.2, 11.9),
    "Seaquest": (68.4, 42054.7),
    "Skiing": (-17098.1, -4336.9),
    "Solaris": (1236.3, 12326.7),
    "SpaceInvaders": (148.0, 1668.7),
    "StarGunner": (664.0, 10250.0),
    "Surround": (-10.0, 6.5),
    "Tennis": (-23.8, -8.3),
    "TimePilot": (3568.0, 5229.2),
    "Tutankham": (11.4, 167.6),
    "UpNDown": (533.4, 11693.2),
    "Venture": (0.0, 1187.5),
    "VideoPinball": (16256.9, 17667.9),
    "WizardOfWor": (563.5, 4756.5),
    "YarsRevenge": (3092.9, 54576.9),
    "Zaxxon": (32.5, 9173.3),
}


class Aggregate(NamedTuple):
    """Of human-normalised scores over games; the paper reports the median over all 57."""

    games: int
    median: float
    mean: float
    iqm: float


def normalise(game: str, score: float | np.ndarray) -> float | np.ndarray:
    """(score - random) / (human - random): 0 as a random agent, 1 as a human.

    Args:
      game:  such as Pong or atari/Pong.
      score: points of the game, a number or an array of any shape.

    Returns:
      The same shape. Raises ValueError for an unknown game.
    """
    name = game.removeprefix("atari/")
    if name not in SCORES:
        near = ", ".join(difflib.get_close_matches(name, SCORES, n=3, cutoff=0.4)) or "Pong, Breakout, Seaquest"
        raise ValueError(f"no human score for the game {game!r}: the nearest are {near}")
    low, high = SCORES[name]
    return (score - low) / (high - low)


def aggregate(scores: Mapping[str, float]) -> Aggregate:
    """Aggregates of raw scores, one per game. Raises ValueError for an unknown game and for no games."""
    if not scores:
        raise ValueError("no scores to aggregate: give at least one game")
    x = np.array([normalise(game, score) for game, score in scores.items()])
    return Aggregate(len(x), float(np.median(x)), float(np.mean(x)), float(iqm(x)))
