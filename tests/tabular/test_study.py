"""The study: options, programs over seeds and settings, scores, files and the command line."""

import csv
import json
import shlex
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purejax_sc.cli.commands import main
from purejax_sc.tabular import compiled, study
from purejax_sc.tabular.compiled import Method, TaskResult
from purejax_sc.tabular.options import TabularOptions, parse, variant

SMALL = ("states=5", "actions=2", "iterations=20", "log_every=10")


@pytest.fixture(autouse=True)
def empty_directory(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def small(**changes) -> TabularOptions:
    return TabularOptions(states=5, actions=2, log_every=10, **changes)


def run(options, variants, seeds=2, control=False):
    return compiled.run(options, control, 20, compiled.stack(variants), seeds)


# Options


def test_defaults_are_the_papers_numbers_but_for_one_in_control() -> None:
    mle, ve = (variant(TabularOptions(), model, "direct") for model in ("mle", "ve"))
    assert (mle.discount, mle.epsilon, mle.td, mle.reward) == (0.99, 0.1, 0.03, 0.03)
    assert (mle.mle, mle.ve, ve.mle, ve.ve) == (1.0, 0.0, 0.0, 3.0)
    # two terms from each of 20 states: a mean divides by 40
    np.testing.assert_allclose([mle.plan_v, mle.plan_r, mle.plan_p], [0.03 / 40, 0.03 / 40, 10.0 / 40])
    assert variant(TabularOptions(), "mle", "direct", control=True) == mle._replace(plan_p=1.0 / 40)
    every = variant(TabularOptions(alpha_sc_mle=3.0, unroll=3), "mle", "direct", control=True)
    np.testing.assert_allclose([every.plan_v, every.plan_p], [0.03 / 60, 3.0 / 60])
    assert ve.plan_p == 0.3 / 2


def test_rates_of_the_sc_step() -> None:
    given = parse(["models=mle", "updates=direct", "alpha_sc_mle=2"])
    assert {numbers.plan_p for _, numbers in study.variants("control", given)} == {2.0 / 40}
    numbers = variant(TabularOptions(alpha_td=0.5), "ve", "residual")
    np.testing.assert_allclose([numbers.td, numbers.reward, numbers.ve], [0.5, 0.5, 3.0])
    np.testing.assert_allclose([numbers.plan_v, numbers.plan_r, numbers.plan_p], [0.5 / 40, 0.5 / 40, 0.3 / 2])


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ("updates=dyna,dirct", "updates='dirct': did you mean 'direct'?"),
        ("unroll=-1", "unroll=-1"),
        ("alpha_dt=0.1", "did you mean 'alpha_td'"),
        ("alpha_td=", "lacks a value"),
        ("alpha_td=0.1,,0.3", "lacks a value"),
        ("alpha_td=0.1 alpha_td=0.3", "given twice"),
        ("alpha_td=-0.1", "alpha_td=-0.1"),
        ("alpha_td=quick", "alpha_td='quick'"),
        ("alpha_td", "key=value"),
        ("alpha_td=0.1,0.3", "one value"),
        ("discount=1.0", "discount=1.0"),
        ("updates=dyna,dyna", "none twice"),
        ("unroll=0", "unroll=0"),
        ("iterations=150", "iterations=200"),
        ("seed=2147483647", "lower seed"),
    ],
)
def test_mistakes_are_one_line_and_write_nothing(capsys, words: str, advice: str) -> None:
    assert main(["tabular", "evaluation", *shlex.split(words), "--seeds", "2"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("purejax-sc: ")
    assert captured.err.count("\n") == 1
    assert advice in captured.err
    assert not list(Path().iterdir())


@pytest.mark.parametrize(
    "command", ["tabular", "tabular learning", "tabular control --seeds 0", "tabular noise updates=reverse"]
)
def test_other_mistakes_of_the_command_line(capsys, command: str) -> None:
    assert main(shlex.split(command)) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not list(Path().iterdir())


def test_existing_directory_is_left_alone(capsys) -> None:
    Path("kept").mkdir()
    Path("kept/file").write_text("text")
    assert main(["tabular", "evaluation", "--out", "kept"]) == 2
    assert "--out" in capsys.readouterr().err
    assert main(["tabular", "evaluation", "--out", "kept/file/below"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert [path.name for path in Path("kept").iterdir()] == ["file"]


# Programs


def test_rows_of_a_program_equal_single_runs_whatever_is_logged() -> None:
    options = small()
    methods = [("mle", "direct", 0.03), ("ve", "none", 0.03), ("ve", "residual", 0.1)]
    variants = [variant(options.model_copy(update={"alpha_td": td}), m, u) for m, u, td in methods]
    together = run(options, variants, seeds=2, control=True)
    alone = run(options.model_copy(update={"seed": 1, "log_every": 5}), [variants[2]], seeds=1, control=True)
    np.testing.assert_array_equal(together.iterations, [0, 10, 20])
    for name, curves in together.metrics.items():
        np.testing.assert_allclose(curves[2, 1], alone.metrics[name][0, 0, ::2], rtol=1e-4, err_msg=name)


def one_world(states: int, actions: int, discount: float) -> compiled.World:
    worlds = compiled.make_worlds(jax.vmap(jax.random.key)(jnp.arange(1)), states, actions, discount)
    return jax.tree.map(lambda x: x[0], worlds)


def test_noise_starts_at_the_truth_plus_scaled_noise() -> None:
    world = one_world(5, 2, 0.99)
    for sigma in (0.0, 2.0):
        numbers = variant(small(), "mle", "dyna")._replace(v_true=1.0, v_noise=sigma)
        tables = compiled.start(world, numbers)
        np.testing.assert_allclose(tables.v - world.v_true, sigma * world.tables.v, atol=1e-4)
        np.testing.assert_array_equal(tables.r, world.tables.r)


def test_metrics_on_paper() -> None:
    """Two absorbing states, discount 1/2: v_pi = R / (1/2). The learned values are off by 1 and by 3."""
    options = TabularOptions(states=2, actions=1, discount=0.5)
    world = one_world(2, 1, 0.5)
    garnet = world.mdp._replace(P=jnp.eye(2)[:, None], R=jnp.array([[1.0], [3.0]]))
    world = world._replace(mdp=garnet, v_true=jnp.array([2.0, 6.0]), v_star=jnp.array([2.0, 6.0]))
    numbers = variant(options, "mle", "dyna")
    tables = compiled.start(world, numbers)._replace(v=jnp.array([1.0, 9.0]))
    for control in (False, True):
        metrics = compiled.measure(tables, world, numbers, control)
        np.testing.assert_allclose(metrics["relative_error"], (1 / 2 + 3 / 6) / 2)
        np.testing.assert_allclose(metrics["ratio_error"], 4 / 8)
    np.testing.assert_allclose(metrics["policy_value"], 1.0)  # one action


def test_methods_share_world_tables_and_data_and_learn() -> None:
    options = TabularOptions(states=5, actions=2, log_every=500)
    methods = [("mle", "none"), ("ve", "none"), ("mle", "dyna"), ("ve", "direct")]
    variants = [variant(options, *method) for method in methods]
    curves = compiled.run(options, False, 2000, compiled.stack(variants), 8).metrics["ratio_error"]
    np.testing.assert_array_equal(curves[0], curves[1])  # model-free evaluation does not read the model
    assert len(np.unique(curves[0, :, 0])) == 8  # seeds differ
    mean = curves.mean(axis=1)
    assert (mean[:, -1] < 0.7 * mean[:, 0]).all()
    assert mean[2].mean() < mean[0].mean()  # planning helps


# Scores


def result_of(metrics: dict[str, list]) -> TaskResult:
    """The result of methods none, dyna and direct with MLE models, from metric -> [V, N, P]."""
    methods = [Method("evaluation", "mle", update, "") for update in ("none", "dyna", "direct")]
    metrics = {name: np.array(values, float) for name, values in metrics.items()}
    seeds = metrics["ratio_error"].shape[1]
    return TaskResult(methods, list(range(seeds)), np.arange(2), metrics, 0.0)


def test_scores_on_paper() -> None:
    error = [[[4, 4], [4, 2]], [[4, 2], [4, 2]], [[4, 1], [4, 3]]]  # [none, dyna, direct][seed][point]
    _, dyna, direct = study.summarise(result_of({"relative_error": error, "ratio_error": error}))
    assert direct["judged_by"] == "auc"
    final = direct["metrics"]["relative_error"]["final"]
    assert final["mean"] == final["median"] == 2.0
    # t of one degree of freedom at 95%: 6.3138; s / sqrt(n) = 1
    np.testing.assert_allclose(final["interval"], [2.0 - 6.3138, 2.0 + 6.3138], rtol=1e-4)
    assert direct["metrics"]["relative_error"]["auc"]["mean"] == (2.5 + 3.5) / 2
    duel = direct["against"]["dyna"]["relative_error"]["final"]
    assert (duel["difference"]["mean"], duel["wins"], duel["of"]) == (0.0, 1, 2)
    assert dyna["against"]["none"]["relative_error"]["final"]["wins"] == 1
    assert "dyna" not in dyna["against"]


def test_diverged_replicas_are_counted_and_stay_in_the_scores() -> None:
    error = [[[1, 1], [1, 1]], [[1, 1], [1, 60]], [[1, np.nan], [1, np.inf]]]
    scores = study.summarise(result_of({"relative_error": error, "ratio_error": error}))
    assert [score["diverged"] for score in scores] == [0, 1, 2]
    assert scores[1]["metrics"]["ratio_error"]["final"]["mean"] == 30.5
    lost = scores[2]["metrics"]["ratio_error"]["final"]
    assert lost == {"mean": None, "interval": None, "median": None, "median_interval": None}
    assert scores[2]["against"]["dyna"]["ratio_error"]["final"]["wins"] == 0


# The command


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_all_makes_every_file(capsys) -> None:
    assert main(["tabular", "all", *SMALL, "updates=none,dyna,direct", "--seeds", "2", "--out", "out"]) == 0
    assert {path.name for path in Path("out").iterdir()} == {
        "curves.csv",
        "summary.json",
        "figure2a.png",
        "figure5.png",
    }
    told = capsys.readouterr()
    assert "per second" in told.err
    lines = told.out.splitlines()
    assert lines[0].split() == shlex.split("task model update setting score median mean less Dyna wins lost")
    assert {line.split(",")[1].split()[0] for line in lines[1:-1]} == {"auc", "final"}
    rows = rows_of(Path("out/curves.csv"))
    assert list(rows[0])[:7] == ["task", "model", "update", "seed", "iteration", "metric", "value"]
    # 2 models x 2 seeds x 3 points: 3 updates x (2 + 3 metrics), and 2 updates x 13 noise levels x 2 metrics
    assert len(rows) == 12 * (3 * 5 + 2 * 13 * 2)
    assert {row["iteration"] for row in rows} == {"0", "10", "20"}
    summary = json.loads(Path("out/summary.json").read_text())
    assert len(summary["methods"]) == 6 + 6 + 52
    assert summary["options"]["alpha_td"] == 0.03
    assert {"", "reward_sigma=0.5", "value_sigma=32"} < {method["setting"] for method in summary["methods"]}


def test_one_seed_has_no_intervals() -> None:
    error = [[[1, 1]]] * 3
    score = study.summarise(result_of({"relative_error": error, "ratio_error": error}))[2]
    assert score["metrics"]["relative_error"]["final"] == {
        **{"mean": 1.0, "interval": None},
        **{"median": 1.0, "median_interval": None},
    }
    assert score["against"]["dyna"]["relative_error"]["final"]["difference"]["interval"] is None
