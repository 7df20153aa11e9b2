"""Files of reports: what a command found, beside what it found before with other settings."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from purejax_sc.results.files import RunError, check_writable

REPORTS = "reports"  # the only key of such a file; the newest is the last


def read_reports(path: Path) -> list[dict[str, Any]]:
    """The reports of a file, the oldest first; none where there is none. Raises RunError for another kind of file."""
    if not path.exists():
        return []
    try:
        tree = json.loads(path.read_text())
    except (OSError, ValueError):
        tree = None
    reports = tree.get(REPORTS) if isinstance(tree, dict) else None
    if not isinstance(reports, list) or not all(isinstance(report, dict) for report in reports):
        raise RunError(f"{path} is no file of reports: move it away, so that nothing of it is lost")
    return reports


def check_reports(path: Path) -> None:
    """Raise RunError for a file that no report can be added to, before there is one."""
    read_reports(path)
    if path.parent.is_dir():  # else there is no run, which is told in other words
        check_writable(path)


def with_report(path: Path, report: dict[str, Any], found: Sequence[str]) -> bytes:
    """The reports of a file and a new one, which replaces those of the same settings. Raises RunError.

    The file is read only now: another command may have added its own meanwhile.

    found: the keys of what was found and of how it was asked for; all others are settings.
    """

    def settings(x: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in json.loads(json.dumps(x)).items() if key not in found}

    kept = [earlier for earlier in read_reports(path) if settings(earlier) != settings(report)]
    text = json.dumps({REPORTS: [*kept, report]}, indent=2, allow_nan=False)
    return f"{text}\n".encode()
