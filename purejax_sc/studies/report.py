"""The page of a study: one HTML file without anything beside it."""

import base64
import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from purejax_sc.config import to_tree
from purejax_sc.config.files import flat
from purejax_sc.results import statistics
from purejax_sc.studies.scores import Scores
from purejax_sc.studies.study_file import Study

if TYPE_CHECKING:
    from purejax_sc.studies.study import Findings

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 0 auto; padding: 1rem; }
figure, .wide { margin: 1rem 0; overflow-x: auto; } figure img { width: 100%; min-width: 40rem; }
table { border-collapse: collapse; font-size: 0.9rem; } th, td { padding: 0.25rem 0.7rem; text-align: left; }
th, td { border-bottom: 1px solid #8886; vertical-align: top; overflow-wrap: anywhere; }
"""
PAPER = " of Farquhar et al., “Self-Consistent Models and Values”, NeurIPS 2021."
PAIRED = (
    "Differences are paired by seed: their mean, or of tables their median. A claim holds, or does not, if the whole"
    " interval is on one side of 0. Over all environments they are on the normalised scale of the figure."
)
NAMES = {"auc": "mean return over training (AUC)", "final": "last tenth of training"}


def page(study: Study, found: "Findings", pictures: Mapping[str, bytes], command: str | None) -> str:
    """Build the page. pictures: file name -> PNG."""
    file = study.file
    body = [
        f"<h1>{html.escape(file.title)}</h1>",
        *_paragraphs([f"{file.figure + PAPER if file.figure else ''} Size: {study.size}. {file.text}", *_notes(found)]),
        *_figures(pictures),
        "<h2>Claims of the paper</h2>",
        *_table(("claim", "environment", "difference, 90% interval", "verdict", "the paper"), _claims(found)),
        *_paragraphs([PAIRED]),
        "<h2>Scores</h2>",
        *_scores(study, found.scores),
        "<h2>Arms</h2>",
        *_table(("environment", "arm", "settings; of later arms those that differ from the first"), _arms(study)),
        "<h2>How it was run</h2>",
        *_paragraphs(_facts(study, found, command)),
    ]
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    head += f"<title>{html.escape(file.title)}</title><style>{STYLE}</style>"
    text = "\n".join(body)
    return f'<!doctype html>\n<html lang="en">\n<head>{head}</head>\n<body>\n{text}\n</body>\n</html>\n'


def score_rows(scores: Scores) -> Iterator[tuple[object, ...]]:
    """A header, and a row per environment, arm, metric and seed."""
    yield ("environment", "arm", "metric", "seed", "value")
    for env, row in scores.items():
        for arm, metrics in row.items():
            for metric, values in metrics.items():
                yield from ((env, arm, metric, seed, f"{value:.7g}") for seed, value in sorted(values.items()))


def _notes(found: "Findings") -> Iterator[str]:
    """Lines about what is missing, for a page that is looked at while the study runs."""
    if found.left:
        yield f"{found.left} program(s) are not done yet: the same command resumes."
    yield from (f"{name} failed: {reason}" for name, reason in found.failed.items())
    lost = {f"{env}/{arm}": x.lost for env, row in found.reached.items() for arm, x in row.items() if x.lost}
    yield from (f"{run}: seed(s) {sorted(seeds)} met a number that is not finite." for run, seeds in lost.items())


def _figures(pictures: Mapping[str, bytes]) -> Iterator[str]:
    for name, data in pictures.items():
        source = f"data:image/png;base64,{base64.b64encode(data).decode()}"
        yield f'<figure><img alt="{html.escape(name)}" src="{source}"></figure>'


def _claims(found: "Findings") -> Iterator[tuple[str, ...]]:
    for x in found.verdicts:
        difference = f"{x.difference:+.3g} [{x.low:.3g}, {x.high:.3g}]"
        yield x.claim.claim, x.environment, difference, x.verdict, x.claim.says


def _scores(study: Study, scores: Scores) -> Iterator[str]:
    metrics = list(dict.fromkeys(name for row in scores.values() for arm in row.values() for name in arm))
    rows = []
    for env, row in scores.items():
        for arm, values in row.items():
            title = study.file.arms[arm].title if arm in study.file.arms else arm
            cells = (_estimate(values.get(name, {})) for name in metrics)
            rows.append((env, title, str(max(map(len, values.values()))), *cells))
    return _table(("environment", "arm", "seeds", *(NAMES.get(name, name) for name in metrics)), rows)


def _estimate(values: Mapping[int, float]) -> str:
    if not values:
        return ""
    x = np.array(list(values.values()))
    interval = statistics.bootstrap_interval(x)
    return f"{x.mean():.4g}" + (f" [{interval[0]:.4g}, {interval[1]:.4g}]" if interval else "")


def _arms(study: Study) -> Iterator[tuple[str, ...]]:
    """Every arm as it differs from the first one, in effective values."""
    for env, row in study.configs.items():
        base = flat(to_tree(next(iter(row.values()))))
        for i, (arm, config) in enumerate(row.items()):
            differ = [f"{key}={x}" for key, x in flat(to_tree(config)).items() if x != base.get(key)]
            yield env, study.file.arms[arm].title, " ".join(differ) if i else study.words(env, arm)


def _facts(study: Study, found: "Findings", command: str | None) -> Iterator[str]:
    yield f"Command: {command or f'purejax-sc study {study.name}'}; in the same directory it does only what is missing."
    summaries = [x for row in found.reached.values() for reached in row.values() for x in reached.summaries]
    if summaries:
        yield f"{sum(x['run_seconds'] for x in summaries) / 3600:.2f} hours of training."
        yield from sorted({f"Device: {x['device']} ({x['platform']})." for x in summaries})
        yield from sorted({", ".join(f"{k} {v}" for k, v in x["versions"].items()) + "." for x in summaries})


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield '<div class="wide"><table>'
    yield f"<tr>{''.join(f'<th>{html.escape(name)}</th>' for name in head)}</tr>"
    yield from (f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    yield "</table></div>"


def _paragraphs(texts: Iterable[str]) -> Iterator[str]:
    return (f"<p>{html.escape(text.strip())}</p>" for text in texts)
