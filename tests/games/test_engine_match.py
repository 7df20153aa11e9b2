"""Matches against engines that are scripts: side by side as one at a time, and engines that fail."""

import io
import json
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from helpers import agents
from helpers.fake_go import COUNTER, PUPPET, policy_by_stones, policy_of

from purejax_sc.cli.commands import main
from purejax_sc.config import from_tree
from purejax_sc.envs import pgx
from purejax_sc.evaluation.matches import FILE, MatchOptions
from purejax_sc.games import engine_match, gtp
from purejax_sc.games.engine_match import Game
from purejax_sc.games.gtp import Engine
from purejax_sc.games.notation import COLOURS
from purejax_sc.games.player import BatchedGames, GamePlayer, make_games
from purejax_sc.results.files import RunError

TINY = {"network": {"kind": "mlp", "width": 8, "head_width": 0}, "muesli": {"bins": 5, "value_max": 2.0}}
PASS = 25
Command = Callable[..., str]


@pytest.fixture
def puppet(tmp_path: Path) -> Command:
    return script(tmp_path / "puppet.py", PUPPET)


@pytest.fixture
def counter(tmp_path: Path) -> Command:
    return script(tmp_path / "counter.py", COUNTER)


def script(path: Path, text: str) -> Command:
    path.write_text(text)
    return lambda *words: f"{sys.executable} -I -S {path} {' '.join(map(str, words))}"


@pytest.fixture(scope="module")
def by_stones() -> BatchedGames:
    """It plays where an agent of the policy alone might: by the position, not by chance."""
    return make_games(pgx.endless_go(5), policy_by_stones())


def play(programs: BatchedGames, engine: str, games: int, boards: int = 2, openings: int = 0) -> list[Game]:
    return engine_match.play_games(programs, (), 5, engine, MatchOptions(games, openings), boards)[1]


def one_at_a_time(player: GamePlayer, command: str, number: int, openings: int) -> list[int]:
    """The moves of one game, by nothing but a player of one board and an engine."""
    moves, rng = [], np.random.default_rng([0, number // 2])
    player.clear()
    with closing(Engine(command)) as engine:
        engine.set_up(5, 7.5)
        while moves[-2:] != [PASS, PASS] and len(moves) < 100:
            mover = len(moves) % 2
            if len(moves) < openings:
                action = next(int(x) for x in rng.permutation(25) if player.legal()[x])
                engine.play(mover, action, 5)
            elif mover == number % 2:
                action = int(player.search().action)
                engine.play(mover, action, 5)
            else:
                engine.write(f"genmove {COLOURS[mover]}")
                action = engine.read_move(5)
                if not player.legal()[action]:
                    return moves
            player.play(action)
            moves.append(action)
    return moves


def test_games_side_by_side_are_those_played_one_at_a_time(by_stones, counter) -> None:
    games = play(by_stones, counter(12), 6, openings=2)
    alone = GamePlayer(pgx.endless_go(5), policy_by_stones(), ())
    assert [game.moves for game in games] == [one_at_a_time(alone, counter(12), i, 2) for i in range(6)]
    assert [game.colour for game in games] == [0, 1] * 3
    assert games[0].moves[:2] == games[1].moves[:2] != games[2].moves[:2]
    assert len({len(game.moves) for game in games}) > 1, "some end before others"


def test_chances_of_a_game_do_not_depend_on_the_others(counter) -> None:
    programs = make_games(pgx.endless_go(5), policy_of(lambda shown: 99))  # nothing but the key says what it likes
    games = [play(programs, counter(8), 5, boards, openings=1) for boards in (1, 2)]
    assert games[0] == games[1]
    assert len({tuple(game.moves[:6]) for game in games[0]}) == 5


@pytest.mark.parametrize(
    ("answers", "ended", "record"),
    [(["resign"], ("resignation", True), "RE[B+R]"), (["C3", "C3"], ("illegal move", None), "RE[Void]")],
)
def test_an_engine_loses_by_resigning_and_its_illegal_move_does_not_count(
    by_stones, puppet, answers, ended, record
) -> None:
    (game,) = play(by_stones, puppet(*answers), 1)
    assert (game.ended, game.won) == ended
    assert record in engine_match.to_sgf(game, 5, "me", "it")
    assert engine_match.summarise([game])["counted"] == (game.won is True)


@pytest.mark.parametrize("answer", ["crash", "hang"])
def test_an_engine_that_fails_stops_the_match(by_stones, puppet, answer, monkeypatch) -> None:
    monkeypatch.setattr(gtp, "TIMEOUT", 1.0)
    with pytest.raises(RunError, match=r"puppet.py.* ended, or was silent for 1 s: run it in a terminal"):
        play(by_stones, puppet(answer), 20)


def test_games_are_summarised() -> None:
    games = [
        Game(0, [], True, "passes", "B+17.5"),
        Game(1, [], False, "limit", "B+2.5"),
        Game(1, [], True, "passes", "W+0.5"),
        Game(0, [], True, "resignation", "W+0.5"),
    ]
    summary = engine_match.summarise(games)
    assert (summary["games"], summary["wins"]) == (4, 3)
    assert (summary["as_black"], summary["as_white"]) == ({"games": 2, "wins": 2}, {"games": 2, "wins": 1})
    assert summary["ended"] == {"passes": 2, "limit": 1, "resignation": 1}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    config = from_tree({"env": "pgx/go_5x5", **TINY})
    return agents.save(agents.untrained(config, (0, 1)), tmp_path_factory.mktemp("runs") / "go")


def test_every_seed_plays_an_engine_and_the_games_are_kept(run, puppet, tmp_path, capsys) -> None:
    out = tmp_path / "match"
    options = ["--opponent", puppet("resign"), "--games", "2", "--boards", "1", "--out", str(out)]
    assert main(["match", str(run), *options]) == 0
    report = json.loads((out / FILE).read_text())
    assert [row["seed"] for row in report["seeds"]] == [0, 1]
    assert report["runs"][0]["win_rate"] == 1.0
    games = sorted(path.name for path in (out / "games").iterdir())
    assert games == [f"0_seed_{seed}_game_00{i}.sgf" for seed in (0, 1) for i in (0, 1)]
    assert "PB[Puppet 1]" in (out / "games" / games[1]).read_text()
    assert "Puppet 1" in capsys.readouterr().out


def test_an_engine_that_is_not_installed_is_one_line(run, tmp_path, capsys) -> None:
    assert main(["match", str(run), "--opponent", "no_such_engine", "--out", str(tmp_path / "new")]) == 2
    assert "install 'no_such_engine'" in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "new").exists()


def test_an_agent_is_an_engine(run, capsys, monkeypatch) -> None:
    commands = "boardsize 5", "play b c3", "2 genmove w", "play w c3", "final_score", "quit", "name"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(commands).encode())))
    assert main(["gtp", str(run)]) == 0
    said = capsys.readouterr().out.split("\n\n")
    assert [said[i] for i in (0, 1, 3, 5, 6)] == ["= ", "= ", "? illegal move", "= ", ""]
    assert said[2].startswith("=2 ")
