"""The tables that commands print; nothing else prints on stdout."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click


def print_methods(methods: Sequence[dict[str, Any]]) -> None:
    """One line per method: the score that its task is judged by, and the median of the paired difference from Dyna.

    wins: MDPs on which it is better than Dyna; absorbing: those of them that have an absorbing state.
    """
    names = ("task", "model", "update", "setting", "score", "median", "90%", "mean", "less Dyna", "90%", "wins")
    rows = [(*names, "absorbing", "lost")]
    for method in methods:
        metric, scores = next(iter(method["metrics"].items()))
        name = method["judged_by"]
        words = (*(method[key] for key in ("task", "model", "update", "setting")), f"{metric}, {name}")
        numbers = (*_median(scores[name]), _number(scores[name]["mean"]))
        against = method["against"].get("dyna")
        rows.append((*words, *numbers, *_duel(against and against[metric][name]), str(method["diverged"])))
    print_table(rows)


def _duel(duel: dict[str, Any] | None) -> tuple[str, ...]:
    if duel is None:
        return "-", "", "", ""
    counts = (f"{x['wins']}/{x['of']}" for x in (duel, duel["where"]["absorbing"]))
    return (*_median(duel["difference"]), *counts)


def _median(score: dict[str, Any]) -> tuple[str, str]:
    return _number(score["median"]), _interval(score["median_interval"])


def print_comparison(rows: Sequence[dict[str, Any]]) -> None:
    """One line per method and environment, and one per method over all environments, in normalised returns."""
    against = {row["against"] for row in rows if row["against"]}
    better = f"P(> {against.pop() if len(against) == 1 else 'first'})"
    shown = {"final return": "mean", "IQM": "iqm", "normalised AUC": "normalised_auc", better: "improvement"}
    table = [("environment", "run", "seeds", *(cell for name in shown for cell in (name, "90%")))]
    for row in rows:
        cells = [row["environment"], row["method"], str(row["seeds"])]
        for name in shown.values():
            ends = row[f"{name}_low"], row[f"{name}_high"]
            cells += [_number(row[name]), _interval(None if None in ends else ends)]
        table.append(tuple(cells))
    one_environment = len({row["environment"] for row in rows}) == 1
    print_table([line[1:] for line in table] if one_environment else table)


def print_evaluation(report: dict[str, Any]) -> None:
    """The seeds one by one, then one line per way to act."""
    policies = report["policies"]
    rows = [("seed", *(cell for name in policies for cell in (name, "steps")))]
    for i, seed in enumerate(report["seeds"]):
        scores = (policy["per_seed"] for policy in policies.values())
        numbers = (_number(score[key][i]) for score in scores for key in ("return", "length"))
        rows.append((str(seed), *numbers))
    print_table(rows)
    total = len(report["seeds"]) * report["episodes"]
    metrics = list(next(iter(policies.values()))["metrics"])
    extra = (cell for name in metrics for cell in (name, "90% interval"))
    games = any("against_greedy" in policy for policy in policies.values())
    names = (*extra, *(("against greedy", "90% interval") if games else ()))
    rows = [("", "mean return", "90% interval", "IQM", "90% interval", "steps", "cut", *names)]
    for name, policy in policies.items():
        scores = policy["return"]
        mean, iqm = ((_number(scores[key]), _interval(scores[f"{key}_interval"])) for key in ("mean", "iqm"))
        own = [policy["metrics"][metric] for metric in metrics]
        own += [policy.get("against_greedy", {"mean": None, "mean_interval": None})] if games else []
        extra = (cell for x in own for cell in (_number(x["mean"]), _interval(x["mean_interval"])))
        rows.append((name, *mean, *iqm, _number(policy["length"]), f"{policy['cut']} of {total}", *extra))
    click.echo()
    print_table(rows)
    many = len(report["seeds"]) > 1
    spread = f"the {len(report['seeds'])} seeds" if many else f"the {report['episodes']} episode(s) of the only seed"
    click.echo(f"intervals and IQM are over {spread}; cut: not over after {report['max_steps']} steps")


def print_diagnosis(report: dict[str, Any]) -> None:
    """One line per depth of the model, then what it says of actions, then one per way to choose them."""
    names = list(report["by_depth"])
    said = ([_number(x["mean"]) for x in report["by_depth"][name]] for name in names)
    steps = map(str, range(1, report["depth"] + 1))
    click.echo()
    print_table([("model steps", *(name.replace("_", " ") for name in names)), *zip(steps, *said, strict=True)])
    click.echo()
    scores = report["actions"].items()
    print_table([(name.replace("_", " "), _number(x["mean"]), _interval(x["mean_interval"])) for name, x in scores])
    if report["chosen"]:
        click.echo()
        _print_chosen(report)


def _print_chosen(report: dict[str, Any]) -> None:
    rows = [("", "value lost", "gain", "90% interval", "over the row above", "90% interval", "not greedy's")]
    for name, policy in report["chosen"].items():
        estimates = (policy["over_greedy"], policy["over_last"])
        over = (cell for x in estimates for cell in (_number(x["mean"]), _interval(x["mean_interval"])))
        rows.append((name, _number(policy["lost"]["mean"]), *over, _number(policy["other"]["mean"])))
    print_table(rows)
    spread = f"the {len(report['seeds'])} seeds" if len(report["seeds"]) > 1 else "the states of the only seed"
    states, oracle = f"{report['choices']} states", f"{report['oracle']} simulations over the environment"
    click.echo(f"value lost by the actions chosen in {states}, judged by {oracle}, and the gain over greedy ones")
    click.echo(f"intervals are over {spread}")


def print_imagination(report: dict[str, Any], meanings: dict[str, str]) -> None:
    """One line per imagined step k, then what the columns mean."""
    columns = report["by_k"].values()
    rows = ([str(k), *(_number(column[k]) for column in columns)] for k in range(report["depth"] + 1))
    print_table([("k", *(name.replace("_", " ") for name in report["by_k"])), *(tuple(row) for row in rows)])
    click.echo()
    print_table([(f"{name.replace('_', ' ')}:", text) for name, text in meanings.items()])
    ended = "ended by a limit of time, for what follows which root values stand"
    cut = f"; {report['cut']} {ended}" if report["cut"] else ""
    click.echo(f"means over {report['steps']} steps of {report['episodes']} episode(s){cut}")
    if report["two_player"]:
        click.echo("the agent plays both sides: values count for the player to move, rewards for the one who moved")
    if report["depth"] > report["trained_depth"]:
        click.echo(f"in training the model was unrolled {report['trained_depth']} steps")


def print_match(report: dict[str, Any]) -> None:
    """A round robin: pairs, then ratings. Against an engine: one line per seed, then one per run."""
    if "pairs" in report:
        counted = ("first", "second", "wins", "draws", "losses")
        pairs: list[tuple[str, ...]] = [(*counted, "score", "90% interval", "over")]
        for pair in report["pairs"]:
            counts = (str(pair[key]) for key in counted)
            pairs.append((*counts, _number(pair["score"]), _interval(pair["interval"]), pair["interval_over"]))
        print_table(pairs)
        click.echo()
        ratings = ((row["name"], f"{row['elo']:.0f}", _interval(row["interval"])) for row in report["elo"])
        print_table([("", "Elo", "90% interval over games"), *ratings])
        return
    rows: list[tuple[str, ...]] = [
        ("run", "seed", "wins", "as Black", "as White", "lead", "not counted", "other score", "games ended by")
    ]
    for row in report["seeds"]:
        sides = (f"{row[side]['wins']} of {row[side]['games']}" for side in ("as_black", "as_white"))
        ended = ", ".join(f"{reason} {count}" for reason, count in row["ended"].items())
        void, differ = str(row["games"] - row["counted"]), str(len(row["scores_that_differ"]))
        rows.append((row["run"], str(row["seed"]), str(row["wins"]), *sides, _number(row["lead"]), void, differ, ended))
    print_table(rows)
    click.echo()
    rates = ((row["run"], _number(row["win_rate"]), _interval(row["interval"])) for row in report["runs"])
    print_table([(f"against {report['opponent']}", "win rate", "90% interval"), *rates])


def print_settings(settings: Sequence[dict[str, Any]]) -> None:
    """One line per setting of a sweep."""
    swept = list(settings[0])[: list(settings[0]).index("final_return")]
    rows = [(*swept, "final return", "90% interval", "IQM", "AUC", "lost")]
    for setting in settings:
        numbers = (_number(setting["mean"]), _interval(setting["mean_interval"]), _number(setting["iqm"]))
        rows.append((*(setting[key] for key in swept), *numbers, _number(setting["auc"]), str(setting["lost"])))
    print_table(rows)


def print_summary(summary: dict[str, Any], out: Path) -> None:
    scores = summary["return"]
    rate = summary["env_steps_per_second"]
    print_table(
        [
            ("final return", _number(scores["mean"]), _interval(scores["mean_interval"])),
            ("IQM", _number(scores["iqm"]), _interval(scores["iqm_interval"])),
            ("speed", f"{rate:,.0f} env steps/s", ""),
            ("compile, run", f"{summary['compile_seconds']:.1f} s, {summary['run_seconds']:.1f} s", ""),
            ("files", str(out), ""),
            ("look", f"tensorboard --logdir {out.parent}", ""),
        ]
    )


def print_verdicts(verdicts: Sequence[Any]) -> None:
    """One line per claim and environment."""
    rows = [("claim", "environment", "difference", "90% interval", "verdict")]
    for x in verdicts:
        interval = f"[{x.low:.3g}, {x.high:.3g}]"
        rows.append((x.claim.claim, x.environment, f"{x.difference:+.3g}", interval, x.verdict))
    if verdicts:
        print_table(rows)


def print_facts(facts: dict[str, float]) -> None:
    """One line per number."""
    print_table([(name, f"{value:,.4g}") for name, value in facts.items()])


def print_keys(keys: Sequence[Any]) -> None:
    """Two lines per key: its default and what it takes, then what it means."""
    for key in keys:
        default = f" = {key.default}" if key.default else ""
        owner = f" [{key.owner}]" if key.owner else ""
        click.echo(f"{key.name}{default}   [{key.values}]{owner}\n    {key.meaning}")


def print_table(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _size(num_bytes: float) -> str:
    return f"{num_bytes / 2**30:,.2f} GiB" if num_bytes >= 2**30 / 10 else f"{num_bytes / 2**20:,.2f} MiB"


def _operations(flops: float) -> str:
    return f"{flops / 1e9:,.0f} GFLOP" if flops >= 1e12 else f"{flops / 1e9:.3g} GFLOP"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _interval(interval: Sequence[float] | None) -> str:
    return "" if interval is None else f"[{interval[0]:.4g}, {interval[1]:.4g}]"
