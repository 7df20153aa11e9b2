"""The paper's tabular experiments: which methods run on which task, and what is written about them."""

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
from purejax_sc.tabular.compiled import Method, Record
from purejax_sc.tabular.learner import Variant
from purejax_sc.tabular.options import NOISE_UPDATES, Setting, TabularOptions, parse, variant

TASKS = ("evaluation", "control", "noise")
Task = Literal["evaluation", "control", "noise"]
ITERATIONS = {"evaluation": 12_000, "control": 12_000, "noise": 3_000}
# what is compared between methods, best first; True: higher is better
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
      say:       is told what goes on, line by line.
      command:   noted in the summary.

    Returns:
      The contents of summary.json. Raises ConfigError and RunError; then nothing is overwritten.
    """
    settings = parse(overrides)
    check(tasks, settings, num_seeds)
    with new_directory(out):
        records = [record for task in tasks for record in run_task(task, settings, num_seeds, say)]
        return _write(out, records, settings, command)


def _write(out: Path, records: Sequence[Record], settings: Sequence[Setting], command: str | None) -> dict[str, Any]:
    """All files of a study; the summary is returned."""
    replace_file(out / "curves.csv", curves_csv(records).encode())
    scores = [score for record in records for score in summarise(record)]
    summary = {
        "command": command,
        "options": [{"setting": label, **options.model_dump(mode="json")} for label, options in settings],
        "seeds": records[0].seeds,
        "confidence": CONFIDENCE,
        "worlds": _worlds(records),
        "programs": [_speed(record) for record in records],
        "methods": scores,
    }
    text = json.dumps(summary, indent=1, allow_nan=False)
    replace_file(out / "summary.json", f"{text}\n".encode())
    for name, image in figures.draw(records, scores).items():
        replace_file(out / name, image)
    return summary


def check(tasks: Sequence[Task], settings: Sequence[Setting], num_seeds: int) -> None:
    """Raise ConfigError for what cannot be run, before anything is written or compiled."""
    if num_seeds < 1:
        raise ConfigError(f"seeds={num_seeds}: run at least one")
    for task, (_, options) in ((task, setting) for task in tasks for setting in settings):
        if options.seed + num_seeds > 2**31:
            raise ConfigError(f"seed={options.seed} leaves no room for {num_seeds} seeds below 2**31: lower seed")
        iterations = options.iterations or ITERATIONS[task]
        if iterations % options.log_every:
            better = -(-iterations // options.log_every) * options.log_every
            raise ConfigError(
                f"iterations={iterations} is no multiple of log_every={options.log_every}: set iterations={better}"
            )
        if task == "noise" and not set(options.updates) & set(NOISE_UPDATES):
            raise ConfigError("the noise study compares dyna with direct: name one of them in updates=")


def run_task(
    task: Task, settings: Sequence[Setting], num_seeds: int, say: Callable[[str], None] = lambda text: None
) -> list[Record]:
    """All settings of a task, those that differ in numbers only as one program."""
    groups: dict[TabularOptions, list[Setting]] = {}
    for setting in settings:
        groups.setdefault(setting.program, []).append(setting)
    records = []
    for options, group in groups.items():
        methods, numbers = zip(*(pair for setting in group for pair in variants(task, setting)), strict=True)
        iterations = options.iterations or ITERATIONS[task]
        say(f"{task}: {len(methods)} methods x {num_seeds} seeds x {iterations:,} iterations, compiling")
        progress = _tenths(lambda tenth: say(f"{task}: {tenth * 10}%"), iterations)
        stacked = compiled.stack(numbers)
        result = compiled.run(options, task == "control", iterations, stacked, num_seeds, progress)
        say(f"{task}: {result.run_seconds:.1f} s, {result.rate:,.0f} iterations x replicas per second")
        records.append(Record(list(methods), [options.seed + i for i in range(num_seeds)], result))
    return records


def variants(task: Task, setting: Setting) -> Iterator[tuple[Method, Variant]]:
    """The methods that a task compares in one setting, and their numbers."""
    label, options = setting
    for model, update in itertools.product(options.models, options.updates):
        numbers = variant(options, model, update, control=task == "control")
        if task != "noise":
            yield Method(task, model, update, label), numbers
        elif update in NOISE_UPDATES:
            noisy = _noisy(options, numbers)
            yield from ((Method(task, model, update, f"{name} {label}".strip()), x) for name, x in noisy)


def _noisy(options: TabularOptions, numbers: Variant) -> Iterator[tuple[str, Variant]]:
    """The variants of the initialisation study: the truth plus noise, in the reward or in the value."""
    for sigma in options.reward_sigmas:
        yield f"reward_sigma={sigma:g}", numbers._replace(r_true=1.0, r_noise=sigma)
    for sigma in options.value_sigmas:
        yield f"value_sigma={sigma:g}", numbers._replace(v_true=1.0, v_noise=sigma)


def _tenths(tell: Callable[[int], None], iterations: int) -> Callable[[int], None]:
    """A progress callback that tells each finished tenth but the last once."""
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
    """[...] mean over the last tenth of the points of curves [..., P]."""
    return curves[..., -max(1, curves.shape[-1] // 10) :].mean(axis=-1)


def area(curves: np.ndarray) -> np.ndarray:
    """[...] area under the curve, as its mean over equally spaced points [..., P]."""
    return curves.mean(axis=-1)


def diverged(record: Record) -> np.ndarray:
    """bool [V, N]: did the error of a replica ever pass DIVERGED, or stop being a number?"""
    worst = record.result.metrics["ratio_error"].max(axis=-1)  # NaN wins
    return ~(worst <= DIVERGED)


def summarise(record: Record) -> list[dict[str, Any]]:
    """Scores of each method over seeds, and paired differences from Dyna and from the model-free baseline."""
    lost, index = diverged(record).sum(axis=1), {method: i for i, method in enumerate(record.methods)}
    scores = []
    for i, method in enumerate(record.methods):
        metrics = {name: _score(record, name, i) for name in SCORES[method.task]}
        rivals = {update: index.get(method._replace(update=update)) for update in ("dyna", "none")}
        against = {
            update: {name: _duel(record, name, i, j, higher) for name, higher in SCORES[method.task].items()}
            for update, j in rivals.items()
            if j is not None and j != i
        }
        judged = {"judged_by": JUDGED[method.task], "diverged": int(lost[i])}
        scores.append({**method._asdict(), **judged, "metrics": metrics, "against": against})
    return scores


REDUCTIONS = {"final": final, "auc": area}


def _score(record: Record, metric: str, i: int) -> dict[str, Any]:
    curves, sound = record.result.metrics[metric][i], record.result.min_v_star > 0.0
    score = {name: _statistics(reduce(curves)) for name, reduce in REDUCTIONS.items()}
    if metric in ("policy_value", "greedy_value"):
        # where some v* is not positive the ratio means nothing; shown with and without such MDPs
        score["final_where_v_star_positive"] = _statistics(final(curves[sound]))
    return score


def _statistics(x: np.ndarray) -> dict[str, Any]:
    """Mean, median and their intervals of one value per seed; None for what is not finite or has no seeds."""
    if not len(x):
        return {"mean": None, "interval": None, "median": None, "median_interval": None}
    return {
        "mean": as_number(x.mean()),
        "interval": as_list(statistics.student_interval(x)),
        "median": as_number(np.median(x)),
        "median_interval": as_list(statistics.median_interval(x)),
    }


def _duel(record: Record, metric: str, i: int, j: int, higher: bool) -> dict[str, Any]:
    """Method i less method j, seed by seed. wins: seeds on which i is better.

    Means are carried by the few MDPs with an absorbing state, whose values spread far: they are also counted apart.
    """
    curves, duel, absorbing = record.result.metrics[metric], {}, record.result.absorbing
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


def _worlds(records: Sequence[Record]) -> dict[str, Any]:
    """Seeds whose MDP distorts a metric or makes unstable methods diverge."""
    record = records[0]
    seeds, result = np.array(record.seeds), record.result
    return {
        "absorbing_state": seeds[result.absorbing].tolist(),
        "v_star_not_positive": seeds[result.min_v_star <= 0.0].tolist(),
    }


def _speed(record: Record) -> dict[str, Any]:
    result = record.result
    return {
        "task": record.methods[0].task,
        "methods": len(record.methods),
        "compile_seconds": result.compile_seconds,
        "run_seconds": result.run_seconds,
        "iterations_x_replicas_per_second": result.rate,
    }


# Files


def curves_csv(records: Sequence[Record]) -> str:
    """Every logged number of every replica, one per line."""
    lines = [",".join(COLUMNS)]
    for record in records:
        curves = itertools.product(enumerate(record.methods), record.result.metrics)
        for (i, method), metric in curves:
            lines += _metric_lines(record, i, method, metric)
    return "\n".join(lines) + "\n"


def _metric_lines(record: Record, i: int, method: Method, metric: str) -> Iterator[str]:
    """The lines of one metric of method i, seed by seed."""
    head, iterations = f"{method.task},{method.model},{method.update}", record.result.iterations.tolist()
    for seed, curve in zip(record.seeds, record.result.metrics[metric][i].tolist(), strict=True):
        for iteration, value in zip(iterations, curve, strict=True):
            yield f"{head},{seed},{iteration},{metric},{value:.6g},{method.setting}"
