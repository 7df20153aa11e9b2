"""Tasks of the tabular study: their methods, scores and files."""

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from purejax_sc.config import ConfigError
from purejax_sc.results import statistics
from purejax_sc.results.files import replace_file
from purejax_sc.results.lock import new_directory
from purejax_sc.results.statistics import CONFIDENCE, as_list, as_number
from purejax_sc.tabular import compiled, figures
from purejax_sc.tabular.compiled import Method, TaskResult
from purejax_sc.tabular.learner import Variant
from purejax_sc.tabular.options import SweepPoint, parse, variant

TASKS = ("evaluation", "control", "noise")
Task = Literal["evaluation", "control", "noise"]
ITERATIONS = {"evaluation": 12_000, "control": 12_000, "noise": 3_000}
# The noise study compares these two. It starts rewards at the truth + sigma N(0, 1), or values at v_pi + sigma N(0, 1).
# The paper does not give sigma. Values need more: below 8 they start so close to v_pi that noise of learning decides.
NOISE_UPDATES = ("dyna", "direct")
REWARD_SIGMAS = (0.0, 0.5, 1.0, 2.0, 4.0)
VALUE_SIGMAS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
# metrics in which methods are compared, the most important first; True: higher is better
SCORES = {
    "evaluation": {"relative_error": False, "ratio_error": False},
    "control": {"policy_value": True, "greedy_value": True},
    "noise": {"relative_error": False, "ratio_error": False},
}
JUDGED = {"evaluation": "auc", "control": "final", "noise": "auc"}  # by which score
DIVERGED = 50.0  # a replica whose ratio_error ever exceeds this, or stops being a number
COLUMNS = ("task", "model", "update", "seed", "iteration", "metric", "value", "setting")


def run(
    tasks: Sequence[Task],
    overrides: Sequence[str],
    out: Path,
    num_seeds: int = 30,
    say: Callable[[str], None] = lambda text: None,
    command: str | None = None,
) -> dict[str, Any]:
    """Run tasks and fill the new directory `out` with curves.csv, summary.json and figures.

    Args:
      overrides: KEY=VALUE words, see `options.parse`.
      say:       callback for lines of progress.
      command:   noted in the summary.

    Returns:
      The contents of summary.json. Raises ConfigError and RunError; then nothing is overwritten.
    """
    points = parse(overrides)
    check(tasks, points, num_seeds)
    with new_directory(out):
        results = [run_task(task, points, num_seeds, say) for task in tasks]
        return _write(out, results, points, command)


def _write(
    out: Path, results: Sequence[TaskResult], points: Sequence[SweepPoint], command: str | None
) -> dict[str, Any]:
    """Write all files of a study, and return the summary."""
    replace_file(out / "curves.csv", curves_csv(results).encode())
    scores = [score for result in results for score in summarise(result)]
    summary = {
        "command": command,
        "options": [{"setting": label, **options.model_dump(mode="json")} for label, options in points],
        "seeds": results[0].seeds,
        "confidence": CONFIDENCE,
        "worlds": _worlds(results[0]),
        "programs": [_speed(result) for result in results],
        "methods": scores,
    }
    text = json.dumps(summary, indent=1, allow_nan=False)
    replace_file(out / "summary.json", f"{text}\n".encode())
    for name, image in figures.draw_figures(results, scores).items():
        replace_file(out / name, image)
    return summary


