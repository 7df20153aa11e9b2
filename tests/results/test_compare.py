"""Comparisons of runs: common ranges, scales and scores on paper, and the plot command end to end."""

import csv
import shlex
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from matplotlib.text import Text

from purejax_sc.cli.commands import main
from purejax_sc.results import compare, plots
from purejax_sc.results.compare import Run, read_runs
from purejax_sc.results.curves import Curves, area, on_grid, read_curves, summarise
from purejax_sc.results.files import RunError

NAN = float("nan")
HEADER = "seed,update,env_steps,wall_time,episode_return,episode_length"


def curves(steps: Sequence[float], *returns: Sequence[float]) -> Curves:
    return Curves(np.array(steps, float), np.array(returns, float), {})


def make_run(label: str, steps: Sequence[float], *returns: Sequence[float], env: str = "A") -> Run:
    return Run(label, env, label, curves(steps, *returns), float(steps[-1]))


def write_run(
    directory: str, steps: Sequence[int], *returns: Sequence[float], config: str = "env: A\n", seed: int = 0
) -> None:
    rows = [
        f"{number},{i},{step},{i}.0,{'' if np.isnan(values[i]) else values[i]},1"
        for i, step in enumerate(steps)
        for number, values in enumerate(returns, seed)
    ]
    Path(directory).mkdir(parents=True)
    Path(directory, "metrics.csv").write_text("\n".join([HEADER, *rows, ""]))
    Path(directory, "config.yaml").write_text(config)


def read_table(path: str) -> list[dict[str, str]]:
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


def estimate(row: dict, name: str) -> tuple:
    return row[name], row[f"{name}_low"], row[f"{name}_high"]


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def two_runs(here) -> None:
    write_run("none", [10, 20], [0, 1], [0, 2])
    write_run("direct", [10, 20], [0, 2], [0, 4])


# --- areas, ranges and scales ---


def test_area_on_paper() -> None:
    grid = np.array([10.0, 20.0, 40.0])
    # (0 + 2) / 2 * 10 + (2 + 4) / 2 * 20 = 70, over a width of 30
    assert area(np.array([[0.0, 2.0, 4.0]]), grid) == pytest.approx(7 / 3)
    assert area(np.array([[3.0], [5.0]]), grid[:1]).tolist() == [3, 5]


def test_area_does_not_depend_on_the_grid() -> None:
    run = curves([10, 20, 40], [0, 2, 4])
    for grid in ([10, 20, 40], [10, 11, 12, 20, 39, 40], np.union1d(np.linspace(10, 40, 7), 20)):
        grid = np.array(grid, float)
        assert area(on_grid(run, grid), grid) == pytest.approx(7 / 3)


def test_gaps_are_carried_forward_before_interpolation() -> None:
    run = curves([10, 20, 30], [1, NAN, 3], [NAN, 4, 2])
    np.testing.assert_allclose(on_grid(run, np.array([20.0, 25.0, 30.0])), [[1, 2, 3], [4, 3, 2]])


def test_range_is_shared_by_every_seed_of_every_run() -> None:
    long = make_run("long", [10, 20, 30, 40], [NAN, 1, 1, 1], [1, 1, 1, 1])
    short = make_run("short", [15, 25, 35], [2, 2, 2])
    # from the first episode of long's first seed to the end of short, with the log points of both
    assert compare.make_task("A", [long, short]).grid.tolist() == [20, 25, 30, 35]


def test_floor_is_the_lowest_recorded_return_and_one_the_best_area() -> None:
    # areas in [10, 20]: low 1; high (3 + 5) / 2 = 4 and (5 + 7) / 2 = 6, mean 5. The floor lies beyond that range.
    low = make_run("low", [10, 20, 30], [1, 1, -3])
    high = make_run("high", [10, 20], [3, 5], [5, 7])
    comparison = compare.compare([low, high])
    (task,) = comparison.tasks
    assert (task.floor, task.best) == (-3, 5)
    first, second = comparison.rows
    assert estimate(first, "normalised_auc") == (0.5, None, None)  # (1 + 3) / (5 + 3), and a single seed
    # two seeds, 4 and 6: a quarter of the resamples is (4, 4) and a quarter (6, 6)
    assert estimate(second, "auc") == (5, 4, 6)
    assert estimate(second, "normalised_auc") == (1, 7 / 8, 9 / 8)


