"""Sweeps: the grid, its programs, and what they leave."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from helpers.files import read_rows
from helpers.runs import counting

from purejax_sc.agent.consistency import UPDATES
from purejax_sc.cli.commands import main
from purejax_sc.config import ConfigError
from purejax_sc.results import plots
from purejax_sc.results.curves import Curves
from purejax_sc.results.files import RunError
from purejax_sc.runs import experiments
from purejax_sc.runs.experiments import Results
from purejax_sc.runs.fit import as_program, program_of
from purejax_sc.runs.sweep import Result, draw, parse, score
from purejax_sc.types import Gates

GRID = ["hyper.learning_rate=1e-3,1e-2", "hyper.sc_weight=0,0.5"]


@pytest.fixture(scope="module")
def smoke(tmp_path_factory) -> Path:
    """A sweep with a trainer that counts."""
    with counting():
        return sweep(tmp_path_factory.mktemp("sweeps") / "smoke", *GRID, "--seeds", "2")


@pytest.fixture(scope="module")
def updates(tmp_path_factory) -> Path:
    return sweep(tmp_path_factory.mktemp("sweeps") / "updates", "sc.update=none,reverse,direct")


def sweep(out: Path, *words: str) -> Path:
    assert main(["sweep", "smoke", *words, "--quiet", "--out", str(out)]) == 0
    return out


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_grid_of_hyper_parameters_is_one_program(smoke: Path) -> None:
    report = json.loads((smoke / "sweep.json").read_text())
    assert [(s["hyper.learning_rate"], s["hyper.sc_weight"]) for s in report["settings"]] == [
        ("1e-3", "0"), ("1e-3", "0.5"), ("1e-2", "0"), ("1e-2", "0.5"),
    ]  # fmt: skip
    assert (smoke / "sweep.png").read_bytes().startswith(b"\x89PNG")


def test_every_setting_and_seed_has_a_row_and_a_curve(smoke: Path) -> None:
    rows, curves = rows_of(smoke / "sweep.csv"), rows_of(smoke / "curves.csv")
    assert list(rows[0]) == ["hyper.learning_rate", "hyper.sc_weight", "seed", "final_return", "auc", "lost"]
    assert [row["seed"] for row in rows] == ["0", "1"] * 4
    assert len(curves) == len(rows) * 4  # log points


@pytest.mark.slow  # of the learner alone, tests/training/test_anakin.py says the same
def test_a_row_equals_the_run_of_its_setting(tmp_path: Path) -> None:
    swept = sweep(tmp_path / "sweep", *GRID, "--seeds", "2")
    words = ["hyper.learning_rate=1e-2", "hyper.sc_weight=0.5", "seed=1", "--out", str(tmp_path / "run")]
    assert main(["train", "smoke", "--quiet", *words]) == 0
    chosen = {"hyper.learning_rate": "1e-2", "hyper.sc_weight": "0.5", "seed": "1"}
    curve = [row for row in rows_of(swept / "curves.csv") if chosen.items() <= row.items()]
    assert [row["episode_return"] for row in curve] == [row["episode_return"] for row in read_rows(tmp_path / "run")]


def test_other_settings_are_a_program_each() -> None:
    settings = parse("smoke", ["sc.unroll=2,3", "hyper.learning_rate=1e-3,1e-2", "train.env_steps=2048"])
    assert [x.arm.name for x in settings[:1]] == ["sc.unroll=2 hyper.learning_rate=1e-3"]
    programs = [program_of(setting.config) for setting in settings]
    assert [programs.index(program) for program in programs] == [0, 0, 2, 2]
    assert all(setting.config.train.env_steps == 2048 for setting in settings)


def test_updates_are_rows_of_one_program() -> None:
    settings = parse("smoke", ["sc.update=none,dyna,direct", "hyper.learning_rate=1e-3,1e-2"])
    assert len({program_of(setting.config) for setting in settings}) == 1
    config, hypers = as_program([setting.config for setting in settings])
    assert config.sc.update == "dyna"  # any that is not the baseline: its gates are replaced
    assert [hyper.gates for hyper in hypers[::2]] == [Gates(0, 0, 0), UPDATES["dyna"], UPDATES["direct"]]
    assert [hyper.sc_weight for hyper in hypers[::2]] == [0, 0.25, 0.25]
    assert [hyper.learning_rate for hyper in hypers] == [1e-3, 1e-2] * 3


def test_an_only_update_keeps_the_gates_that_are_known() -> None:
    settings = parse("smoke", ["sc.update=dyna", "hyper.learning_rate=1e-3,1e-2"])
    config, hypers = as_program([setting.config for setting in settings])
    assert config.sc.update == "dyna"
    assert [hyper.gates for hyper in hypers] == [None, None]


@pytest.mark.slow  # of the learner alone, tests/training/test_anakin.py says the same
@pytest.mark.parametrize("update", ["none", "reverse"])
def test_a_row_of_an_update_equals_its_run(updates: Path, tmp_path: Path, update: str) -> None:
    assert main(["train", "smoke", "--quiet", f"sc.update={update}", "--out", str(tmp_path / "run")]) == 0
    curve = [float(row["episode_return"]) for row in rows_of(updates / "curves.csv") if row["sc.update"] == update]
    np.testing.assert_allclose(curve, [float(row["episode_return"]) for row in read_rows(tmp_path / "run")], rtol=1e-5)


def test_commas_inside_brackets_do_not_separate() -> None:
    settings = parse("minatar_breakout", ["network.channels=[8,8],[16]"])
    assert [setting.values for setting in settings] == [{"network.channels": text} for text in ("[8,8]", "[16]")]
    assert [setting.config.network.channels for setting in settings] == [(8, 8), (16,)]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("hyper.sc_weight", "is not of the form"),
        ("hyper.sc_weight=0.5,0.50", "repeats a value"),
        ("hyper.sc_wait=0,1", "did you mean 'hyper.sc_weight'"),
        ("hyper.sc_weight=0,-1", "hyper.sc_weight=-1: Input should be greater"),
        ("seed=0,1", "--seeds"),
        ("sc.update=none sc.unroll=2", "sc.unroll has no effect with sc.update=none"),
        ("sc.update=none,direct sc.unroll=2,3", "sc.unroll has no effect with sc.update=none: .* sweep it apart"),
    ],
)
def test_mistakes_are_named(word: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse("smoke", word.split())


@pytest.mark.parametrize("words", [[], ["sc.unroll=2"]])
def test_a_sweep_of_one_setting_is_refused(tmp_path: Path, capsys, words: list[str]) -> None:
    assert main(["sweep", "smoke", *words, "--out", str(tmp_path / "new")]) == 2
    assert capsys.readouterr().err == (
        "purejax-sc: nothing is swept: give a key several values, as in hyper.learning_rate=1e-4,1e-3, or use"
        " purejax-sc train\n"
    )
    assert not (tmp_path / "new").exists()


def test_a_value_for_all_settings_may_be_that_of_an_arm_beside_its_baseline() -> None:
    settings = parse("smoke", ["sc.update=none,direct", "sc.unroll=2"])
    assert [setting.config.sc.unroll for setting in settings] == [2, 2]


def test_a_program_that_fails_stops_no_other_and_is_told_at_the_end(tmp_path: Path, capsys, monkeypatch) -> None:
    train = experiments.fit

    def failing(job, session):
        if job[0].config.sc.unroll == 2:
            raise RunError("no room")
        return train(job, session)

    monkeypatch.setattr(experiments, "fit", failing)
    with counting():
        assert main(["sweep", "smoke", "sc.unroll=2,3", "--quiet", "--out", str(tmp_path / "new")]) == 2
    assert re.fullmatch(r"purejax-sc: a program failed, .*new has the others: no room\n", capsys.readouterr().err)
    assert [row["sc.unroll"] for row in rows_of(tmp_path / "new" / "sweep.csv")] == ["3"]


def test_an_existing_directory_is_left_alone(smoke: Path, capsys) -> None:
    before = (smoke / "sweep.csv").read_bytes()
    assert main(["sweep", "smoke", *GRID, "--out", str(smoke)]) == 2
    assert "exists" in capsys.readouterr().err
    assert (smoke / "sweep.csv").read_bytes() == before


def result(values: dict[str, str], returns: list[float], lost: set[int]) -> Result:
    setting = parse("smoke", [f"{key}={value}" for key, value in values.items()])[0]
    curves = Curves(np.array([10]), np.array(returns)[:, None], {})
    return setting._replace(values=values), Results([], list(range(len(returns))), curves, lost, [])


def test_lost_seeds_do_not_count_in_the_picture() -> None:
    one = result({"hyper.sc_weight": "1"}, [1.0, 3.0, 100.0], {2})
    centre, low, high = score(one[1])
    assert centre == 2.0
    assert 1.0 <= low <= high <= 3.0
    assert np.isnan(score(result({"hyper.sc_weight": "1"}, [1.0], {0})[1])[0])


@pytest.mark.parametrize("keys", [["hyper.sc_weight"], ["sc.update"], ["hyper.sc_weight", "hyper.lambda_"]])
def test_every_kind_of_grid_is_drawn(keys: list[str]) -> None:
    values = {"hyper.sc_weight": ["0", "1"], "sc.update": ["none", "dyna"], "hyper.lambda_": ["0.5", "1"]}
    grids = [dict(zip(keys, (values[key][i] for key in keys), strict=True)) for i in range(2)]
    image = draw([result(grid, [1.0, 2.0], set()) for grid in grids])
    assert image.startswith(b"\x89PNG")


def test_the_axis_spans_intervals_not_differences(monkeypatch) -> None:
    monkeypatch.setattr(plots, "encode", lambda figure, form: figure)
    runs = [result({"hyper.sc_weight": str(i)}, [0.1 * i, 2.0 + 0.1 * i], set()) for i in range(2)]
    [axes] = draw(runs).axes
    [line, *_] = axes.lines
    bottom, top = axes.get_ylim()
    assert np.ptp(line.get_ydata()) < 0.1 * (top - bottom)  # means 1.0 and 1.1, each interval two wide
    for _, low, high in (score(found) for _, found in runs):
        assert bottom < low < high < top


def test_updates_have_their_names_and_colours(monkeypatch) -> None:
    monkeypatch.setattr(plots, "encode", lambda figure, form: figure)
    [axes] = draw([result({"sc.update": name}, [1.0], set()) for name in ("direct", "none")]).axes
    lines = {line.get_label(): line.get_color() for line in axes.lines}
    assert lines == {"SC-Direct": plots.METHODS["direct"][1], "Muesli": plots.METHODS["none"][1]}
