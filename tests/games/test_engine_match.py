"""Matches against engines that are scripts: side by side as one at a time, and engines that fail."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import agents
from helpers.fake_go import COUNTER, PUPPET, policy_by_stones, policy_of

from purejax_sc.cli.commands import main
from purejax_sc.config import from_tree
from purejax_sc.envs import pgx
from purejax_sc.evaluation.matches import FILE, MatchOptions
from purejax_sc.games import engine_match, gtp
from purejax_sc.games.engine_match import Game
from purejax_sc.games.notation import parse_vertex, vertex
from purejax_sc.games.player import GamePlayer
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
def by_stones() -> GamePlayer:
    """It plays where an agent of the policy alone might: by the position, not by chance."""
    return GamePlayer(pgx.endless_go(5), policy_by_stones(), ())


def play(player: GamePlayer, engine: str, games: int, boards: int = 2, openings: int = 0) -> list[Game]:
    return engine_match.play_games(player, (), 5, engine, MatchOptions(games, openings), boards)[1]


def of_counter(moves: list[int], limit: int) -> int:
    """The move of `COUNTER` after these."""
    names = [vertex(action, 5) for action in moves]
    points = [f"{column}{row}" for column in "ABCDE" for row in range(1, 6)]
    start = sum(points.index(name) for name in names if name in points) % 25
    free = [name for name in points[start:] + points[:start] if name not in names]
    return parse_vertex(free[0] if free and len(moves) < limit else "PASS", 5)


def test_every_move_is_that_of_the_side_whose_turn_it_is(by_stones, counter) -> None:
    games = play(by_stones, counter(12), 6, openings=2)
    for game in games:
        by_stones.clear()
        for ply, action in enumerate(game.moves):
            if ply >= 2:
                agents_turn = ply % 2 == game.colour
                assert action == (by_stones.search().action if agents_turn else of_counter(game.moves[:ply], 12))
            assert by_stones.legal()[action]
            by_stones.play(action)
        if game.ended == "illegal move":
            assert not by_stones.legal()[of_counter(game.moves, 12)]
        else:
            assert game.moves[-2:] == [PASS, PASS]
    assert [game.colour for game in games] == [0, 1] * 3
    assert games[0].moves[:2] == games[1].moves[:2] != games[2].moves[:2]
    assert len({len(game.moves) for game in games}) > 1, "some end before others"


def test_chances_of_a_game_do_not_depend_on_the_others(counter) -> None:
    player = GamePlayer(pgx.endless_go(5), policy_of(lambda shown: 99), ())  # nothing but the key says what it likes
    games = [play(player, counter(8), 5, boards, openings=1) for boards in (1, 2, 5)]
    assert games[0] == games[1] == games[2]
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
