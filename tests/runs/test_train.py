"""Runs: the files that they leave, what they report, and how they end when something goes wrong."""

import json
import re
from pathlib import Path

import jax
import numpy as np
import pytest
from helpers.files import read_rows
from helpers.runs import Watch, at_once, count, counting

from purejax_sc import config
from purejax_sc.cli.commands import main
from purejax_sc.config import Config
from purejax_sc.envs import network_spec
from purejax_sc.results import statistics
from purejax_sc.results.curves import COLUMNS, read_curves, summarise
from purejax_sc.results.files import RunError, replace_file
from purejax_sc.runs.agents import load_agents, spec_from_tree
from purejax_sc.runs.checkpoint import read_manifest
from purejax_sc.runs.fit import NonFiniteError, train
from purejax_sc.training.compiled import chunk_sizes

SHORT = ["muesli.unroll=1", "sc.update=none"]  # compiles sooner
FILES = {"config.yaml", "metrics.csv", "summary.json", "curves.png", "checkpoints", ".lock"}


def test_smoke_run_leaves_every_file(whole: Path, small: Config) -> None:
    names = {path.name for path in whole.iterdir()}
    assert {name for name in names if not name.startswith("events.out.tfevents.")} == FILES
    assert len(names) == len(FILES) + 1
    assert (whole / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert config.load(whole / "config.yaml") == small


def test_a_checkpoint_knows_what_its_network_sees(whole: Path, small: Config) -> None:
    assert load_agents(whole, pytest.fail).spec == network_spec(small)
    (folder, *_) = (whole / "checkpoints").iterdir()
    assert spec_from_tree(read_manifest(folder)["spec"]) == network_spec(small)


def test_smoke_run_has_one_row_per_seed_and_log_point(whole: Path) -> None:
    rows = read_rows(whole)
    assert tuple(rows[0])[: len(COLUMNS)] == COLUMNS
    assert [row["seed"] for row in rows] == ["0", "1"] * 4
    # 16 iterations of 8 * 8 = 64 steps, with one update each
    assert [int(row["env_steps"]) for row in rows[::2]] == [256, 512, 768, 1024]
    assert [int(row["update"]) for row in rows[::2]] == [4, 8, 12, 16]
    assert all(np.isfinite(float(row["loss"])) for row in rows)
    assert all(-1 <= float(row["episode_return"]) <= 1 for row in rows)


def test_smoke_run_is_summarised(whole: Path) -> None:
    summary = json.loads((whole / "summary.json").read_text())
    assert summary["status"] == "complete"
    assert summary["seeds"] == [0, 1]
    assert (summary["env_steps"], summary["updates"]) == (1024, 16)
    assert len(summary["return"]["final_return"]) == 2
    low, high = summary["return"]["mean_interval"]
    assert low <= summary["return"]["mean"] <= high
    assert summary["compile_seconds"] > 0
    assert summary["env_steps_per_second"] == pytest.approx(2 * 1024 / summary["run_seconds"])
    assert summary["memory"]["replay_bytes"] < summary["memory"]["state_bytes"]
    assert {"python", "jax", "jaxlib", "flax", "optax", "gymnax", "purejax_sc"} <= set(summary["versions"])


def test_chunks_differ_by_at_most_one_and_cover_the_run() -> None:
    assert chunk_sizes(10, 4) == [2, 3, 2, 3]
    assert chunk_sizes(3, 100) == [1, 1, 1]


def test_the_first_chunk_is_divided_where_it_is_long() -> None:
    assert chunk_sizes(60, 3) == [2, 18, 20, 20]
    assert chunk_sizes(60, 3, done=2) == [18, 20, 20]
    assert chunk_sizes(60, 3, done=20) == [20, 20]


def test_episodes_are_averaged_where_some_ended(tmp_path: Path) -> None:
    summary = count(tmp_path / "run", overrides=["train.log_points=16"])
    rows = read_rows(tmp_path / "run")
    assert [row["episode_return"] for row in rows[:6]] == ["", "", "", "", "3", "13"]
    assert [row["episodes"] for row in rows[:6]] == ["0", "0", "0", "0", "2", "2"]
    assert rows[-1]["episode_length"] == "7"
    # the last tenth of 14 points with episodes is one point: iteration 16
    assert summary["return"]["final_return"] == [16.0, 26.0]


def test_parts_of_the_loss_come_before_their_sum(tmp_path: Path) -> None:
    count(tmp_path / "run")
    names = list(read_rows(tmp_path / "run")[0])
    assert names[len(COLUMNS) :] == ["episodes", "loss_reward", "loss_value", "loss", "aux", "replayed"]


def test_one_seed_has_no_interval(tmp_path: Path) -> None:
    summary = count(tmp_path / "run", num_seeds=1)
    assert summary["return"]["mean_interval"] is None
    assert summary["return"]["iqm_interval"] is None


def test_hyper_parameters_reach_the_program(tmp_path: Path) -> None:
    count(tmp_path / "run", overrides=["hyper.learning_rate=0.125"])
    assert {row["loss_value"] for row in read_rows(tmp_path / "run")} == {"0.125"}


@pytest.mark.integration
def test_runs_begin_with_the_parameters_of_others(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    train(config.load("smoke", ["hyper.learning_rate=0", "seed=7", *SHORT]), out, num_seeds=3, init_from=whole)
    theirs, ours = load_agents(whole, pytest.fail).learner.params, load_agents(out, pytest.fail).learner
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(x[[0, 1, 0]], y), theirs, ours.params)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5), ours.params, ours.target)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (["network.width=8"], "network.width is 16 there and 8 here: make them equal"),
        (["env=gymnax/CartPole-v1"], "spec.num_actions is 3 there and 2 here"),
    ],
)
def test_parameters_of_another_network_are_refused(whole: Path, tmp_path: Path, capsys, change, words) -> None:
    out = tmp_path / "run"
    assert main(["train", "smoke", *change, "--init-from", str(whole), "--out", str(out)]) == 2
    assert words in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.slow
