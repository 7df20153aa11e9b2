"""Tasks of the tabular study: their methods, scores and files."""

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from purejax_sc.config import ConfigError
from purejax_sc.results import statistics
from purejax_sc.results.files import Say, replace_file
from purejax_sc.results.lock import new_directory
from purejax_sc.results.statistics import CONFIDENCE, as_list, as_number
from purejax_sc.tabular import compiled, figures
from purejax_sc.tabular.compiled import Method, TaskResult
from purejax_sc.tabular.learner import Variant
from purejax_sc.tabular.options import TabularOptions, parse, variant

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
    "control": {"policy_value": True},
    "noise": {"relative_error": False, "ratio_error": False},
}
JUDGED = {"evaluation": "auc", "control": "final", "noise": "auc"}  # by which score
# scores: the mean of the last tenth of a curve's points, and the area under it, the mean of all
REDUCTIONS = {
    "final": lambda curves: curves[..., -max(1, curves.shape[-1] // 10) :].mean(axis=-1),
    "auc": lambda curves: curves.mean(axis=-1),
}
DIVERGED = 50.0  # a replica whose ratio_error ever exceeds this, or stops being a number
COLUMNS = ("task", "model", "update", "seed", "iteration", "metric", "value", "setting")


def run(
    tasks: Sequence[Task],
    overrides: Sequence[str],
    out: Path,
    num_seeds: int = 30,
    say: Say = lambda text: None,
    command: str | None = None,
) -> dict[str, Any]:
    """Run tasks, fill the new directory `out` with curves.csv, summary.json and figures, and return the summary.

    overrides: KEY=VALUE words. Raises ConfigError and RunError; then nothing is overwritten.
    """
    options = parse(overrides)
    check(tasks, options, num_seeds)
    with new_directory(out):
        results = [run_task(task, options, num_seeds, say) for task in tasks]
        replace_file(out / "curves.csv", curves_csv(results).encode())
        summary = {
            "command": command,
            "options": options.model_dump(mode="json"),
            "seeds": results[0].seeds,
            "confidence": CONFIDENCE,
            "methods": [score for result in results for score in summarise(result)],
        }
        text = json.dumps(summary, indent=1, allow_nan=False)
        replace_file(out / "summary.json", f"{text}\n".encode())
        for name, image in figures.draw_figures(results).items():
            replace_file(out / name, image)
    return summary


def check(tasks: Sequence[Task], options: TabularOptions, num_seeds: int) -> None:
    """Raise ConfigError for what cannot be run, before anything is written or compiled."""
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


def run_task(task: Task, options: TabularOptions, num_seeds: int, say: Say = lambda text: None) -> TaskResult:
    """Run the methods of a task as one program."""
    methods, numbers = zip(*variants(task, options), strict=True)
    iterations = options.iterations or ITERATIONS[task]
    say(f"{task}: {len(methods)} methods x {num_seeds} seeds x {iterations:,} iterations, compiling")

    def progress(done: int) -> None:
        if done * 10 // iterations > (done - options.log_every) * 10 // iterations:
            say(f"{task}: {done * 100 // iterations}%")

    result = compiled.run(options, task == "control", iterations, compiled.stack(numbers), num_seeds, methods, progress)
    rate = iterations * num_seeds * len(methods) / result.seconds
    say(f"{task}: {result.seconds:.1f} s, {rate:,.0f} iterations x replicas per second")
    return result


def variants(task: Task, options: TabularOptions) -> Iterator[tuple[Method, Variant]]:
    """Yield the methods that a task compares, and their numbers."""
    for model, update in itertools.product(options.models, options.updates):
        numbers = variant(options, model, update, control=task == "control")
        if task != "noise":
            yield Method(task, model, update, ""), numbers
        elif update in NOISE_UPDATES:
            yield from ((Method(task, model, update, name), x) for name, x in _noisy(numbers))


def _noisy(numbers: Variant) -> Iterator[tuple[str, Variant]]:
    """Yield the variants of the noise study: the truth plus noise, in the reward or in the value."""
    for sigma in REWARD_SIGMAS:
        yield f"reward_sigma={sigma:g}", numbers._replace(r_true=1.0, r_noise=sigma)
    for sigma in VALUE_SIGMAS:
        yield f"value_sigma={sigma:g}", numbers._replace(v_true=1.0, v_noise=sigma)


def summarise(result: TaskResult) -> list[dict[str, Any]]:
    """Score each method over seeds, with paired differences from Dyna and from the model-free baseline."""
    index = {method: i for i, method in enumerate(result.methods)}
    diverged = ~(result.metrics["ratio_error"].max(axis=-1) <= DIVERGED)  # [V, N], NaN included
    scores = []
    for i, method in enumerate(result.methods):
        curves = {name: result.metrics[name] for name in SCORES[method.task]}
        metrics = {
            name: {score: _statistics(reduce(x[i])) for score, reduce in REDUCTIONS.items()}
            for name, x in curves.items()
        }
        rivals = {update: index.get(method._replace(update=update)) for update in ("dyna", "none")}
        against = {
            update: {name: _duel(x[i], x[j], SCORES[method.task][name]) for name, x in curves.items()}
            for update, j in rivals.items()
            if j is not None and j != i
        }
        judged = {"judged_by": JUDGED[method.task], "diverged": int(diverged[i].sum())}
        scores.append({**method._asdict(), **judged, "metrics": metrics, "against": against})
    return scores


def _statistics(x: np.ndarray) -> dict[str, Any]:
    """Compute mean, median and their intervals of one value per seed; None where not finite."""
    return {
        "mean": as_number(x.mean()),
        "interval": as_list(statistics.student_interval(x)),
        "median": as_number(np.median(x)),
        "median_interval": as_list(statistics.median_interval(x)),
    }


def _duel(mine: np.ndarray, theirs: np.ndarray, higher: bool) -> dict[str, Any]:
    """Compare curves [N, P] of two methods seed by seed: difference, and wins, the seeds on which mine is better."""
    duel = {}
    for name, reduce in REDUCTIONS.items():
        x, y = reduce(mine), reduce(theirs)
        better = x > y if higher else x < y
        with np.errstate(invalid="ignore"):  # both may have diverged
            duel[name] = {"difference": _statistics(x - y), "wins": int(better.sum()), "of": len(better)}
    return duel


def curves_csv(results: Sequence[TaskResult]) -> str:
    """Return every logged number of every replica, one per line."""
    lines = [",".join(COLUMNS)]
    for result in results:
        iterations = result.iterations.tolist()
        methods = itertools.product(enumerate(result.methods), result.metrics.items())
        for (i, method), (metric, curves) in methods:
            head = f"{method.task},{method.model},{method.update}"
            for seed, curve in zip(result.seeds, curves[i].tolist(), strict=True):
                points = zip(iterations, curve, strict=True)
                lines += [f"{head},{seed},{t},{metric},{value:.6g},{method.setting}" for t, value in points]
    return "\n".join(lines) + "\n"
