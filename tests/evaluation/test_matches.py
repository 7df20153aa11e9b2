"""Matches: ratings, players of Go, games against engines that behave and that do not, and being an engine oneself."""

import json
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import agents
from helpers.hostile_engines import MARK, survivors

from purejax_sc.agent.search import SearchOptions, SearchResult
from purejax_sc.cli.commands import main
from purejax_sc.config import from_tree
from purejax_sc.envs import episodes
from purejax_sc.evaluation import engines, go_board, gtp, matches
from purejax_sc.evaluation.go_player import GoPlayer
from purejax_sc.evaluation.gtp_engine import Engine, GtpError
from purejax_sc.evaluation.matches import Entrant
from purejax_sc.evaluation.minds import Mind
from purejax_sc.evaluation.ratings import rate
from purejax_sc.evaluation.simultaneous import Simultaneous, make_simultaneous
from purejax_sc.results.files import RunError

TINY = {"network": {"kind": "mlp", "width": 8, "head_width": 0}, "muesli": {"bins": 5, "bins_max": 2.0}}
PASS = 25
# Answers genmove with the vertices of its arguments, in order, and then passes. `crash` ends it, `hang` silences it.
ENGINE = """\
import sys, time
answers = sys.argv[1:]
for line in sys.stdin:
    command, *_ = line.split()
    text = ""
    if command in ("name", "version"):
        text = {"name": "Puppet", "version": "1"}[command]
    elif command == "genmove":
        text = answers.pop(0) if answers else "PASS"
        if text == "crash":
            sys.exit("out of ideas")
        if text == "hang":
            time.sleep(60)
    elif command == "final_score":
        text = "W+0.5"
    print(f"= {text}\\n", flush=True)
    if command == "quit":
        break
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    games = (("go", "pgx/go_5x5", (0, 1)), ("xo", "pgx/tic_tac_toe", (0,)), ("xo2", "pgx/tic_tac_toe", (0, 1)))
    for name, env, seeds in (*games, ("one_player", "gymnax/Catch-bsuite", (0,))):
        agents.save(agents.untrained(from_tree({"env": env, **TINY}), seeds), folder / name)
    return folder


@pytest.fixture(scope="module")
def ours(runs) -> Iterator[Engine]:
    """What `purejax-sc gtp` is: an engine, which plays 5x5."""
    with Engine(f"{sys.executable} -m purejax_sc gtp {runs / 'go'}", 120.0) as engine:
        yield engine


@pytest.fixture
def puppet(tmp_path: Path):
    script = tmp_path / "puppet.py"
    script.write_text(ENGINE)
    return lambda *answers: f"{sys.executable} {script} {' '.join(answers)}"


def mind_of(move, value=0.0, simulations=0, seconds=0.0) -> Mind:
    """It plays `move` of how many positions it has been shown, if that is legal, or else any other move.

    value: what it thinks of every position.   seconds: that it takes.
    """

    def think(obs, shown, key):
        if seconds:
            jax.debug.callback(lambda: time.sleep(seconds), ordered=True)
        shown = shown + 1
        likes = jnp.reshape(jax.nn.one_hot(move(shown), 26), (1, 26)) + 0.1 * jax.random.uniform(key, (1, 26))
        weights = jnp.where(obs.legal, likes, 0.0)
        action = jnp.argmax(weights, axis=-1).astype(jnp.int32)
        visits = jnp.round(simulations * weights).astype(jnp.int32)
        found = SearchResult(action, weights, jnp.full(1, value), visits, jnp.full((1, 26), value), action[:, None])
        return found, shown

    return Mind(simulations, lambda num: jnp.zeros(num, jnp.int32), think)


@pytest.fixture(scope="module")
def player() -> GoPlayer:
    return GoPlayer([mind_of(lambda shown: jax.random.randint(jax.random.key(0), (1,), 0, 26))], 5, 7.5)


def on_boards(mind: Mind, num: int = 2, resign: float = 0.0) -> Simultaneous:
    return make_simultaneous(lambda params: [mind], 5, 7.5, num, resign=resign)


@pytest.fixture(scope="module")
def two_boards() -> Simultaneous:
    """It plays where an agent of the policy alone might: by the position, not by chance."""
    return on_boards(by_what_it_sees())


def by_what_it_sees() -> Mind:
    """It likes the moves that a hash of the stones and of the positions it has seen tells."""

    def think(obs, shown, key):
        shown = shown + 1
        planes = obs.frame.reshape(-1).astype(jnp.float32)
        seen = jnp.sum(planes * jnp.arange(1.0, planes.size + 1.0))
        likes = jnp.sin(seen * jnp.arange(1.0, 27.0) + shown.astype(jnp.float32))[None]
        action = jnp.argmax(jnp.where(obs.legal, likes, -2.0), axis=-1).astype(jnp.int32)
        none = jnp.zeros((1, 26))
        return SearchResult(action, none, jnp.zeros(1), none.astype(jnp.int32), none, action[:, None]), shown

    return Mind(0, lambda num: jnp.zeros(num, jnp.int32), think)


def fresh(player: GoPlayer) -> GoPlayer:
    player.clear()
    player.komi = 7.5
    return player


def put(player: GoPlayer, *vertices: str) -> list[bool]:
    """Moves in turn, Black first."""
    return [player.play(i % 2, gtp.parse_vertex(name, player.size)) for i, name in enumerate(vertices)]


# Players of Go


def test_a_player_plays_captures_and_takes_back(player) -> None:
    fresh(player)
    assert put(player, "A1", "A2", "C3", "B1") == [True] * 4  # White takes the corner
    assert player.board()[4].tolist() == [0, -1, 0, 0, 0]
    assert player.undo()
    assert player.board()[4].tolist() == [1, 0, 0, 0, 0]
    assert [player.undo() for _ in range(4)] == [True, True, True, False]
    assert not player.board().any()


def test_a_player_refuses_occupied_points_suicide_ko_and_repetition(player) -> None:
    fresh(player)
    assert put(player, "A2", "E5", "B1", "A1")[-1] is False  # suicide
    assert player.play(1, gtp.parse_vertex("A2", 5)) is False
    fresh(player)
    # a ko around B2 and C2
    assert all(put(player, "B3", "C3", "A2", "D2", "B1", "C1", "E5", "B2", "C2"))
    assert player.board()[3].tolist() == [1, 0, 1, -1, 0]
    before = player.board()
    assert player.play(1, gtp.parse_vertex("B2", 5)) is False
    assert player.play(1, PASS)
    assert player.play(0, PASS)
    assert player.play(1, gtp.parse_vertex("B2", 5)) is False  # no longer a ko, but the position was there
    np.testing.assert_array_equal(player.board(), before)


def test_a_colour_may_move_twice_and_play_goes_on_after_two_passes(player) -> None:
    fresh(player)
    assert player.play(0, 0)
    assert player.play(0, 1)  # handicap stones
    assert player.play(1, PASS)
    assert player.play(0, PASS)
    assert player.play(0, 2)
    assert player.board()[0].tolist() == [1, 1, 1, 0, 0]
    assert player.undo()  # with the pass that was put in
    assert player.board()[0].tolist() == [1, 1, 0, 0, 0]
    assert player.choose(1) in range(26)


def test_an_agent_that_remembers_is_shown_every_position_once() -> None:
    player = GoPlayer([mind_of(lambda shown: shown)], 5, 7.5)  # its move is the number of positions shown to it
    player.play(0, 0)
    assert player.choose(1) == 2
    player.play(0, 1)
    assert player.choose(1) == 4
    player.undo()
    assert player.choose(1) == 4
    player.undo()
    player.undo()
    assert player.choose(0) == 3


@pytest.mark.parametrize(("value", "resigns"), [(-0.9, True), (-0.79, False), (1.0, False)])
def test_a_player_resigns_where_it_is_told_to(value, resigns) -> None:
    player = GoPlayer([mind_of(lambda shown: 12, value)], 5, 7.5, resign=0.1)  # a chance of (1 + value) / 2
    assert (player.choose(0) is None) is resigns
    assert player.board().any() != resigns
    assert GoPlayer([mind_of(lambda shown: 12, -1.0)], 5, 7.5).choose(0) == 12


def test_a_player_tells_what_it_thinks_without_playing() -> None:
    player = GoPlayer([mind_of(lambda shown: 12, 0.5, simulations=10)], 5, 7.5)
    player.play(0, 3)
    first, *others = player.analyse(0)  # also of a colour that is not to move
    assert (first.action, first.win_rate, first.variation) == (12, 0.75, [12])
    assert first.visits in (10, 11)
    assert all(x.visits == 1 and x.action != 3 for x in others)
    assert player.to_move() == 1
    assert player.board().sum() == 1


def test_a_player_on_a_clock_thinks_as_long_as_fits() -> None:
    moves = [12, 13, 14]  # of the slow mind, a faster one and the fastest
    minds = [mind_of(lambda shown, i=i: moves[i], simulations=1, seconds=(0.4, 0.1, 0.0)[i]) for i in range(3)]
    player = GoPlayer(minds, 5, 7.5)
    assert player.choose(0) == 12  # no clock
    player.set_clocks(gtp.Clock(1000.0))
    for seconds, moves_left, action in ((100.0, 0, 12), (2.0, 1, 12), (0.3, 1, 13), (0.01, 1, 14), (0.0, 0, 14)):
        player.clear()
        player.set_time_left(0, seconds, moves_left)
        assert player.choose(0) == action, seconds
    player.clear()
    player.set_clocks(None)
    assert player.choose(0) == 12


def test_a_resignation_of_the_agent_is_a_loss(puppet) -> None:
    player = on_boards(mind_of(lambda shown: 12, -1.0), 1, resign=0.1)
    _, [game] = play(player, puppet(), 1)
    assert (game.ended, game.result) == ("resignation of the agent", -1)
    assert "RE[W+R]" in engines.to_sgf(game, player, "me", "it")


# Engines


def play(player: Simultaneous, command: str, num: int, openings: int = 0, timeout: float = 30.0, handicap: int = 0):
    return engines.play_games(player, (), command, num, engines.Opening(openings, handicap), timeout, seed=0)


# Answers genmove with the first empty point after one that the moves so far tell, as `play` and itself have made them:
# never a capture, so it knows no more of the rules. After `limit` moves it passes.
COUNTER = """\
import sys
names = [f"{column}{row}" for column in "ABCDE" for row in range(1, 6)]
played, limit = [], int(sys.argv[1])
for line in sys.stdin:
    command, *words = line.split()
    text = ""
    if command == "clear_board":
        played = []
    elif command == "play":
        played.append(words[1].upper())
    elif command == "genmove":
        start = sum(names.index(name) for name in played if name in names) % 25
        free = [name for name in names[start:] + names[:start] if name not in played]
        text = free[0] if free and len(played) < limit else "PASS"
        played.append(text)
    print(f"= {text}\\n", flush=True)
    if command == "quit":
        break