def test_final_returns_count_up_to_the_end_of_the_shortest_run() -> None:
    long = make_run("long", [10, 20, 30], [0, 1, 9])
    short = make_run("short", [10, 20], [0, 2])
    comparison = compare.compare([long, short])
    assert [row["mean"] for row in comparison.rows] == [1, 2]
    assert [row["env_steps_to"] for row in comparison.rows] == [20, 20]
    assert comparison.rows[1]["improvement"] == 1
    assert list(compare.notes(comparison)) == [
        "A: scores count up to 20 environment steps, the end of the shortest run"
    ]


@pytest.mark.parametrize("height", [0.0, 0.7, -3.1])
def test_returns_that_never_change_have_no_scale(height: float) -> None:
    runs = [make_run(label, [1, 2, 4], [height] * 3, [height] * 3) for label in ("none", "direct")]
    for row in compare.compare(runs).rows:
        assert estimate(row, "normalised_auc") == (None, None, None)
        assert row["mean"] == pytest.approx(height)
    assert estimate(row, "improvement") == (0.5, 0.5, 0.5)


def test_runs_without_a_common_range_are_refused() -> None:
    late = make_run("late", [10, 20, 30], [NAN, NAN, 1])
    with pytest.raises(RunError, match=r"short ends at 20 environment steps.*train it for longer"):
        compare.compare([late, make_run("short", [10, 20], [1, 1])])


# --- methods over tasks ---


def test_aggregate_over_tasks_on_paper() -> None:
    runs = [
        make_run("none", [0, 1], [0, 2], [0, 2], env="A"),  # area 1 each
        make_run("direct", [0, 1], [0, 4], [0, 4], env="A"),  # area 2: scale of A is 0 to 2
        make_run("none", [0, 1], [10, 30], [10, 30], env="B"),  # area 20: scale of B is 10 to 20
        make_run("direct", [0, 1], [10, 20], [10, 20], env="B"),  # area 15
    ]
    comparison = compare.compare(runs)
    assert comparison.methods == ["none", "direct"]
    assert [(row["environment"], row["method"]) for row in comparison.rows] == [
        (env, label) for env in ("A", "B", "all") for label in ("none", "direct")
    ]
    none, direct = comparison.rows[4:]
    # AUC: none 1/2 and 1, direct 1 and 1/2. Final: none 2/2 and 20/10, direct 4/2 and 10/10. Wins: one task each.
    for row in (none, direct):
        assert (row["unit"], row["seeds"]) == ("normalised", 4)
        assert estimate(row, "normalised_auc") == (0.75, 0.75, 0.75)  # seeds agree, and tasks are not resampled
        assert estimate(row, "mean") == (1.5, 1.5, 1.5)
        assert row["iqm"] == 1.5  # 1, 1, 2, 2 without one at each end
    assert estimate(direct, "improvement") == (0.5, 0.5, 0.5)
    assert (none["against"], direct["against"]) == ("", "none")


def test_only_methods_found_on_every_task_are_aggregated() -> None:
    runs = [
        make_run("dyna", [0, 1], [0, 1], env="A"),
        make_run("none", [0, 1], [0, 2], env="A"),
        make_run("direct", [0, 1], [0, 4], env="B"),
        make_run("none", [0, 1], [0, 1], env="B"),
    ]
    comparison = compare.compare(runs)
    assert comparison.methods == ["none"]
    # labels were first given in the order dyna, none, direct: the first of them on each task is the one to beat
    assert [(row["environment"], row["method"], row["against"]) for row in comparison.rows] == [
        ("A", "dyna", ""), ("A", "none", "dyna"), ("B", "none", ""), ("B", "direct", "none"), ("all", "none", ""),
    ]  # fmt: skip
    unmatched = compare.compare([runs[0], runs[2]])
    assert unmatched.methods == []
    assert "none=DIR none=DIR" in next(compare.notes(unmatched))


# --- runs as the command line names them ---


def test_labels_match_runs_over_tasks(here) -> None:
    for method in ("none", "direct"):
        for env in ("A", "B"):
            write_run(f"{env}/{method}", [1], [0], config=f"env: {env}\n")
    named = read_runs(["none=A/none", "x=A/direct", "none=B/none", "x=B/direct"])
    assert [(run.label, run.env) for run in named] == [("none", "A"), ("x", "A"), ("none", "B"), ("x", "B")]
    # names of directories match just as well; two of the same name on one task are called by their paths
    unnamed = read_runs(["A/none", "A/direct", "B/none", "B/direct"])
    assert [run.label for run in unnamed] == ["none", "direct", "none", "direct"]
    write_run("other/none", [1], [0])
    assert [run.label for run in read_runs(["A/none", "other/none"])] == ["A/none", "other/none"]


