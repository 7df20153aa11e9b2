"""Many games: what is trained, what is left alone, what fails, and the table."""

import csv
import json

import numpy as np
import pytest
from helpers import host_games
from helpers.configs import make_envs
from helpers.configs import small_host as config
from helpers.runs import Watch

from purejax_sc.config import ConfigError, load
from purejax_sc.envs.atari_games import SCORES
from purejax_sc.results.curves import Curves
from purejax_sc.results.files import RunError
from purejax_sc.runs.train import Factories
from purejax_sc.studies import atari57, scores


def make_factories(trained: list[str]) -> Factories:
    """Environments that count, and note their games in `trained`; the engine of Qbert is broken."""

    def make(config, num_envs: int, seed: int):
        trained.append(config.env)
        if config.env == "atari/Qbert":
            raise OSError("no cartridge")
        return make_envs(num_envs, seed)

    return Factories(make_spec=lambda config: host_games.CountingEnvs().spec, make_host_envs=make)


def table(out):
    with (out / "atari57.csv").open() as file:
        return {row["game"]: row for row in csv.DictReader(file)}


def test_games_are_trained_scored_and_left_alone_when_done(tmp_path):
    trained: list[str] = []
    factories, watch = make_factories(trained), Watch()
    short = {"env_steps": 4 * 6 * 4, "log_points": 2}
    small = config(host={"actors": 1}, train=short, sc={"update": "none"})
    first = atari57.run(small, ["Pong", "Qbert"], tmp_path, watch, factories=factories)
    assert trained == ["atari/Pong", "atari/Qbert"]
    assert [line for line in watch.said if line.startswith(("Pong", "Qbert"))] == [
        "Pong, game 1 of 2",
        "Qbert, game 2 of 2",
        "Qbert: an environment thread failed: OSError: no cartridge",
    ]
    rows = table(tmp_path)
    assert rows["Pong"]["status"] == "complete"
    assert rows["Pong"]["env_steps"] == "96"
    assert float(rows["Pong"]["human_normalised"]) == pytest.approx(
        scores.normalise("Pong", float(rows["Pong"]["score"])), rel=1e-4
    )
    assert rows["Qbert"]["status"] == "no metrics"
    assert first["aggregate"]["games"] == 1
    assert atari57.unfinished(tmp_path, ["Pong", "Qbert"]) == ["Qbert"]
    assert [path.name for path in atari57.written(tmp_path)] == ["atari57.csv", "atari57.json", "atari57.png"]
    assert json.loads((tmp_path / "atari57.json").read_text()) == first
    trained.clear()
    second = atari57.run(small, ["Pong", "Breakout"], tmp_path, factories=factories)
    assert trained == ["atari/Breakout"]
    assert second["aggregate"]["games"] == 2
    assert (tmp_path / "atari57.png").stat().st_size > 0


def test_mistakes_are_found_before_anything_is_written(tmp_path):
    trained: list[str] = []
    factories = make_factories(trained)
    with pytest.raises(ConfigError, match="unknown game 'pong': did you mean 'Pong'"):
        atari57.run(config(), ["pong"], tmp_path / "new", factories=factories)
    assert not (tmp_path / "new").exists()
    with pytest.raises(ConfigError, match=r"replay\.capacity=1000000000000 takes"):
        atari57.run(config(replay={"capacity": 10**12}), ["Pong"], tmp_path / "new", factories=factories)
    assert not (tmp_path / "new").exists()
    with pytest.raises(ConfigError, match="env='garnet' is no Atari game: give a configuration of one, such as atari"):
        atari57.run(load("garnet"), ["Pong"], tmp_path / "new", factories=factories)
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="file is no directory: choose another --out"):
        atari57.run(config(), ["Pong"], tmp_path / "file", factories=factories)
    (tmp_path / "Pong").mkdir()
    (tmp_path / "Pong/config.yaml").write_text("env: atari/Pong\n")
    with pytest.raises(RunError, match="Pong was trained with another "):
        atari57.run(config(), ["Pong"], tmp_path, factories=factories)
    assert trained == []


def test_the_median_curve_is_of_human_normalised_returns_over_the_common_range():
    low, high = (np.array([SCORES[game][i] for game in ("Pong", "Breakout", "Boxing")]) for i in (0, 1))
    shares = np.array([[0.0, 1.0], [0.5, 0.5], [1.0, 3.0]])  # of the way from random to human, at both log points
    returns = low[:, None] + shares * (high - low)[:, None]
    ends = (100, 50, 100)
    curves = {
        game: Curves(np.array([0, end]), returns[i : i + 1], {})
        for i, (game, end) in enumerate(zip(("Pong", "Breakout", "Boxing"), ends, strict=True))
    }
    steps, median = atari57.median_curve(curves)
    assert steps[-1] == 50
    np.testing.assert_allclose(median[[0, -1]], [0.5, 0.5])
