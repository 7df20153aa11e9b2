"""The figure of a study: its panels."""

import numpy as np

from purejax_sc.results.compare import Run, Task, make_task
from purejax_sc.results.curves import Curves
from purejax_sc.studies import figure
from purejax_sc.studies.study_file import load_study


def task(env: str, heights: dict[str, list[float]]) -> Task:
    """Curves that are level from the first point on; a height per seed. A return of 0 is the lowest recorded."""
    steps = np.array([0.0, 10.0])
    curves = {arm: np.array([[level, level] for level in levels]) for arm, levels in heights.items()}
    return make_task(env, [Run(arm, env, "", Curves(steps, returns, {}), 10.0) for arm, returns in curves.items()])


def areas(tasks: list[Task]) -> dict:
    return {
        x.env: {arm: {"auc": dict(enumerate(run.curves.returns[:, 0]))} for arm, run in x.runs.items()} for x in tasks
    }


def test_every_environment_has_a_panel_and_the_areas_one() -> None:
    study = load_study("fig2b", arms=["none", "direct"])
    tasks = [task("A", {"none": [0.0, 0.0], "direct": [2.0, 4.0]}), task("B", {"none": [1.0, 3.0]})]
    drawn = figure.draw(study, tasks, areas(tasks)).axes
    assert [axes.get_title() for axes in drawn] == ["A", "B", "area under the curve"]
    assert [line.get_label() for line in drawn[0].lines] == ["Muesli", "SC-Direct"]
    # A: 0 is the lowest return and 3 the best mean, so 0 and 1; B: 1 to 2, so that its only arm is at 1
    assert [bar.get_height() for bar in drawn[2].patches] == [0.0, 1.0, 1.0]


def test_over_an_axis_arms_without_a_place_are_levels() -> None:
    study = load_study("fig4b", arms=["none", "ratio_0.25", "ratio_1", "ratio_4"])
    tasks = [task("A", {"none": [0.0, 0.0], "ratio_4": [4.0, 4.0], "ratio_0.25": [1.0, 1.0], "ratio_1": [2.0, 2.0]})]
    axes = figure.draw(study, tasks, areas(tasks)).axes[-1]
    assert axes.get_xlabel() == "imagined rollouts per state"
    assert axes.get_xscale() == "log"
    curve, level = axes.lines[0], axes.lines[-1]
    assert (list(curve.get_xdata()), list(curve.get_ydata())) == ([0.25, 1.0, 4.0], [0.25, 0.5, 1.0])
    assert list(level.get_ydata()) == [0.0, 0.0]


def test_the_legend_of_all_arms_is_inside_the_figure() -> None:
    study = load_study("fig3a")
    tasks = [task("A", {arm: [float(i), i + 1.0] for i, arm in enumerate(study.arms)})]
    drawn = figure.draw(study, tasks, areas(tasks))
    drawn.draw_without_rendering()
    [legend] = drawn.legends
    assert len(legend.get_texts()) == len(study.arms)
    box, whole = legend.get_window_extent(), drawn.bbox
    assert whole.x0 <= box.x0
    assert box.x1 <= whole.x1


def test_games_have_a_median_of_human_normalised_returns() -> None:
    study = load_study("fig3b", envs=["Pong", "Breakout"])
    # Pong -20.7 and 14.6, Breakout 1.7 and 30.5, are a random agent and a human
    tasks = [
        task("Pong", {"none": [-20.7, -20.7], "direct": [14.6, 14.6]}),
        task("Breakout", {"none": [1.7, 1.7], "direct": [1.7, 1.7]}),
    ]
    axes = figure.draw(study, tasks, areas(tasks)).axes[-1]
    assert axes.get_title() == "median of 2 game(s)"
    none, direct = (np.asarray(line.get_ydata(), float) for line in axes.lines)
    np.testing.assert_allclose(none, 0.0, atol=1e-3)
    np.testing.assert_allclose(direct, 0.5, atol=1e-3)


def test_games_against_an_engine_are_drawn_by_simulations() -> None:
    study = load_study("fig3c", arms=["none", "direct"])
    tasks = [task("Go 5x5", {"none": [0.0, 1.0], "direct": [0.0, 1.0]})]
    scores = areas(tasks)
    for arm, low, high in (("none", 0.2, 0.4), ("direct", 0.3, 0.6)):
        scores["Go 5x5"][arm] |= {"win_0": {0: low, 1: low}, "win_32": {0: high, 1: high}}
    axes = figure.draw(study, tasks, scores).axes[-1]
    assert axes.get_title() == "games against the engine"
    heights = [list(np.asarray(line.get_ydata(), float)) for line in axes.lines if len(line.get_xdata()) == 2]
    assert [0.2, 0.4] in heights
    assert [0.3, 0.6] in heights
