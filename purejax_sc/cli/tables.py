"""The tables that commands print; nothing else prints on stdout. Intervals are of 90%."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click


def print_methods(methods: Sequence[dict[str, Any]]) -> None:
    """One line per method: its score, the median of its difference from Dyna, and wins."""
    names = ("task", "model", "update", "setting", "score", "median", "mean", "less Dyna", "wins", "lost")
    rows: list[tuple[str, ...]] = [names]
    for method in methods:
        (metric, scores), name = next(iter(method["metrics"].items())), method["judged_by"]
        duel = ("-", "")
        if "dyna" in method["against"]:
            found = method["against"]["dyna"][metric][name]
            duel = _estimate(found["difference"], "median"), f"{found['wins']}/{found['of']}"
        words = (*(method[key] for key in ("task", "model", "update", "setting")), f"{metric}, {name}")
        numbers = (_estimate(scores[name], "median"), _number(scores[name]["mean"]))
        rows.append((*words, *numbers, *duel, str(method["diverged"])))
    print_table(rows)


def print_comparison(rows: Sequence[dict[str, Any]]) -> None:
    """One line per method and environment, and one per method over all environments, in normalised returns."""
    against = {row["against"] for row in rows if row["against"]}
    better = f"P(> {against.pop() if len(against) == 1 else 'first'})"
    shown = {"final return": "mean", "IQM": "iqm", "normalised AUC": "normalised_auc", better: "improvement"}
    table = [("environment", "run", "seeds", *shown)]
    for row in rows:
        cells = [row["environment"], row["method"], str(row["seeds"])]
        for name in shown.values():
            ends = row[f"{name}_low"], row[f"{name}_high"]
            cells.append(_between(row[name], None if None in ends else ends))
        table.append(tuple(cells))
    one_environment = len({row["environment"] for row in rows}) == 1
    print_table([line[1:] for line in table] if one_environment else table)


def print_evaluation(report: dict[str, Any]) -> None:
    """One line per way to act."""
    policies = report["policies"]
    total = len(report["seeds"]) * report["episodes"]
    metrics = list(next(iter(policies.values()))["metrics"])
    rows = [("", "mean return", "IQM", "steps", "cut", *metrics)]
    for name, policy in policies.items():
        own = (_estimate(policy["metrics"][metric]) for metric in metrics)
        scores = (_estimate(policy["return"]), _estimate(policy["return"], "iqm"), _number(policy["length"]))
        rows.append((name, *scores, f"{policy['cut']} of {total}", *own))
    print_table(rows)
    many = len(report["seeds"]) > 1
    spread = f"the {len(report['seeds'])} seeds" if many else f"the {report['episodes']} episode(s) of the only seed"
    click.echo(f"intervals and IQM are over {spread}; cut: not over after {report['max_steps']} steps")


def print_diagnosis(report: dict[str, Any]) -> None:
    """Two tables: scores of action values, and value lost by each policy."""
    click.echo()
    print_table([(name.replace("_", " "), _estimate(x)) for name, x in report["actions"].items()])
    if not report["chosen"]:
        return
    click.echo()
    rows = [("", "value lost", "gain", "over the row above")]
    for name, policy in report["chosen"].items():
        gains = _estimate(policy["over_greedy"]), _estimate(policy["over_last"])
        rows.append((name, _number(policy["lost"]["mean"]), *gains))
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
    click.echo(f"means over {report['steps']} steps of {report['envs']} environments")
    if report["two_player"]:
        click.echo("the agent plays both sides: values count for the player to move, rewards for the one who moved")


def print_match(report: dict[str, Any]) -> None:
    """A round robin: pairs, then ratings. Against an engine: one line per seed, then one per run."""
    if "pairs" in report:
        counted = ("first", "second", "wins", "draws", "losses")
        pairs: list[tuple[str, ...]] = [(*counted, "score", "over")]
        for pair in report["pairs"]:
            counts = (str(pair[key]) for key in counted)
            pairs.append((*counts, _between(pair["score"], pair["interval"]), pair["interval_over"]))
        print_table(pairs)
        click.echo()
        ratings = ((row["name"], _between(round(row["elo"]), row["interval"])) for row in report["elo"])
        print_table([("", "Elo, over games"), *ratings])
        return
    rows: list[tuple[str, ...]] = [("run", "seed", "wins", "as Black", "as White", "games ended by")]
    for row in report["seeds"]:
        sides = (f"{row[side]['wins']} of {row[side]['games']}" for side in ("as_black", "as_white"))
        ended = ", ".join(f"{reason} {count}" for reason, count in row["ended"].items())
        rows.append((row["run"], str(row["seed"]), str(row["wins"]), *sides, ended))
    print_table(rows)
    click.echo()
    rates = ((row["run"], _between(row["win_rate"], row["interval"])) for row in report["runs"])
    print_table([(f"against {report['opponent']}", "win rate"), *rates])


def print_settings(settings: Sequence[dict[str, Any]]) -> None:
    """One line per setting of a sweep."""
    swept = list(settings[0])[: list(settings[0]).index("final_return")]
    rows = [(*swept, "final return", "IQM", "AUC", "lost")]
    for setting in settings:
        numbers = (_estimate(setting), _number(setting["iqm"]), _number(setting["auc"]))
        rows.append((*(setting[key] for key in swept), *numbers, str(setting["lost"])))
    print_table(rows)


def print_summary(summary: dict[str, Any], out: Path) -> None:
    """Print the result of a run and its files."""
    rows = {
        "final return": _estimate(summary["return"]),
        "IQM": _estimate(summary["return"], "iqm"),
        "speed": f"{summary['env_steps_per_second']:,.0f} env steps/s",
        "compile, run": f"{summary['compile_seconds']:.1f} s, {summary['run_seconds']:.1f} s",
        "files": str(out),
        "look": shlex.join(["tensorboard", "--logdir", str(out.parent)]),
    }
    print_table(list(rows.items()))


def print_verdicts(verdicts: Sequence[Any]) -> None:
    """One line per claim and environment."""
    rows = [("claim", "environment", "difference", "verdict")]
    for x in verdicts:
        difference = f"{x.difference:+.3g} [{x.low:.3g}, {x.high:.3g}]"
        rows.append((x.claim.claim, x.environment, difference, x.verdict))
    if verdicts:
        print_table(rows)


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


def _estimate(x: dict[str, Any], name: str = "mean") -> str:
    return _between(x[name], x[f"{name}_interval"])


def _between(value: float | None, interval: Sequence[float] | None) -> str:
    return _number(value) if interval is None else f"{_number(value)} [{interval[0]:.4g}, {interval[1]:.4g}]"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
