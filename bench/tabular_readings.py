"""Which readings of the paper's tabular experiments satisfy which of its claims?

    JAX_NUM_CPU_DEVICES=2 python bench/tabular_readings.py --out bench/results/tabular_readings.csv
    JAX_NUM_CPU_DEVICES=2 python bench/tabular_readings.py --groups base --iterations 12000 --out long.csv

A group is one compiled program per task: what decides its shape (`SHAPES`) is fixed, and every combination of numbers
(`numbers`) is a row of it. Evaluation is judged by the area under the relative error, control by the final policy
value, both by paired differences over the same MDPs. Rows that the file already holds are skipped, so an interrupted
sweep goes on where it stopped.

`i beats j`: a majority of wins that a sign test finds at 5% (one-sided).
    E1  Dyna beats model-free                  E2  Direct beats Dyna
    E3  Residual does not beat model-free      E4  model-free beats Reverse
    C1  Direct has the highest mean final policy value of all methods
    C2  Residual and Reverse end within 0.02 of Dyna, or above
    C1s C1, and the 90% intervals of Direct's lead over every other method are above 0

C1 is also judged at shorter horizons, after a twelfth, a quarter and a half of the iterations.
"""

import argparse
import csv
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats

from purejax_sc.results import statistics
from purejax_sc.tabular import compiled, study
from purejax_sc.tabular.learner import Variant
from purejax_sc.tabular.options import TabularOptions, variant

UPDATES = ("none", "dyna", "direct", "reverse", "residual")
SHAPES: dict[str, dict[str, Any]] = {
    "base": {"ve_target": "policy", "terms": "K+1"},  # as printed
    "action": {"terms": "K+1"},
    # one change each, with the VE target that comes closer to the paper's claims
    "outside": {"terms": "K+1", "expectation": "outside"},
    "K": {"terms": "K"},
    "value_first": {"terms": "K+1", "order": "value_first"},
    "grounded_mean": {"terms": "K+1", "grounded_reduction": "mean"},
    "chain": {"terms": "K+1", "sampling": "chain"},
    "state_action": {"terms": "K+1", "successors": "state_action"},
}
# (rate, reduction) of the SC step of the logits; the printed rates are 10 and 0.3
LOGITS = {
    "mle": [(1.0, "mean"), (3.0, "mean"), (10.0, "mean")],
    "ve": [(0.3, "mean"), (0.9, "mean"), (0.3, "half_sum")],
}
# (rate of the reward, where None is that of the value; reduction and rate of the SC step of the value)
VALUES = [(None, "mean", "td"), (None, "half_sum", "td"), (1.0, "mean", "td"), (None, "mean", "sc")]
WHOLE = ("base", "action")  # groups with all of VALUES; the others have the first two, as the rest lose claims