def test_a_run_that_begins_with_a_trained_agent_is_better_from_the_first_point(tmp_path: Path) -> None:
    catch = config.load("catch", ["train.env_steps=16_000"])
    train(catch, tmp_path / "first")
    train(catch, tmp_path / "second", init_from=tmp_path / "first")
    first, second = (read_curves(tmp_path / name).returns[0] for name in ("first", "second"))
    assert second[0] > first[0] + 0.5


@pytest.mark.integration
def test_value_targets_beyond_the_bins_are_told_once(whole: Path, tmp_path: Path) -> None:
    assert {row["value_clipped"] for row in read_rows(whole)} == {"0"}
    watch = Watch()
    train(config.load("smoke", ["muesli.value_max=0.001", *SHORT]), tmp_path / "run", **watch.session._asdict())
    (line,) = (text for text in watch.said if "beyond the bins" in text)
    assert line.endswith("raise muesli.value_max=0.001")


def test_non_finite_metric_stops_the_run(tmp_path: Path) -> None:
    # seed 1 fails in iteration 6, hence in the second chunk of 4
    with (
        counting(bad_seed=1, bad_after=5),
        pytest.raises(NonFiniteError, match="loss_value is nan for seed 1 by environment step 512"),
    ):
        train(config.load("smoke"), tmp_path / "run", num_seeds=2)
    rows = read_rows(tmp_path / "run")
    assert len(rows) == 4
    assert rows[-1]["loss_value"] == "nan"
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "non-finite"


def test_non_finite_metric_is_one_line(capsys, tmp_path: Path) -> None:
    words = ["hyper.learning_rate=1e30", "checkpoint.updates=4", *SHORT, "--quiet", "--out", str(tmp_path / "run")]
    assert main(["train", "smoke", *words]) == 2
    error = capsys.readouterr().err
    assert re.match(r"purejax-sc: [a-z_]+ is (nan|-?inf) for seed 0 by environment step 256: see that", error)
    assert error.count("\n") == 1


def test_interrupted_run_keeps_whole_rows(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        count(tmp_path / "run", num_seeds=1, watch=Watch(at=8, stop=at_once))
    assert len(read_rows(tmp_path / "run")) == 2
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "stopped"
    assert not list((tmp_path / "run").glob("checkpoints/[0-9]*"))


def test_a_request_to_stop_is_answered_at_the_next_log_point(tmp_path: Path) -> None:
    watch = Watch(at=8)
    with pytest.raises(KeyboardInterrupt):
        count(tmp_path / "run", num_seeds=1, watch=watch)
    assert "stopping at the next log point; once more stops at once" in watch.said
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "stopped"
    assert [path.name for path in tmp_path.glob("run/checkpoints/[0-9]*")] == ["8"]


def test_force_replaces_a_run(tmp_path: Path) -> None:
    count(tmp_path / "run", num_seeds=2)
    with pytest.raises(RunError, match="--force"):
        count(tmp_path / "run", num_seeds=1)
    assert len(read_rows(tmp_path / "run")) == 8
    count(tmp_path / "run", num_seeds=1, force=True)
    assert len(read_rows(tmp_path / "run")) == 4
    assert len(list((tmp_path / "run").glob("events.*"))) == 1


def test_interrupted_write_leaves_the_old_file(monkeypatch, tmp_path: Path) -> None:
    def killed(*_):
        raise KeyboardInterrupt

    path = tmp_path / "metrics.csv"
    replace_file(path, b"old")
    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"


def test_plot_draws_and_prints_several_runs(capsys, tmp_path: Path, monkeypatch) -> None:
    count(tmp_path / "run", num_seeds=2)
    (tmp_path / "run").rename(tmp_path / "first")
    count(tmp_path / "run", num_seeds=1)
    monkeypatch.chdir(tmp_path)
    assert main(["plot", "first", "run", "--out", "both.png"]) == 0
    assert (tmp_path / "both.png").read_bytes().startswith(b"\x89PNG")
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:2] == ["first", "2"]
    assert lines[2].split()[:2] == ["run", "1"]


def test_curves_read_back_equal_those_recorded(tmp_path: Path) -> None:
    summary = count(tmp_path / "run", overrides=["train.log_points=16"])
    assert summarise(read_curves(tmp_path / "run")) == summary["return"]


def test_interquartile_mean_drops_a_quarter_at_each_end() -> None:
    assert statistics.iqm(np.array([100.0, 1.0, 3.0, -50.0])) == 2.0  # (1 + 3) / 2
    assert statistics.iqm(np.array([1.0, 2.0, 6.0])) == 3.0  # a quarter of three is no whole value


def test_bootstrap_interval_of_equal_values_is_that_value() -> None:
    low, high = statistics.bootstrap_interval(np.full(5, 2.0))
    assert (low, high) == (2.0, 2.0)


def test_bootstrap_interval_holds_the_mean_and_repeats() -> None:
    x = np.arange(10.0)
    low, high = statistics.bootstrap_interval(x)
    assert 0 < low < 4.5 < high < 9
    assert statistics.bootstrap_interval(x) == (low, high)


def test_curve_interval_waits_for_every_seed() -> None:
    low, high = statistics.curve_interval(np.array([[np.nan, 1.0], [0.0, 3.0]]))
    assert np.isnan([low[0], high[0]]).all()
    assert 1 <= low[1] <= 2 <= high[1] <= 3
