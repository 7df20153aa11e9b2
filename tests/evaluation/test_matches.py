"""Matches between agents: ratings, intervals, searches of their own, and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import agents

from purejax_sc.agent.search import NO_SEARCH, SearchOptions
from purejax_sc.cli.commands import main
from purejax_sc.config import from_tree
from purejax_sc.evaluation import matches
from purejax_sc.evaluation.matches import Entrant
from purejax_sc.evaluation.ratings import rate

TINY = {"network": {"kind": "mlp", "width": 8, "head_width": 0}, "muesli": {"bins": 5, "value_max": 2.0}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    games = (("go", "pgx/go_5x5", (0, 1)), ("xo", "pgx/tic_tac_toe", (0,)), ("xo2", "pgx/tic_tac_toe", (0, 1)))
    for name, env, seeds in (*games, ("one_player", "gymnax/Catch-bsuite", (0,))):
        agents.save(agents.untrained(from_tree({"env": env, **TINY}), seeds), folder / name)
    return folder


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
    return Entrant("", list(seeds), *[None] * 5)


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
    names = [f"{runs}/xo2", f"{runs}/xo2:2:gumbel"]
    assert main(["match", *names, "--games", "8", "--out", str(out)]) == 0
    report = json.loads((out / matches.FILE).read_text())
    header, *rows = capsys.readouterr().out.splitlines()
    assert (header.split()[-1], rows[0].split()[-1]) == ("over", "meetings")
    (pair,) = report["pairs"]
    assert [meeting["seeds"] for meeting in pair["meetings"]] == [[0, 0], [1, 1]]
    np.testing.assert_allclose(np.mean([meeting["score"] for meeting in pair["meetings"]]), pair["score"])


def test_the_search_of_an_entrant_is_its_own(tmp_path) -> None:
    assert matches.parse_entrant("runs/a") == (Path("runs/a"), NO_SEARCH)
    assert matches.parse_entrant("runs/a:0")[1].simulations == 0
    assert matches.parse_entrant("runs/a:32") == (Path("runs/a"), SearchOptions(32, "muzero"))
    assert matches.parse_entrant("runs/a:32:gumbel")[1] == SearchOptions(32, "gumbel")
    (tmp_path / "a:32").mkdir()
    assert matches.parse_entrant(f"{tmp_path}/a:32") == (tmp_path / "a:32", NO_SEARCH)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{runs}/xo"], "one run alone cannot play a match"),
        (["{runs}/xo", "{runs}/xo"], "against itself"),
        (["random", "{runs}/one_player"], "has one player"),
        (["{runs}/xo", "{runs}/go"], "different games"),
        (["{runs}/xo", "--opponent", "gnugo"], "does not play Go"),
        (["{runs}/nothing", "random"], "give one that train or export wrote"),
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