def test_seeds_in_several_directories_are_one_run(here) -> None:
    write_run("first", [10, 20, 30], [0, 1, 9], [0, 3, 9])
    write_run("other", [10, 20], [2, 5], seed=2)
    joined, alone = read_runs(["x=first", "x=other", "first"])
    assert (joined.label, joined.env, joined.directory) == ("x", "A", "first other")
    np.testing.assert_array_equal(joined.curves.env_steps, [10, 20])
    np.testing.assert_array_equal(joined.curves.returns, [[0, 1], [0, 3], [2, 5]])
    assert (joined.end, alone.end, len(alone.curves.returns)) == (30, 30, 2)


def test_a_directory_may_have_an_equals_sign_in_its_name(here) -> None:
    write_run("sc.update=none", [1], [0])
    arguments = ["sc.update=none", "./sc.update=none", "x=sc.update=none"]
    assert [read_runs([argument])[0].label for argument in arguments] == ["sc.update=none", "sc.update=none", "x"]


def test_options_of_the_environment_make_another_task(here) -> None:
    write_run("plain", [1], [0], config="env: garnet\nenv_options: {states: null, mdp_seed: null}\n")
    write_run("seven", [1], [0], config="env: garnet\nenv_options: {states: null, mdp_seed: 7}\n")
    write_run("none", [1], [0], config="env: garnet\nfrom_another_version: 1\n")
    assert [run.env for run in read_runs(["plain", "seven", "none"])] == ["garnet", "garnet mdp_seed=7", "garnet"]


# --- files and the command line ---


def test_table_has_a_row_per_method_and_columns_for_bounds(two_runs, capsys) -> None:
    assert main(["plot", "none", "direct", "--out", "both.svg"]) == 0
    assert Path("both.svg").read_bytes().startswith(b"<?xml")
    none, direct = read_table("both.csv")
    assert (none["environment"], none["method"], none["directory"], none["seeds"]) == ("A", "none", "none", "2")
    # areas: none 1/2 and 1, direct 1 and 2, with mean 3/2
    assert (direct["floor"], direct["best"], *estimate(direct, "auc")) == ("0", "1.5", "1.5", "1", "2")
    assert estimate(none, "normalised_auc") == ("0.5", "0.3333333", "0.6666667")
    assert estimate(none, "mean") == ("1.5", "1", "2")
    assert (none["iqm"], none["env_steps_from"], none["env_steps_to"]) == ("1.5", "10", "20")
    assert (none["against"], none["improvement"], none["improvement_low"]) == ("", "", "")
    # 2 > 1, 2 = 2, 4 > 1, 4 > 2
    assert (direct["against"], direct["improvement"], direct["improvement_high"]) == ("none", "0.875", "1")
    out = capsys.readouterr().out.splitlines()
    assert "P(> none)" in out[0]
    assert out[1].split()[:4] == ["none", "2", "1.5", "[1,"]
    assert out[3] == "wrote both.svg and both.csv"


def test_scores_are_those_of_the_summary(here) -> None:
    write_run("run", range(1, 31), *np.random.default_rng(2).normal(size=(5, 30)))
    [row] = compare.compare(read_runs(["run"])).rows
    summary = summarise(read_curves(Path("run")))
    assert row["mean"] == pytest.approx(summary["mean"])
    assert [row["iqm_low"], row["iqm_high"]] == pytest.approx(summary["iqm_interval"])


def test_means_of_the_curves_are_drawn(here) -> None:
    write_run("run", [10, 20], [0, 1], [0, 2], [0, 3], [0, 50])
    [axes] = compare.draw(compare.compare(read_runs(["run"]))).axes
    [line] = axes.lines
    assert line.get_ydata().tolist() == [0.0, 14.0]
    assert axes.figure.get_suptitle() == "mean and 90% bootstrap interval over 4 seeds"
    assert axes.xaxis.get_major_formatter()(200_000) == "200k"


def test_labels_of_users_are_drawn_as_they_are(here) -> None:
    """matplotlib leaves out names that begin with `_`, and reads formulas between dollar signs, also wrong ones."""
    for name in ("_a", "$x_{$", "5$"):
        write_run(name, [10, 20], [0, 1], [0, 2], config="env: mine:$x_{$\n")
    figure = compare.draw(compare.compare(read_runs(["_a", "$x_{$", "5$"])))
    plots.encode(figure, "png")  # a wrong formula would be an error
    [legend] = figure.legends
    assert [drawn(text) for text in legend.get_texts()] == ["_a", "$x_{$", "5$"]
    assert drawn(figure.axes[0].title) == "mine:$x_{$"