"""


@pytest.fixture
def counter(tmp_path: Path):
    script = tmp_path / "counter.py"
    script.write_text(COUNTER)
    return lambda limit: f"{sys.executable} -I -S {script} {limit}"


def one_at_a_time(player: GoPlayer, command: str, number: int, openings: int) -> list[int]:
    """The moves of one game, by nothing but a player of one board and an engine."""
    moves, order = [], np.random.default_rng([0, number // 2])
    fresh(player)
    with Engine(command) as engine:
        engine.set_up(5, 7.5)
        for ply in range(openings):
            moves.append(next(int(x) for x in order.permutation(25) if player.play(ply % 2, int(x))))
            engine.play(ply % 2, moves[-1], 5)
        while moves[-2:] != [PASS, PASS] and len(moves) < 100:
            mover = len(moves) % 2
            if mover == number % 2:
                moves.append(player.choose(mover))
                engine.play(mover, moves[-1], 5)
            else:
                moves.append(engine.genmove(mover, 5))
                if not player.play(mover, moves[-1]):
                    return moves[:-1]
    return moves


def test_games_side_by_side_are_those_played_one_at_a_time(counter) -> None:
    mind = by_what_it_sees()
    alone = GoPlayer([mind], 5, 7.5)
    _, games = play(on_boards(mind, 3), counter(12), 8, openings=2)
    assert [game.moves for game in games] == [one_at_a_time(alone, counter(12), i, 2) for i in range(8)]
    assert [game.colour for game in games] == [0, 1] * 4
    assert len({len(game.moves) for game in games}) > 1, "some end before others, and their boards are used again"


def test_chances_of_a_game_do_not_depend_on_the_others(counter) -> None:
    drawn = mind_of(lambda shown: 99)  # nothing but the key says what it likes
    games = [play(on_boards(drawn, num), counter(8), 5, openings=1)[1] for num in (1, 4)]
    assert games[0] == games[1]
    assert len({tuple(game.moves[:6]) for game in games[0]}) == 5


def test_a_game_whose_engine_dies_leaves_the_others_alone(two_boards, tmp_path) -> None:
    script = tmp_path / "no_white.py"
    dies = 'command == "genmove" and words == ["white"] and sys.exit("never as White")'
    script.write_text(COUNTER.replace('    text = ""\n', f'    text = ""\n    {dies}\n'))
    _, games = play(two_boards, f"{sys.executable} -I -S {script} 8", 6)
    assert [game.result is None for game in games] == [True, False] * 3
    assert all("never as White" in game.ended for game in games[::2])
    assert games[1].moves == games[3].moves == games[5].moves


def test_no_engine_is_left_when_a_match_is_stopped(two_boards, puppet, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv(MARK, str(tmp_path))
    play(two_boards, puppet(), 2)  # so that nothing is compiled when it is stopped
    began = time.monotonic()
    stop = threading.Timer(1.0, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
    stop.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            play(two_boards, puppet("hang"), 2, timeout=60.0)
    finally:
        stop.cancel()
    assert time.monotonic() - began < 30  # it did not wait for the engines
    assert survivors(str(tmp_path)) == []


def test_games_are_played_to_the_end_with_both_colours(two_boards, puppet) -> None:
    name, games = play(two_boards, puppet(), 2, openings=2)
    assert name == "Puppet 1"
    assert [game.colour for game in games] == [0, 1]
    assert games[0].moves[:2] == games[1].moves[:2]
    assert games[0].ended in ("passes", "limit")
    summary = engines.summarise(games)
    assert summary["counted"] == summary["games"] == 2
    assert all(pair["engine"] == "W+0.5" for pair in summary["scores_that_differ"])


def test_a_handicap_is_stones_of_the_agent_between_which_the_engine_passes(two_boards, counter) -> None:
    _, (as_black, as_white) = play(two_boards, counter(14), 2, openings=2, handicap=3)
    stones = as_black.moves[2:7:2]
    assert PASS not in stones
    assert len(set(stones)) == 3
    assert as_black.moves[3:7:2] == [PASS] * 2
    assert as_white.moves[2:8] == [PASS, stones[0], PASS, stones[1], PASS, stones[2]]
    # whose turn it is then: the engine's, which was told of all stones, or it would have played where one is
    assert as_black.moves[7] not in as_black.moves[:7]
    assert as_white.moves[8] not in as_white.moves[:8]
    assert {game.ended for game in (as_black, as_white)} <= {"passes", "limit"}


def test_no_more_stones_than_there_is_room_for(two_boards, counter) -> None:
    _, [game] = play(two_boards, counter(0), 1, handicap=40)
    assert game.result is not None
    assert len(game.moves) <= 2 * 25 + 4


def test_the_mean_lead_is_of_games_that_were_played_out() -> None:
    def game(colour: int, score: str, ended: str = "passes", result: int | None = 1) -> engines.GameRecord:
        return engines.GameRecord([], colour, result, ended, score, None)

    games = [
        game(0, "B+17.5"),
        game(1, "B+2.5", "limit", -1),
        game(1, "0", result=-1),
        game(0, "W+32.5", "resignation"),
        game(0, "W+32.5", "engine lost: it crashed", None),
    ]
    assert engines.summarise(games)["lead"] == (17.5 - 2.5 + 0) / 3
    assert engines.summarise(games[3:])["lead"] is None


@pytest.mark.parametrize(
    ("answers", "ended", "result"),
    [
        (["resign"], "resignation", 1),
        (["crash"], "engine lost", None),
        (["hang"], "engine lost", None),
        (["Z9"], "protocol error", None),
    ],
)
def test_engines_that_do_not_finish(two_boards, puppet, answers, ended, result) -> None:
    _, games = play(two_boards, puppet(*answers), 1, timeout=1.0)
    assert ended in games[0].ended
    assert games[0].result == result


def test_an_illegal_move_of_an_engine_does_not_count(two_boards, puppet) -> None:
    games = play(two_boards, puppet("C3", "C3"), 1)[1]
    assert games[0].ended == "illegal move C3 of the engine"
    assert games[0].result is None
    assert engines.to_sgf(games[0], two_boards, "me", "it").count("RE[Void]") == 1


def test_an_engine_that_never_finishes_stops_the_match(two_boards, puppet) -> None:
    with pytest.raises(RunError, match="finished none of 3 games"):
        play(two_boards, puppet("crash"), 20)
    with pytest.raises(RunError, match="install 'no_such_engine'"):
        play(two_boards, "no_such_engine", 1)
    with pytest.raises(RunError, match="ended with exit status 0 before it answered"):
        play(two_boards, f"{sys.executable} -c pass", 1)


def test_the_referee_counts_the_area(player, two_boards) -> None:
    fresh(player)
    opponents_game = engines.GameRecord([12, PASS, PASS], 0, 1, "passes", "B+17.5", None)
    assert "RE[B+17.5]" in engines.to_sgf(opponents_game, two_boards, "me", "it")
    put(player, "C3", "PASS", "PASS")
    assert go_board.score(player.board(), player.komi) == "B+17.5"


# Ratings


def test_ratings_by_hand() -> None:
    pairs = [{"first": "a", "second": "b", "wins": 7, "draws": 1, "losses": 1}]
    (first, second) = rate(["a", "b"], pairs)
    # (7.5 + 0.5) of 10 points: odds of 4
    assert (first["name"], second["name"]) == ("a", "b")
    assert first["elo"] - second["elo"] == pytest.approx(400 * np.log10(4), rel=1e-3)
    assert first["interval"][0] < first["elo"] < first["interval"][1]


def test_ratings_of_three_agree_with_odds_that_multiply() -> None:
    # a beats b with odds of 3, b beats c with odds of 3, so that a beats c with odds of 9; counts include the draw
    pairs = [
        {"first": "a", "second": "b", "wins": 74, "draws": 1, "losses": 24},
        {"first": "b", "second": "c", "wins": 74, "draws": 1, "losses": 24},
        {"first": "a", "second": "c", "wins": 89, "draws": 1, "losses": 9},
    ]
    elo = {row["name"]: row["elo"] for row in rate(["a", "b", "c"], pairs)}
    assert elo["a"] - elo["b"] == pytest.approx(400 * np.log10(3), abs=3)
    assert elo["a"] - elo["c"] == pytest.approx(400 * np.log10(9), abs=6)


# The commands


def test_a_round_robin_is_played_and_written(runs, tmp_path, capsys) -> None:
    out = tmp_path / "match"
    names = [str(runs / "xo"), str(runs / "xo2"), "random"]
    assert main(["match", *names, "--games", "10", "--out", str(out)]) == 0
    report = json.loads((out / matches.FILE).read_text())
    assert [(pair["first"], pair["second"]) for pair in report["pairs"]] == [
        (names[0], names[1]),
        (names[0], names[2]),
        (names[1], names[2]),
    ]
    assert all(pair["wins"] + pair["draws"] + pair["losses"] == 10 for pair in report["pairs"])
    assert {row["name"] for row in report["elo"]} == set(names)
    assert "Elo" in capsys.readouterr().out


def entrant(*seeds: int) -> Entrant:
    return Entrant("", None, list(seeds), None, lambda params: episodes.uniform(), lambda params: [])


def summarise(*meetings: list[float]) -> dict[str, Any]:
    """A pair of as many seeds as meetings against an only one."""
    return matches._summarise_pair([np.array(x) for x in meetings], entrant(*range(len(meetings))), entrant(7))


def test_the_interval_of_a_pair_is_over_meetings_where_seeds_differ() -> None:
    # One seed wins all of its 100 games, the other none: two meetings drawn are 0, 1/2 or 1, at 1/4, 1/2 and 1/4.
    pair = summarise([1] * 100, [-1] * 100)
    assert (pair["score"], pair["interval"], pair["interval_over"]) == (0.5, [0.0, 1.0], "meetings")
    assert [x["seeds"] for x in pair["meetings"]] == [[0, 7], [1, 7]]
    # Both score 3/4, a draw being half a point: nothing depends on the seeds.
    pair = summarise([1, 1, 1, -1], [1, 1, 0, 0])
    assert (pair["score"], pair["interval"], pair["interval_over"]) == (0.75, [0.75, 0.75], "meetings")


def test_a_meeting_counts_by_its_games() -> None:
    # 2 points of 2 games and 1 of 4: 3/6, between what either seed scores.
    pair = summarise([1, 1], [1, -1, -1, -1])
    assert (pair["score"], pair["interval"]) == (0.5, [0.25, 1.0])
    # 2 + 1 + 0 points of 2 + 2 + 4 games.
    assert summarise([1, 1], [1, -1], [-1] * 4)["score"] == 3 / 8


def test_the_interval_of_an_only_meeting_is_over_games() -> None:
    pair = summarise([1] * 50 + [-1] * 50)
    assert (pair["score"], pair["interval_over"]) == (0.5, "games")
    # a binomial share of 100: 1/2 +- 1.645 sqrt(1/4 / 100)
    np.testing.assert_allclose(pair["interval"], [0.5 - 0.082, 0.5 + 0.082], atol=0.011)
    assert summarise([1] * 10)["interval"] == [1.0, 1.0]


def test_a_run_meets_itself_with_another_search(runs, tmp_path, capsys) -> None:
    out = tmp_path / "match"
    names = [f"{runs}/xo2", f"{runs}/xo2:4", f"{runs}/xo2:2:gumbel"]
    assert main(["match", *names, "--games", "8", "--max-depth", "2", "--out", str(out)]) == 0
    report = json.loads((out / matches.FILE).read_text())
    assert report["search"] == SearchOptions(0, max_depth=2)._asdict()
    header, *rows = capsys.readouterr().out.splitlines()
    assert (header.split()[-1], rows[0].split()[-1]) == ("over", "meetings")
    for pair in report["pairs"]:
        assert pair["interval_over"] == "meetings"
        assert [meeting["seeds"] for meeting in pair["meetings"]] == [[0, 0], [1, 1]]
        np.testing.assert_allclose(np.mean([meeting["score"] for meeting in pair["meetings"]]), pair["score"])
    assert [pair["second"] for pair in report["pairs"]] == [names[1], names[2], names[2]]


def test_the_search_of_an_entrant_is_its_own(tmp_path) -> None:
    common = SearchOptions(8, "gumbel", max_depth=3)
    assert matches.parse_entrant("runs/a", common) == (Path("runs/a"), common)
    assert matches.parse_entrant("runs/a:0", common)[1].simulations == 0
    assert matches.parse_entrant("runs/a:32", common) == (Path("runs/a"), common._replace(simulations=32))
    assert matches.parse_entrant("runs/a:32:muzero", common)[1] == SearchOptions(32, "muzero", max_depth=3)
    (tmp_path / "a:32").mkdir()
    assert matches.parse_entrant(f"{tmp_path}/a:32", common) == (tmp_path / "a:32", common)


def test_every_seed_plays_an_engine_and_the_games_are_kept(runs, puppet, tmp_path, capsys) -> None:
    out = tmp_path / "match"
    engine = puppet("resign")
    assert main(["match", str(runs / "go"), "--opponent", engine, "--games", "2", "--out", str(out)]) == 0
    report = json.loads((out / matches.FILE).read_text())
    assert [row["seed"] for row in report["seeds"]] == [0, 1]
    assert report["runs"][0]["win_rate"] == 1.0
    games = sorted(path.name for path in (out / matches.GAMES).iterdir())
    assert games == [f"0_seed_{seed}_game_00{i}.sgf" for seed in (0, 1) for i in (0, 1)]
    assert "RE[B+R]" in (out / matches.GAMES / games[0]).read_text()
    assert "Puppet 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{runs}/xo"], "one run has nobody to play with"),
        (
            ["{runs}/go:2", "--opponent", "gnugo", "--dynamics", "environment"],
            "an engine have no environment to search over: leave out --dynamics",
        ),
        (["{runs}/xo", "{runs}/xo"], "against itself"),
        (["random", "{runs}/one_player"], "has one player"),
        (["{runs}/xo", "{runs}/go"], "different games"),
        (["{runs}/xo", "--opponent", "gnugo"], "does not play Go"),
        (["{runs}/nothing", "random"], "give one that train or export wrote"),
        (["{runs}/go", "--opponent", "no_such_engine"], "install 'no_such_engine'"),
        (["{runs}/go", "--opponent", "gnugo", "--handicap", "24"], "more stones than {runs}/go has points"),
        (["{runs}/go", "random", "--sampled", "--simulations", "2"], "give one of them"),
        (["{runs}/go", "random", "--search", "gumbel"], "--search gumbel needs --simulations"),
        (["{runs}/xo:3", "{runs}/xo:3"], "against itself"),
        (["{runs}/xo:3:alphabeta", "{runs}/xo"], "'alphabeta' is no search: write {runs}/xo:3:muzero or :gumbel"),
        (["{runs}/xo:a", "{runs}/xo"], "give one that train or export wrote"),
    ],
)
def test_matches_that_cannot_be_played_end_in_one_line(runs, tmp_path, capsys, arguments, words) -> None:
    filled = [text.format(runs=runs) for text in arguments]
    assert main(["match", *filled, "--out", str(tmp_path / "new")]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert words.format(runs=runs) in error
    assert not (tmp_path / "new").exists()


def test_results_are_not_overwritten(runs, tmp_path, capsys) -> None:
    (tmp_path / "kept").write_text("mine")
    assert main(["match", str(runs / "xo"), "random", "--out", str(tmp_path)]) == 2
    assert (tmp_path / "kept").read_text() == "mine"


def test_the_engine_command_refuses_what_it_cannot_play(runs, capsys) -> None:
    assert main(["gtp", str(runs / "xo")]) == 2
    assert "does not play Go" in capsys.readouterr().err
    assert main(["gtp", str(runs / "go"), "--agent", "7"]) == 2
    assert "choose from 0, 1" in capsys.readouterr().err


def test_our_engine_speaks_the_protocol(ours) -> None:
    assert ours.name().startswith("purejax_sc go")
    ours.set_up(5, 7.5)
    ours.play(0, 12, 5)
    assert ours.genmove(1, 5) in range(26)
    with pytest.raises(GtpError, match="illegal move"):
        ours.play(0, 12, 5)
    with pytest.raises(GtpError, match="unknown command"):
        ours.send("make me a sandwich")
    ours.send("undo")
    assert ours.final_score() == "B+17.5"
    with pytest.raises(GtpError, match="does not play on 9x9"):
        ours.set_up(9, 7.5)


def test_our_engine_plays_20_games_with_gnu_go(ours, gnugo_command) -> None:
    """Nobody between the two: every move of one is told to the other, and both score the same board."""
    with Engine(gnugo_command, 60.0) as theirs:
        for game in range(20):
            sides = (ours, theirs) if game % 2 == 0 else (theirs, ours)
            for engine in sides:
                engine.set_up(5, 7.5)
            play_out(sides)
            assert ours.final_score() is not None


def play_out(sides: tuple[Engine, Engine]) -> None:
    """A game on 5x5 to two passes, to a resignation or to 100 moves."""
    moves: list[int] = []
    while moves[-2:] != [PASS, PASS] and len(moves) < 100:
        mover = len(moves) % 2
        action = sides[mover].genmove(mover, 5)
        if action is None:
            return
        sides[1 - mover].play(mover, action, 5)
        moves.append(action)