def numbers(group: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(model, options) of every row of a group."""
    values = VALUES if group in WHOLE else VALUES[:2]
    for model in ["ve"] if group == "action" else ["mle", "ve"]:
        names = "alpha_r", "sc_value_reduction", "sc_value_rate", f"alpha_sc_{model}", f"sc_{model}_reduction"
        for value, logits in itertools.product(values, LOGITS[model]):
            yield model, dict(zip(names, (*value, *logits), strict=True))


def canonical(numbers: Variant, update: str) -> Variant:
    """The same numbers without the steps that a method never takes, so that equal methods run once."""
    if update == "none":
        return numbers._replace(plan_v=0.0, plan_r=0.0, plan_p=0.0)
    return numbers._replace(plan_r=0.0, plan_p=0.0) if update == "dyna" else numbers


def run_group(name: str, rows: list[dict[str, Any]], seeds: int, iterations: int, points: int) -> list[dict[str, Any]]:
    """Both tasks for the rows of a group, completed by what they show."""
    base = TabularOptions(log_every=iterations // points, **SHAPES[name])
    index: dict[Variant, int] = {}
    chosen = []
    for row in rows:
        options = base.model_copy(update={key: row[key] for key in row if key in TabularOptions.model_fields})
        numbers = {update: canonical(variant(options, row["model"], update), update) for update in UPDATES}
        chosen.append({update: index.setdefault(value, len(index)) for update, value in numbers.items()})
    stacked = compiled.stack(list(index))
    results = {}
    for task in ("evaluation", "control"):
        results[task] = compiled.run(base, task == "control", iterations, stacked, seeds)
        print(f"{name} {task}: {len(rows)} rows, {len(index)} methods, {results[task].run_seconds:.0f} s", flush=True)
    return [row | judge(results, places) for row, places in zip(rows, chosen, strict=True)]


def judge(results: dict[str, compiled.Result], chosen: dict[str, int]) -> dict[str, Any]:
    """Claims and the numbers behind them. chosen: update -> place among the methods."""
    control = results["control"]
    area = {u: study.area(results["evaluation"].metrics["relative_error"][i]) for u, i in chosen.items()}
    curves = {u: control.metrics["policy_value"][i] for u, i in chosen.items()}
    final = {u: study.final(curve) for u, curve in curves.items()}
    mean = {u: float(values.mean()) for u, values in final.items()}
    leads = {u: final["direct"] - final[u] for u in UPDATES if u != "direct"}
    intervals = {u: statistics.student_interval(lead) for u, lead in leads.items()}
    claims = {
        "E1": beats(area["none"] - area["dyna"]),
        "E2": beats(area["dyna"] - area["direct"]),
        "E3": not beats(area["none"] - area["residual"]),
        "E4": beats(area["reverse"] - area["none"]),
        "C1": mean["direct"] > max(value for update, value in mean.items() if update != "direct"),
        "C2": min(mean["reverse"], mean["residual"]) > mean["dyna"] - 0.02,
    }
    return {
        **{name: int(held) for name, held in claims.items()},
        "held": sum(claims.values()),
        "C1s": int(claims["C1"] and all(interval is not None and interval[0] > 0.0 for interval in intervals.values())),
        **{
            f"C1_{name}": int(_best(curves, len(control.iterations) // part) == "direct")
            for name, part in {"twelfth": 12, "quarter": 4, "half": 2}.items()
        },
        **{f"auc_median_{u}": f"{np.median(values):.4f}" for u, values in area.items()},
        "auc_direct_wins_over_dyna": int((area["direct"] < area["dyna"]).sum()),
        **{f"final_{u}": f"{value:.4f}" for u, value in mean.items()},
        **{f"lead_over_{u}": f"{lead.mean():.4f} {_bounds(intervals[u])}" for u, lead in leads.items()},
        **{f"wins_over_{u}": int((lead > 0.0).sum()) for u, lead in leads.items()},
    }


def _best(curves: dict[str, np.ndarray], point: int) -> str:
    """The update whose policy is best on average at a log point."""
    return max(curves, key=lambda update: curves[update][:, point].mean())


def _bounds(interval: tuple[np.ndarray, np.ndarray] | None) -> str:
    return "" if interval is None else f"[{interval[0]:.4f}; {interval[1]:.4f}]"


def beats(gain: np.ndarray) -> bool:
    """Are the gains [N] positive on more seeds than chance explains? A replica that diverged gains nothing."""
    wins = int((gain > 0.0).sum())
    return bool(scipy.stats.binomtest(wins, len(gain), alternative="greater").pvalue < 0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--seeds", type=int, default=96)
    parser.add_argument("--iterations", type=int, default=6000)
    parser.add_argument("--points", type=int, default=30)
    parser.add_argument("--out", type=Path, default=Path("tabular_readings.csv"))
    args = parser.parse_args()
    done: list[dict[str, Any]] = []
    if args.out.exists():
        with args.out.open(newline="") as file:
            done = list(csv.DictReader(file))
    for group in args.groups:
        run = {"group": group, "seeds": args.seeds, "iterations": args.iterations}
        rows = [{**run, "model": model, **changes} for model, changes in numbers(group)]
        missing = [row for row in rows if not any(_same(row, other) for other in done)]
        if missing:
            done += run_group(group, missing, args.seeds, args.iterations, args.points)
            write(args.out, done)
    for row in sorted(done, key=lambda row: -int(row["held"]))[:10]:
        print({key: value for key, value in row.items() if value not in ("", None) and "_over_" not in key})


def _same(row: dict[str, Any], other: dict[str, Any]) -> bool:
    """Is `other`, which may come from the file, about the same methods?"""
    return all(str(other.get(key, "")) == ("" if value is None else str(value)) for key, value in row.items())


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    columns = sorted({column for row in rows for column in row}, key=_place)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)


def _place(column: str) -> tuple[int, str]:
    """Names and settings first, then claims, then numbers."""
    order = ("group", "model", "seeds", "iterations", "alpha", "sc_", "held", "C", "E", "auc", "final", "lead", "wins")
    return next(i for i, prefix in enumerate(order) if column.startswith(prefix)), column


if __name__ == "__main__":
    main()
