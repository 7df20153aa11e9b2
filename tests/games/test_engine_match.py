"""Matches against engines that are scripts: side by side as one at a time, and engines that fail."""

import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import jax
import numpy as np
import pytest
from helpers import agents
from helpers.fake_go import COUNTER, PUPPET, policy_by_stones, policy_of

from purejax_sc.cli.commands import main
from purejax_sc.config import from_tree
from purejax_sc.envs import pgx
from purejax_sc.evaluation.matches import FILE, MatchOptions
from purejax_sc.games import engine_match
from purejax_sc.games.engine_match import Game, MatchRunner
from purejax_sc.games.gtp_client import Engine
from purejax_sc.games.player import BatchedGames, GamePlayer, MovePolicy, make_games
from purejax_sc.results.files import RunError

TINY = {"network": {"kind": "mlp", "width": 8, "head_width": 0}, "muesli": {"bins": 5, "bins_max": 2.0}}
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


def compiled(policy: MovePolicy) -> BatchedGames:
    start, advance, search = make_games(pgx.endless_go(5), policy)
    return BatchedGames(jax.jit(start, static_argnums=0), jax.jit(advance), jax.jit(search))


@pytest.fixture(scope="module")
def by_stones() -> BatchedGames:
    """It plays where an agent of the policy alone might: by the position, not by chance."""
    return compiled(policy_by_stones())


def play(programs: BatchedGames, engine: str, games: int, boards: int = 2, timeout: float = 30.0, **options):
    options = MatchOptions(games, boards=boards, timeout=timeout, **{"openings": 0, **options})
    runner = MatchRunner(programs, (), 5, 7.5, engine, options)
    runner.play()
    return runner.games


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
                action = engine.genmove(mover, 5)
                if not player.legal()[action]:
                    return moves
            player.play(action)
            moves.append(action)
    return moves


def test_games_side_by_side_are_those_played_one_at_a_time(by_stones, counter) -> None:
    games = play(by_stones, counter(12), 8, openings=2)
    alone = GamePlayer(pgx.endless_go(5), [policy_by_stones()], ())
    assert [game.moves for game in games] == [one_at_a_time(alone, counter(12), i, 2) for i in range(8)]
    assert [game.colour for game in games] == [0, 1] * 4
    assert games[0].moves[:2] == games[1].moves[:2] != games[2].moves[:2]
    assert len({len(game.moves) for game in games}) > 1, "some end before others, and their boards are used again"


def test_chances_of_a_game_do_not_depend_on_the_others(counter) -> None:
    programs = compiled(policy_of(lambda shown: 99))  # nothing but the key says what it likes
    games = [play(programs, counter(8), 5, boards, openings=1) for boards in (1, 2)]
    assert games[0] == games[1]
    assert len({tuple(game.moves[:6]) for game in games[0]}) == 5


def test_a_game_whose_engine_dies_leaves_the_others_alone(by_stones, counter) -> None:
    games = play(by_stones, counter(8, "white"), 6)
    assert [game.result is None for game in games] == [True, False] * 3
    assert all("never as white" in game.ended for game in games[::2])
    assert games[1].moves == games[3].moves == games[5].moves


def test_no_engine_is_waited_for_when_a_match_is_stopped(by_stones, puppet) -> None:
    play(by_stones, puppet(), 2)  # so that nothing is compiled when it is stopped
    began, threads = time.monotonic(), threading.active_count()
    stop = threading.Timer(1.0, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
    stop.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            play(by_stones, puppet("hang"), 2, timeout=60.0)
    finally:
        stop.cancel()
    assert time.monotonic() - began < 30
    assert threading.active_count() == threads, "engines are read from as long as they run"


def test_a_handicap_is_stones_of_the_agent_between_which_the_engine_passes(by_stones, counter) -> None:
    as_black, as_white = play(by_stones, counter(14), 2, openings=2, handicap=3)
    stones = as_black.moves[2:7:2]
    assert PASS not in stones
    assert len(set(stones)) == 3
    assert as_black.moves[3:7:2] == [PASS] * 2
    assert as_white.moves[2:8] == [PASS, stones[0], PASS, stones[1], PASS, stones[2]]
    # whose turn it is then: the engine's, which was told of all stones, or it would have played where one is
    assert as_black.moves[7] not in as_black.moves[:7]
    assert as_white.moves[8] not in as_white.moves[:8]


@pytest.mark.parametrize(
    ("answers", "ended", "result", "record"),
    [
        (["resign"], "resignation", 1, "RE[B+R]"),
        (["hang"], "did not answer 'genmove white' in 1 s", None, "RE[Void]"),
        (["Z9"], "answered genmove with no move", None, "RE[Void]"),
        (["C3", "C3"], "illegal move C3 of the engine", None, "RE[Void]"),
    ],
)
def test_how_a_game_ends(by_stones, puppet, answers, ended, result, record) -> None:
    (game,) = play(by_stones, puppet(*answers), 1, timeout=1.0)
    assert ended in game.ended
    assert game.result == result
    assert record in engine_match.to_sgf(game, 5, 7.5, "me", "it")


def test_an_engine_that_never_finishes_stops_the_match(by_stones, puppet) -> None:
    with pytest.raises(RunError, match=r"3 games were not finished: .* ended with exit status 1 .*out of ideas"):
        play(by_stones, puppet("crash"), 20)


def test_games_are_summarised_by_those_that_count() -> None:
    def game(colour: int, score: str, ended: str = "passes", result: int | None = 1) -> Game:
        return Game(colour, np.random.default_rng(0), [], result, ended, score, "W+0.5")

    games = [
        game(0, "B+17.5"),
        game(1, "B+2.5", "limit", -1),
        game(1, "0", result=-1),
        game(0, "W+0.5", "resignation"),
        game(0, "W+32.5", "it crashed", None),
    ]
    summary = engine_match.summarise(games)
    assert (summary["games"], summary["counted"], summary["wins"]) == (5, 4, 2)
    assert (summary["as_black"], summary["as_white"]) == ({"games": 2, "wins": 2}, {"games": 2, "wins": 0})
    assert summary["lead"] == (17.5 - 2.5 + 0) / 3  # of games that were played out
    assert summary["scores_that_differ"][0] == {"referee": "B+17.5", "engine": "W+0.5"}
    assert len(summary["scores_that_differ"]) == 3
    assert engine_match.summarise(games[3:])["lead"] is None


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


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--opponent", "no_such_engine"], "install 'no_such_engine'"),
        (["--opponent", "sh", "--handicap", "24"], "has 25 points on its board: give fewer --openings and --handicap"),
        (["--opponent", "sh", "--simulations", "2", "--dynamics", "environment"], "leave out --dynamics environment"),
    ],
)
def test_matches_that_cannot_be_played_end_in_one_line(run, tmp_path, capsys, options, words) -> None:
    assert main(["match", str(run), *options, "--out", str(tmp_path / "new")]) == 2
    assert words in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "new").exists()


def test_an_agent_is_an_engine(run, capsys, monkeypatch) -> None:
    commands = "boardsize 5", "play b c3", "2 genmove w", "play w c3", "final_score", "quit", "name"
    monkeypatch.setattr(sys, "stdin", commands)
    assert main(["gtp", str(run), "--agent", "1"]) == 0
    said = capsys.readouterr().out.split("\n\n")
    assert [said[i] for i in (0, 1, 3, 5, 6)] == ["= ", "= ", "? illegal move", "= ", ""]
    assert said[2].startswith("=2 ")
    assert main(["gtp", str(run), "--agent", "7"]) == 2
    assert "choose from 0, 1" in capsys.readouterr().err
