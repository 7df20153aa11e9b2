"""Runs: the files that they leave, what they report, and how they end when something goes wrong."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.files import read_rows

from purejax_sc import config
from purejax_sc.cli.commands import main
from purejax_sc.results import statistics
from purejax_sc.results.curves import COLUMNS, read_curves, summarise
from purejax_sc.results.files import RunError, replace_file
from purejax_sc.runs import train as runs
from purejax_sc.training.anakin import Trainer
from purejax_sc.training.compiled import chunk_sizes
from purejax_sc.training.iteration import TrainState

FILES = {"config.yaml", "metrics.csv", "summary.json", "curves.png", "checkpoints"}
FRESH = ["train.replay_share=0", "train.batch_sequences=8"]  # for the fake trainer, which has no replay


def fake_trainer(bad_seed: int = -1, bad_after: int = 0) -> Trainer:
    """Counts iterations. The return is 10 * seed + count; no episode ends in the first two iterations."""

    def init(key):
        seed = jax.random.key_data(key)[-1].astype(jnp.float32)
        return TrainState({"seed": seed, "count": jnp.float32(0)}, (), (), (), (), key)

    def iterate(whole, hyper):
        state = whole.learner
        count = state["count"] + 1
        bad = (state["seed"] == bad_seed) & (count > bad_after)
        ended = jnp.where(count > 2, 2.0, 0.0)
        loss = jnp.where(bad, jnp.nan, hyper.learning_rate)
        metrics = {
            "episode_count": ended,
            "episode_return_sum": ended * (10 * state["seed"] + count),
            "episode_length_sum": ended * 7,
            "loss": loss,
            "loss_value": loss,
            "loss_reward": jnp.float32(1.0),
            "aux": loss,
        }
        return whole._replace(learner={"seed": state["seed"], "count": count}), metrics

    return Trainer(init, iterate, lambda state: (state, {}))


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """run.train with a fake trainer: 16 iterations in 4 log points, one of which has no episode in its first half."""

    def train(num_seeds=2, bad_seed=-1, bad_after=0, overrides=(), **options):
        monkeypatch.setattr("purejax_sc.training.mesh.make_trainer", lambda *_, **__: fake_trainer(bad_seed, bad_after))
        return runs.train(config.load("smoke", [*FRESH, *overrides]), tmp_path / "run", num_seeds, **options)

    return train


@pytest.fixture(scope="module")
def smoke(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "smoke"
    assert main(["train", "smoke", "--seeds", "2", "--out", str(out), "seed=3"]) == 0
    return out


def test_smoke_run_leaves_every_file(smoke: Path) -> None:
    names = {path.name for path in smoke.iterdir()}
    assert {name for name in names if not name.startswith("events.out.tfevents.")} == FILES
    assert len(names) == len(FILES) + 1
    assert (smoke / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert config.load(smoke / "config.yaml") == config.load("smoke", ["seed=3"])


def test_smoke_run_has_one_row_per_seed_and_log_point(smoke: Path) -> None:
    rows = read_rows(smoke)
    assert tuple(rows[0])[: len(COLUMNS)] == COLUMNS
    assert [row["seed"] for row in rows] == ["3", "4"] * 4
    # 16 iterations of 8 * 8 = 64 steps, with one update each
    assert [int(row["env_steps"]) for row in rows[::2]] == [256, 512, 768, 1024]
    assert [int(row["update"]) for row in rows[::2]] == [4, 8, 12, 16]
    assert all(np.isfinite(float(row["loss"])) for row in rows)
    assert all(-1 <= float(row["episode_return"]) <= 1 for row in rows)


def test_smoke_run_is_summarised(smoke: Path) -> None:
    summary = json.loads((smoke / "summary.json").read_text())
    assert summary["status"] == "complete"
    assert summary["seeds"] == [3, 4]
    assert (summary["env_steps"], summary["updates"]) == (1024, 16)
    assert len(summary["return"]["final_return"]) == 2
    low, high = summary["return"]["mean_interval"]
    assert low <= summary["return"]["mean"] <= high
    assert summary["compile_seconds"] > 0
    assert summary["env_steps_per_second"] == pytest.approx(2 * 1024 / summary["run_seconds"])
    assert summary["memory"]["replay_bytes"] < summary["memory"]["state_bytes"]
    assert {"python", "jax", "jaxlib", "flax", "optax", "gymnax", "purejax_sc"} <= set(summary["versions"])


def test_single_run_equals_its_row_in_a_sweep(smoke: Path, tmp_path: Path) -> None:
    assert main(["train", "smoke", "--out", str(tmp_path / "one"), "--quiet", "seed=4"]) == 0
    single, swept = read_rows(tmp_path / "one"), [row for row in read_rows(smoke) if row["seed"] == "4"]
    for ours, theirs in zip(single, swept, strict=True):
        assert float(ours["loss"]) == pytest.approx(float(theirs["loss"]), rel=1e-3)
        assert ours["episode_return"] == theirs["episode_return"]


def test_chunks_differ_by_at_most_one_and_cover_the_run() -> None:
    assert chunk_sizes(10, 4) == [2, 3, 2, 3]
    assert chunk_sizes(3, 100) == [1, 1, 1]


def test_episodes_are_averaged_where_some_ended(fake, tmp_path: Path) -> None:
    summary = fake(overrides=["train.log_points=16"])
    rows = read_rows(tmp_path / "run")
    assert [row["episode_return"] for row in rows[:6]] == ["", "", "", "", "3", "13"]
    assert [row["episodes"] for row in rows[:6]] == ["0", "0", "0", "0", "2", "2"]
    assert rows[-1]["episode_length"] == "7"
    # the last tenth of 14 points with episodes is one point: iteration 16
    assert summary["return"]["final_return"] == [16.0, 26.0]


def test_parts_of_the_loss_come_before_their_sum(fake, tmp_path: Path) -> None:
    fake()
    names = list(read_rows(tmp_path / "run")[0])
    assert names[len(COLUMNS) :] == ["episodes", "loss_reward", "loss_value", "loss", "aux"]


def test_one_seed_has_no_interval(fake) -> None:
    summary = fake(num_seeds=1)
    assert summary["return"]["mean_interval"] is None
    assert summary["return"]["iqm_interval"] is None


def test_hyper_parameters_reach_the_program(fake, tmp_path: Path) -> None:
    fake(overrides=["hyper.learning_rate=0.125"])
    assert {row["loss_value"] for row in read_rows(tmp_path / "run")} == {"0.125"}


def test_non_finite_metric_stops_the_run(fake, tmp_path: Path) -> None:
    # seed 1 fails in iteration 6, hence in the second chunk of 4
    with pytest.raises(runs.NonFiniteError, match="loss_value is nan for seed 1 by environment step 512"):
        fake(bad_seed=1, bad_after=5)
    rows = read_rows(tmp_path / "run")
    assert len(rows) == 4
    assert rows[-1]["loss_value"] == "nan"
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "non-finite"


def test_non_finite_metric_is_one_line(monkeypatch, capsys, tmp_path: Path) -> None:
    monkeypatch.setattr("purejax_sc.training.mesh.make_trainer", lambda *_, **__: fake_trainer(bad_seed=0))
    assert main(["train", "smoke", *FRESH, "--quiet", "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("purejax-sc: loss_value is nan for seed 0")
    assert error.count("\n") == 1


def test_interrupted_run_keeps_whole_rows(monkeypatch, capsys, tmp_path: Path) -> None:
    def add_then_stop(recorder, point, seconds, add=runs.Recorder.add):
        add(recorder, point, seconds)
        if point.update == 8:
            raise KeyboardInterrupt

    monkeypatch.setattr("purejax_sc.training.mesh.make_trainer", lambda *_, **__: fake_trainer())
    monkeypatch.setattr(runs.Recorder, "add", add_then_stop)
    assert main(["train", "smoke", *FRESH, "--quiet", "--out", str(tmp_path / "run")]) == 130
    assert "what was written stays" in capsys.readouterr().err
    assert len(read_rows(tmp_path / "run")) == 2
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "stopped"


def test_force_replaces_a_run(fake, tmp_path: Path) -> None:
    fake(num_seeds=2)
    with pytest.raises(RunError, match="--force"):
        fake(num_seeds=1)
    assert len(read_rows(tmp_path / "run")) == 8
    fake(num_seeds=1, force=True)
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


def test_plot_draws_and_prints_several_runs(fake, capsys, tmp_path: Path, monkeypatch) -> None:
    fake(num_seeds=2)
    (tmp_path / "run").rename(tmp_path / "first")
    fake(num_seeds=1)
    monkeypatch.chdir(tmp_path)
    assert main(["plot", "first", "run", "--out", "both.png"]) == 0
    assert (tmp_path / "both.png").read_bytes().startswith(b"\x89PNG")
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:2] == ["first", "2"]
    assert lines[2].split()[:2] == ["run", "1"]


def test_curves_read_back_equal_those_recorded(fake, tmp_path: Path) -> None:
    summary = fake(overrides=["train.log_points=16"])
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
