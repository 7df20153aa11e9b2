"""The page of a study: one file of HTML without anything beside it, readable on a telephone and in print."""

import base64
import csv
import html
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from purejax_sc.config import to_tree
from purejax_sc.config.files import flat
from purejax_sc.results import statistics
from purejax_sc.studies.claims import HOLDS, UNDECIDED, Scores
from purejax_sc.studies.study_file import Study

if TYPE_CHECKING:
    from purejax_sc.studies.study import Findings

STYLE = """
:root { color-scheme: light dark; --line: #8886; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
figure { margin: 1rem 0; overflow-x: auto; background: white; border-radius: 6px; }
figure svg { width: 100%; min-width: 40rem; height: auto; } figure img { max-width: 100%; height: auto; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 0.9rem; }
th, td { padding: 0.25rem 0.7rem; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.holds { color: #1a7f37; font-weight: 600; } .fails { color: #cf222e; font-weight: 600; } .undecided { opacity: 0.7; }
code { font-size: 0.85em; overflow-wrap: anywhere; } .claim { white-space: nowrap; }
.note { border-left: 4px solid #bf8700; padding-left: 0.8rem; }
"""


def page(study: Study, found: "Findings", pictures: Mapping[str, bytes], command: str | None) -> str:
    """The whole page. pictures: by file name; an SVG is shown, and PNGs where there is none."""
    file = study.file
    paper = " of Farquhar et al., <i>Self-Consistent Models and Values</i>, NeurIPS 2021. "
    parts = [
        f"<h1>{_text(file.title)}</h1>",
        f"<p>{_text(file.figure) + paper if file.figure else ''}Size: {study.size}. {_text(file.text)}</p>",
        *_state(found),
        *_figures(pictures),
        "<h2>What the paper says</h2>",
        _claims(found),
        "<h2>Scores</h2>",
        _scores(study, found),
        "<h2>Arms</h2>",
        _arms(study),
        "<h2>How it was run</h2>",
        _facts(study, found, command),
    ]
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    title = f"<title>{_text(file.title)}</title><style>{STYLE}</style>"
    return (
        f'<!doctype html>\n<html lang="en">\n<head>{head}{title}</head>\n<body>\n'
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def scores_csv(scores: Scores) -> bytes:
    """One row per environment, arm, seed and metric."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["environment", "arm", "metric", "seed", "value"])
    for env, row in scores.items():
        for arm, metrics in row.items():
            for metric, values in metrics.items():
                writer.writerows([env, arm, metric, seed, f"{value:.7g}"] for seed, value in sorted(values.items()))
    return text.getvalue().encode()


def _state(found: "Findings") -> Iterable[str]:
    """What is missing, for a page that is looked at while the study runs."""
    if found.left:
        yield f'<p class="note">{found.left} program(s) are not done yet: the same command goes on.</p>'
    for name, reason in found.failed.items():
        yield f'<p class="note">{_text(name)} failed: {_text(reason)}</p>'
    lost = {f"{env}/{arm}": x.lost for env, row in found.reached.items() for arm, x in row.items() if x.lost}
    for name, seeds in lost.items():
        which = ", ".join(map(str, sorted(seeds)))
        yield f'<p class="note">{_text(name)}: seed(s) {which} met a number that is not finite.</p>'


def _figures(pictures: Mapping[str, bytes]) -> Iterable[str]:
    drawn = [name for name in pictures if name.endswith(".svg")]
    for name in drawn or pictures:
        if name in drawn:
            svg = pictures[name].decode()
            yield f"<figure>{svg[svg.index('<svg') :]}</figure>"
        else:
            data = base64.b64encode(pictures[name]).decode()
            yield f'<figure><img alt="{_text(name)}" src="data:image/png;base64,{data}"></figure>'


def _claims(found: "Findings") -> str:
    if not found.verdicts:
        return "<p>None can be judged yet: a claim needs two seeds of both of its arms.</p>"
    rows = []
    for x in found.verdicts:
        kind = {HOLDS: "holds", UNDECIDED: "undecided"}.get(x.verdict, "fails")
        difference = f"{x.difference:+.3g} [{x.low:.3g}, {x.high:.3g}]"
        rows.append(
            f'<tr><td class="claim"><code>{_text(x.claim.text)}</code></td><td>{_text(x.environment)}</td>'
            f'<td class="number">{difference}</td><td class="{kind}">{x.verdict}</td>'
            f"<td>{_text(x.claim.says)}</td></tr>"
        )
    head = ("claim", "environment", "difference, 90% interval", "verdict", "the paper")
    return _table(head, rows) + (
        "<p>Differences are paired by seed: their mean, or of tables their median. A claim holds, or does not, if the"
        " whole interval is on one side of 0. Over all environments they are on the normalised scale of the figure.</p>"
    )


def _scores(study: Study, found: "Findings") -> str:
    metrics = list(dict.fromkeys(name for row in found.scores.values() for arm in row.values() for name in arm))
    rows = []
    for env, row in found.scores.items():
        for arm, values in row.items():
            cells = "".join(f'<td class="number">{_estimate(values.get(name, {}))}</td>' for name in metrics)
            seeds = max(map(len, values.values()))
            title = study.title(arm) if arm in study.file.arms else arm
            rows.append(f'<tr><td>{_text(env)}</td><td>{_text(title)}</td><td class="number">{seeds}</td>{cells}</tr>')
    names = {"auc": "mean return over training (AUC)", "final": "last tenth of training"}
    return _table(("environment", "arm", "seeds", *(names.get(name, name) for name in metrics)), rows)


def _estimate(values: Mapping[int, float]) -> str:
    if not values:
        return ""
    x = np.array(list(values.values()))
    interval = statistics.bootstrap_interval(x)
    return f"{x.mean():.4g}" + (f" [{interval[0]:.4g}, {interval[1]:.4g}]" if interval else "")


def _arms(study: Study) -> str:
    """Every arm as it differs from the first one, in the values that are in force."""
    if study.file.tabular:
        words = study.file.tabular.words or "its defaults"
        return f"<p>Updates of the tabular study with <code>{_text(words)}</code>.</p>"
    rows = []
    for env, row in study.configs.items():
        base = flat(to_tree(next(iter(row.values()))))
        for i, (arm, config) in enumerate(row.items()):
            settings = flat(to_tree(config))
            differ = [f"{key}={value}" for key, value in settings.items() if value != base.get(key)]
            words = " ".join(study.words[env][arm]) if i == 0 else " ".join(differ)
            rows.append(
                f"<tr><td>{_text(env)}</td><td>{_text(study.title(arm))}</td><td><code>{_text(words)}</code></td></tr>"
            )
    return _table(("environment", "arm", "settings; of later arms those that differ from the first"), rows)


def _facts(study: Study, found: "Findings", command: str | None) -> str:
    summaries = [x for row in found.reached.values() for reached in row.values() for x in reached.summaries]
    again = command or f"purejax-sc study {study.name}"
    lines = [f"Again: <code>{_text(again)}</code>; in the same directory it does only what is missing."]
    if summaries:
        # a program is compiled once, whichever of its runs notes it
        compiling = sum({x["compile_seconds"] for x in summaries})
        running = sum(x["run_seconds"] for x in summaries)
        share = compiling / (compiling + running)
        lines.append(f"{_duration(compiling + running)} of training, {share:.0%} of it compiling.")
        seeds = sorted({seed for x in summaries for seed in x["seeds"]})
        lines.append(f"Seeds {seeds[0]} to {seeds[-1]}.")
        lines += sorted({f"Device: {_text(x['device'])} ({_text(x['platform'])})." for x in summaries})
        lines += sorted({_text(", ".join(f"{k} {v}" for k, v in x["versions"].items())) + "." for x in summaries})
    return "".join(f"<p>{line}</p>" for line in lines)


def _duration(seconds: float) -> str:
    return f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{seconds / 60:.1f} minutes"


def _table(head: Sequence[str], rows: Sequence[str]) -> str:
    cells = "".join(f"<th>{_text(name)}</th>" for name in head)
    return f'<div class="wide"><table><tr>{cells}</tr>{"".join(rows)}</table></div>'


def _text(value: Any) -> str:
    return html.escape(str(value))