def drawn(text: Text) -> str:
    """What is seen of a text that holds no formula."""
    shown, formula = text._preprocess_math(text.get_text())
    assert formula is False
    return shown.replace("\N{ZERO WIDTH SPACE}", "")


def test_several_environments_end_to_end(here, capsys) -> None:
    for i, env in enumerate("ABCDE"):  # six panels with the one over all of them
        write_run(f"{env}/none", [10, 20, 30], [NAN, 1, 2], [0, 1, 3], config=f"env: {env}\n")
        write_run(f"{env}/_$x", [15, 30 + i], [0, 2], [1, 4], config=f"env: {env}\n")
    directories = [f"{env}/{method}" for env in "ABCDE" for method in ("none", "_$x")]
    assert main(["plot", *directories, "--out", "all.PNG"]) == 0
    assert Path("all.PNG").read_bytes().startswith(b"\x89PNG")
    rows = read_table("all.csv")
    assert len(rows) == 12
    assert [row["seeds"] for row in rows[-2:]] == ["10", "10"]
    assert (rows[-1]["environment"], rows[-1]["auc"], rows[-1]["against"]) == ("all", "", "none")
    out = capsys.readouterr().out
    assert out.startswith("environment")
    assert "all: normalised returns" in out


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("none x=nowhere", "nowhere holds no readable metrics.csv"),
        ("none none", "none none are both called"),
        ("x=none x=direct", "hold seed 0"),
        ("x=none x=late", "have other log points"),
        ("none --out image.csv", "cannot draw a 'csv' file"),
        ("none --out ..", ".. cannot be a file"),
        ("none --out missing/image.png", "missing/image.png cannot be a file"),
        ("none --out taken.png", "taken.png cannot be a file"),
        ("none --out none/metrics.png", "none/metrics.csv exists and is not of this command"),
        ("none --out none/curves.png", "exists and is not of this command: choose another --out"),
        ("bare", "bare holds no config.yaml"),
        ("blank", "blank holds no config.yaml"),
        ("young", "young: no episode ended in 1 of 2 seeds"),
    ],
)
def test_mistakes_are_one_line_and_write_nothing(two_runs, capsys, command: str, words: str) -> None:
    write_run("bare", [10], [0])
    write_run("late", [15, 20], [0, 1], seed=2)
    Path("bare/config.yaml").unlink()
    write_run("blank", [10], [0], config="seed: 1\n")
    write_run("young", [10], [0], [NAN])
    Path("taken.png").mkdir()
    Path("none/curves.png").write_text("of training")
    before = {path: path.is_file() and path.read_bytes() for path in Path().rglob("*")}
    assert main(["plot", *shlex.split(command)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("purejax-sc: ")
    assert captured.err.count("\n") == 1
    assert words in captured.err
    assert {path: path.is_file() and path.read_bytes() for path in Path().rglob("*")} == before


def test_own_files_are_replaced_by_the_same_bytes_and_others_never(two_runs) -> None:
    Path("photo.png").write_text("not ours")
    assert main(["plot", "none", "--out", "photo.png"]) == 2
    assert Path("photo.png").read_text() == "not ours"
    assert main(["plot", "none"]) == 0
    own = Path("compare.png").read_bytes()
    assert main(["plot", "none"]) == 0
    assert Path("compare.png").read_bytes() == own


def test_a_full_disk_leaves_both_old_files(two_runs, capsys, monkeypatch) -> None:
    def full(path, data, write=Path.write_bytes):
        if path.suffix == ".tmp" and ".csv" in path.name:
            raise OSError(28, "No space left on device")
        return write(path, data)

    assert main(["plot", "none"]) == 0
    before = {path: path.read_bytes() for path in Path().glob("*.*")}
    monkeypatch.setattr(Path, "write_bytes", full)
    assert main(["plot", "none", "direct"]) == 2
    assert "cannot write compare.csv (No space left on device)" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in Path().glob("*.*")} == before
    assert not list(Path().glob(".*.tmp"))


def test_a_method_has_one_colour_by_either_name_and_no_other_line_has_it() -> None:
    for names in (["mine", "direct"], ["SC-Direct", "mine", "none"]):
        colors = plots.colors(names)
        assert plots.METHODS["direct"] in {("SC-Direct", color) for color in colors.values()}
        assert len(set(colors.values())) == len(names)
    assert plots.colors(["direct"])["direct"] == plots.colors(["Dyna", "SC-Direct"])["SC-Direct"]
