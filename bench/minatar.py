"""MinAtar: Muesli and SC-Direct beside PPO.

purejax-sc study minatar
python bench/minatar.py collect runs/study_minatar    # bench/results/minatar.csv
python bench/minatar.py report                        # minatar.png, minatar.md, the tables of README and docs
"""

import argparse
import csv
import itertools
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from purejax_sc.results import curves, plots, statistics

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"
GAMES = ("Asterix", "Breakout", "Freeway", "SpaceInvaders", "Seaquest")
STEPS = (200_000, 500_000, 1_000_000)
ARMS = {"none": "Muesli", "direct": "SC-Direct"}
# Minutes per million steps of five seeds on two cores of an AMD EPYC at 85bead9: Muesli 470 to 510 s, PPO 70 to 110 s.
# SC-Direct takes 1.1 of Muesli's time (514 and 467 s, bench/results/breakout.md). Not known of rejax.
METHODS = {  # title: peer, steps of a run, name in pictures, dashes, minutes per million steps
    "Muesli": ("Muesli", 1_000_000, "Muesli", "-", 8.2),
    "SC-Direct": ("SC-Direct", 1_000_000, "SC-Direct", "-", 9.0),
    "PPO": ("purejaxrl PPO", 1_000_000, "PPO (purejaxrl)", "-", 1.5),
    "PPO, 5M": ("purejaxrl PPO", 5_000_000, "PPO (purejaxrl)", "--", 1.5),
    "rejax PPO": ("rejax PPO", 1_000_000, "PPO (rejax)", ":", np.nan),
}
Data = dict[tuple[str, str], dict[int, np.ndarray]]  # method and game -> seed -> [points, 2] steps and returns