def check(tasks: Sequence[Task], points: Sequence[SweepPoint], num_seeds: int) -> None:
    """Raise ConfigError for what cannot be run, before anything is written or compiled."""
    if num_seeds < 1:
        raise ConfigError(f"seeds={num_seeds}: run at least one")
    options = points[0].options  # seed, iterations and updates are common to all
    if options.seed + num_seeds > 2**31:
        raise ConfigError(f"seed={options.seed} leaves no room for {num_seeds} seeds below 2**31: lower seed")
    for task in tasks:
        iterations = options.iterations or ITERATIONS[task]
        if iterations % options.log_every:
            better = -(-iterations // options.log_every) * options.log_every
            raise ConfigError(
                f"iterations={iterations} is no multiple of log_every={options.log_every}: set iterations={better}"
            )
        if task == "noise" and not set(options.updates) & set(NOISE_UPDATES):
            raise ConfigError("the noise study compares dyna with direct: name one of them in updates=")


def run_task(
    task: Task, points: Sequence[SweepPoint], num_seeds: int, say: Callable[[str], None] = lambda text: None
) -> TaskResult:
    """Run a task at all points of a sweep, as one program."""
    options = points[0].options  # points differ in numbers only, which `variants` reads
    methods, numbers = zip(*(pair for point in points for pair in variants(task, point)), strict=True)
    iterations = options.iterations or ITERATIONS[task]
    say(f"{task}: {len(methods)} methods x {num_seeds} seeds x {iterations:,} iterations, compiling")
    progress = _tenths(lambda tenth: say(f"{task}: {tenth * 10}%"), iterations)
    curves = compiled.run(options, task == "control", iterations, compiled.stack(numbers), num_seeds, progress)
    say(f"{task}: {curves.run_seconds:.1f} s, {curves.rate:,.0f} iterations x replicas per second")
    return TaskResult(list(methods), [options.seed + i for i in range(num_seeds)], curves)


def variants(task: Task, point: SweepPoint) -> Iterator[tuple[Method, Variant]]:
    """Yield the methods that a task compares at one point of a sweep, and their numbers."""
    label, options = point
    for model, update in itertools.product(options.models, options.updates):
        numbers = variant(options, model, update, control=task == "control")
        if task != "noise":
            yield Method(task, model, update, label), numbers
        elif update in NOISE_UPDATES:
            yield from ((Method(task, model, update, f"{name} {label}".strip()), x) for name, x in _noisy(numbers))


def _noisy(numbers: Variant) -> Iterator[tuple[str, Variant]]:
    """Yield the variants of the noise study: the truth plus noise, in the reward or in the value."""
    for sigma in REWARD_SIGMAS:
        yield f"reward_sigma={sigma:g}", numbers._replace(r_true=1.0, r_noise=sigma)
    for sigma in VALUE_SIGMAS:
        yield f"value_sigma={sigma:g}", numbers._replace(v_true=1.0, v_noise=sigma)


def _tenths(tell: Callable[[int], None], iterations: int) -> Callable[[int], None]:
    """Return a progress callback that tells each finished tenth but the last once."""
    told = 0

    def progress(done: int) -> None:
        nonlocal told
        tenth = done * 10 // iterations
        if told < tenth < 10:
            tell(tenth)
        told = tenth

    return progress


# Scores


def final(curves: np.ndarray) -> np.ndarray:
    """Average the last tenth of the points of curves [..., P]."""
    return curves[..., -max(1, curves.shape[-1] // 10) :].mean(axis=-1)


def area(curves: np.ndarray) -> np.ndarray:
    """Compute the area under curves [..., P], as their mean over equally spaced points."""
    return curves.mean(axis=-1)


def diverged(result: TaskResult) -> np.ndarray:
    """Return bool [V, N]: whether the error of a replica ever passed DIVERGED, or stopped being a number."""
    worst = result.curves.metrics["ratio_error"].max(axis=-1)  # NaN wins
    return ~(worst <= DIVERGED)


def summarise(result: TaskResult) -> list[dict[str, Any]]:
    """Score each method over seeds, with paired differences from Dyna and from the model-free baseline."""
    lost, index = diverged(result).sum(axis=1), {method: i for i, method in enumerate(result.methods)}
    scores = []
    for i, method in enumerate(result.methods):
        metrics = {name: _score(result, name, i) for name in SCORES[method.task]}
        rivals = {update: index.get(method._replace(update=update)) for update in ("dyna", "none")}
        against = {
            update: {name: _duel(result, name, i, j, higher) for name, higher in SCORES[method.task].items()}
            for update, j in rivals.items()
            if j is not None and j != i
        }
        judged = {"judged_by": JUDGED[method.task], "diverged": int(lost[i])}
        scores.append({**method._asdict(), **judged, "metrics": metrics, "against": against})
    return scores


REDUCTIONS = {"final": final, "auc": area}


def _score(result: TaskResult, metric: str, i: int) -> dict[str, Any]:
    curves, sound = result.curves.metrics[metric][i], result.curves.min_v_star > 0.0
    score = {name: _statistics(reduce(curves)) for name, reduce in REDUCTIONS.items()}
    if metric in ("policy_value", "greedy_value"):
        # the ratio is meaningless where some v* is not positive: reported with and without such MDPs
        score["final_where_v_star_positive"] = _statistics(final(curves[sound]))
    return score


def _statistics(x: np.ndarray) -> dict[str, Any]:
    """Compute mean, median and their intervals of one value per seed; None where not finite or without seeds."""
    if not len(x):
        return {"mean": None, "interval": None, "median": None, "median_interval": None}
    return {
        "mean": as_number(x.mean()),
        "interval": as_list(statistics.student_interval(x)),
        "median": as_number(np.median(x)),
        "median_interval": as_list(statistics.median_interval(x)),
    }


def _duel(result: TaskResult, metric: str, i: int, j: int, higher: bool) -> dict[str, Any]:
    """Compare methods i and j seed by seed: i - j, and wins, the seeds on which i is better.

    Wins on the few MDPs with an absorbing state, which dominate the means, are also counted apart.
    """
    curves, duel, absorbing = result.curves.metrics[metric], {}, result.curves.absorbing
    for name, reduce in REDUCTIONS.items():
        mine, theirs = reduce(curves[i]), reduce(curves[j])
        better = mine > theirs if higher else mine < theirs
        with np.errstate(invalid="ignore"):  # both may have diverged
            difference = _statistics(mine - theirs)
        split = {"absorbing": better[absorbing], "not_absorbing": better[~absorbing]}
        duel[name] = {
            "difference": difference,
            **_wins(better),
            "where": {where: _wins(chosen) for where, chosen in split.items()},
        }
    return duel


def _wins(better: np.ndarray) -> dict[str, int]:
    return {"wins": int(better.sum()), "of": len(better)}


def _worlds(result: TaskResult) -> dict[str, Any]:
    """Return the seeds whose MDP distorts a metric or makes unstable methods diverge."""
    seeds, curves = np.array(result.seeds), result.curves
    return {
        "absorbing_state": seeds[curves.absorbing].tolist(),
        "v_star_not_positive": seeds[curves.min_v_star <= 0.0].tolist(),
    }


def _speed(result: TaskResult) -> dict[str, Any]:
    return {
        "task": result.methods[0].task,
        "methods": len(result.methods),
        "compile_seconds": result.curves.compile_seconds,
        "run_seconds": result.curves.run_seconds,
        "iterations_x_replicas_per_second": result.curves.rate,
    }


# Files


def curves_csv(results: Sequence[TaskResult]) -> str:
    """Return every logged number of every replica, one per line."""
    lines = [",".join(COLUMNS)]
    for result in results:
        iterations = result.curves.iterations.tolist()
        methods = itertools.product(enumerate(result.methods), result.curves.metrics.items())
        for (i, method), (metric, curves) in methods:
            head = f"{method.task},{method.model},{method.update}"
            for seed, curve in zip(result.seeds, curves[i].tolist(), strict=True):
                points = zip(iterations, curve, strict=True)
                lines += [f"{head},{seed},{t},{metric},{value:.6g},{method.setting}" for t, value in points]
    return "\n".join(lines) + "\n"