def collect(directories: Iterable[Path]) -> None:
    """Write the curves of study directories to minatar.csv."""
    rows: list[tuple[Any, ...]] = [("peer", "env", "total_steps", "seed", "env_steps", "episode_return")]
    for run in sorted(path.parent for d in directories for path in d.glob("runs/*/*/*/metrics.csv")):
        game, arm = run.parts[-3:-1]
        curve = curves.read_curves(run)
        for seed, returns in zip(curves.read_seeds(run), curve.returns, strict=True):
            for step, value in zip(curve.env_steps, returns, strict=True):
                text = f"{value:.3f}" if np.isfinite(value) else ""  # no episode ended
                rows.append((ARMS[arm], f"{game}-MinAtar", STEPS[-1], seed, int(step), text))
    with (RESULTS / "minatar.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def read() -> Data:
    """Curves of every method and game, without the points at which no episode ended."""
    points: Any = defaultdict(lambda: defaultdict(list))
    titles = {row[:2]: title for title, row in METHODS.items()}
    for name in ("minatar.csv", "peers_minatar.csv"):
        for row in csv.DictReader((RESULTS / name).read_text(encoding="utf-8").splitlines()):
            if row["episode_return"]:
                key = titles[row["peer"], int(row["total_steps"])], row["env"].removesuffix("-MinAtar")
                points[key][int(row["seed"])].append((float(row["env_steps"]), float(row["episode_return"])))
    return {key: {seed: np.array(curve) for seed, curve in seeds.items()} for key, seeds in points.items()}


def scores(data: Data, title: str, game: str, step: int) -> dict[int, float]:
    """Mean return of each seed over the log points in the tenth of training that ends at a step.

    The longer PPO has those of its last step beside the last step of the others, and none before.
    """
    total = METHODS[title][1]
    end = step if total == STEPS[-1] else total * (step == STEPS[-1])
    found: dict[int, float] = {}
    for seed, curve in sorted(data.get((title, game), {}).items()):
        inside = curve[(curve[:, 0] > end - total / 10) & (curve[:, 0] <= end), 1]
        if len(inside) and curve[-1, 0] > end - total / 20:
            found[seed] = inside.mean()
    return found


def values(data: Data, title: str, game: str, step: int) -> np.ndarray:
    return np.array(list(scores(data, title, game, step).values()))


def pairs(data: Data, x: str, y: str, step: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """`values` of two methods, [seeds of x] and [seeds of y], in each game that both have."""
    found = [(values(data, x, game, step), values(data, y, game, step)) for game in GAMES]
    return [pair for pair in found if len(pair[0]) and len(pair[1])]


def gain(data: Data, game: str, step: int) -> np.ndarray:
    """SC-Direct less Muesli [seeds], of the seeds that both have."""
    direct, none = (scores(data, title, game, step) for title in ("SC-Direct", "Muesli"))
    return np.array([direct[seed] - none[seed] for seed in sorted(direct.keys() & none.keys())])


def cell(strata: list[np.ndarray], statistic: statistics.Statistic = statistics.mean, games: int = 0) -> str:
    """A statistic of several games, or of one, with its 90% interval and number of runs, as a cell of a table."""
    runs, digits = sum(map(len, strata)), 2 if games else 1
    if not runs:
        return ""
    interval = statistics.stratified_interval(strata, statistic)
    ends = f" [{interval[0]:.{digits}f}, {interval[1]:.{digits}f}]" if interval else ""
    return f"{statistic(*strata, axis=0):.{digits}f}{ends} ({f'{games} games, ' if games else ''}{runs})"


def table(head: list[str], rows: Iterable[Iterable[str]]) -> str:
    return "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *(f"| {' | '.join(row)} |" for row in rows)])


def per_game(data: Data) -> str:
    rows = []
    for game, step in itertools.product(GAMES, STEPS):
        cells = [cell([values(data, title, game, step)]) for title in METHODS]
        rows.append([game, f"{step:,}", *cells, cell([gain(data, game, step)])])
    return table(["game", "steps", *METHODS, "SC-Direct less Muesli, paired"], rows)


def aggregate(data: Data) -> str:
    rows = []
    for title in METHODS:
        found = [[x / y.mean() for x, y in pairs(data, title, "PPO", step)] for step in STEPS]
        rows.append([f"IQM of {title}", *(cell(strata, statistics.iqm, len(strata)) for strata in found)])
    for x, y in (("Muesli", "PPO"), ("Muesli", "PPO, 5M"), ("SC-Direct", "PPO"), ("SC-Direct", "Muesli")):
        found = [list(zip(*pairs(data, x, y, step), strict=True)) or [(), ()] for step in STEPS]
        rows.append([f"P({x} > {y})", *(cell([*xs, *ys], statistics.improvement, len(xs)) for xs, ys in found)])
    return table(["", *(f"{step:,} steps" for step in STEPS)], rows)


def difference(x: np.ndarray, *y: np.ndarray, axis: int) -> np.ndarray:
    return np.mean(x, axis=axis) - sum(np.mean(other, axis=axis) for other in y)


def verdict(samples: Iterable[tuple[np.ndarray, ...]]) -> str:
    """In how many games the interval of a mean, or of a difference of two, is above 0, below 0, and neither."""
    intervals = [statistics.stratified_interval(x, difference) for x in samples if min(map(len, x)) > 1]
    above, below = sum(bool(x and x[0] > 0) for x in intervals), sum(bool(x and x[1] < 0) for x in intervals)
    return f"above in {above}, below in {below}, neither in {len(intervals) - above - below} of {len(intervals)} games"


def latest(data: Data) -> int:
    """The largest of STEPS that Muesli's seeds have reached in any game."""
    return max(step for step in STEPS if any(len(values(data, "Muesli", game, step)) for game in GAMES))


def answer(data: Data) -> str:
    step = latest(data)
    verdicts = {
        "Muesli against PPO at equal steps": verdict(pairs(data, "Muesli", "PPO", step)),
        "Muesli against PPO at equal time": verdict(pairs(data, "Muesli", "PPO, 5M", step)),
        "SC-Direct against Muesli, paired by seed": verdict((gain(data, game, step),) for game in GAMES),
    }
    known = [f"* {name}: {text}." for name, text in verdicts.items() if "of 0 games" not in text]
    return "\n".join([f"After {step:,} steps, by the 90% interval of the difference of means:", "", *known])


def draw(data: Data) -> None:
    """Write minatar.png: a column per game; above over environment steps, below over minutes."""
    figure = Figure(figsize=(14, 5.6), layout="constrained")
    axes = figure.subplots(2, len(GAMES))
    for column, game in zip(axes.T, GAMES, strict=True):
        for title, (_, total, name, dashes, minutes) in METHODS.items():
            if not (seeds := list(data.get((title, game), {}).values())):
                continue
            x = np.linspace(max(curve[0, 0] for curve in seeds), min(curve[-1, 0] for curve in seeds), 100)
            y = np.stack([np.interp(x, *curve.T) for curve in seeds])
            color = plots.colors([name])[name]
            label = name if total == STEPS[-1] else f"{name}, {total // 1_000_000}M steps"
            for axis, scale in zip(column, (1, minutes / 1e6), strict=True):
                plots.draw_band(axis, scale * x, y.mean(axis=0), statistics.curve_interval(y), label, color)
                axis.lines[-1].set_linestyle(dashes)
        plots.over_steps(column[0])
        column[0].set(title=game, xlim=(0, STEPS[-1]), ylim=(0, None))
        column[1].set(xlabel="minutes, five seeds on two cores", xlim=(0, 10), ylim=(0, None))
        column[1].set_visible(("PPO", game) in data)
        for axis in column:
            plots.plain(axis)
    figure.supylabel("episode return", fontsize="medium")
    labels = {label: line for axis in axes.flat for line, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(labels.values(), labels.keys(), loc="outside lower center", ncols=len(labels), frameon=False)
    (RESULTS / "minatar.png").write_bytes(plots.encode(figure, "png"))


def fill(path: Path, pattern: str, text: str) -> None:
    """Replace what lies between the two groups of a pattern."""
    page = path.read_text(encoding="utf-8")
    path.write_text(re.sub(pattern, lambda match: match[1] + text + match[2], page, flags=re.DOTALL), encoding="utf-8")


def report() -> None:
    data = read()
    draw(data)
    for name, text in (("answer", answer(data)), ("games", per_game(data)), ("aggregate", aggregate(data))):
        fill(RESULTS / "minatar.md", rf"(<!-- {name} -->\n).*?(\n<!-- end -->)", text)
    shown = {"Muesli": "Muesli", "SC-Direct": "SC-Direct", "PPO": "PPO, equal steps", "PPO, 5M": "PPO, equal time"}
    step = latest(data)
    games = [game for game in GAMES if len(values(data, "Muesli", game, step))]
    shown = {
        title: head for title, head in shown.items() if any(len(values(data, title, game, step)) for game in games)
    }
    rows = ([game, *(cell([values(data, title, game, step)]) for title in shown)] for game in games)
    text = answer(data) + "\n\n" + table([f"return after {step:,} steps", *shown.values()], rows)
    fill(ROOT / "README.md", r"(<!-- bench/minatar.py -->\n).*?(\n<!-- end -->)", text)
    for game in GAMES:
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", game).lower()
        text = f"[{cell([values(data, 'Muesli', game, STEPS[-1])]) or 'no run yet'}](../bench/results/minatar.md)"
        fill(ROOT / "docs" / "configurations.md", rf"(\| `minatar_{name}` [^\n]* \| )[^|\n]*( \|\n)", text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("collect", "report"))
    parser.add_argument("directories", nargs="*", type=Path, help="of the study, for collect")
    options = parser.parse_args()
    collect(options.directories) if options.command == "collect" else report()
