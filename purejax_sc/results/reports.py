"""Files of reports: results of a command, beside earlier ones of other settings."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from purejax_sc.results.files import RunError, check_writable

REPORTS = "reports"  # the only key of such a file; the newest is the last


def read_reports(path: Path) -> list[dict[str, Any]]:
    """Read the reports of a file, the oldest first; none where there is none. Raises RunError for another file."""
    if not path.exists():
        return []
    try:
        return [dict(report) for report in json.loads(path.read_text())[REPORTS]]
    except (OSError, ValueError, KeyError, TypeError):
        raise RunError(f"{path} is no file of reports: move it away, so that nothing of it is lost") from None


def check_reports(path: Path) -> None:
    """Raise RunError for a file that no report can be added to, before there is one."""
    read_reports(path)
    if path.parent.is_dir():  # else there is no run, which is told in other words
        check_writable(path)


def with_report(path: Path, report: dict[str, Any], found: Collection[str]) -> bytes:
    """Return the reports of a file and a new one, which replaces those of the same settings. Raises RunError.

    found: keys of results and of how they were asked for; all others are settings.
    """

    def settings(x: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in json.loads(json.dumps(x)).items() if key not in found}

    kept = [earlier for earlier in read_reports(path) if settings(earlier) != settings(report)]
    return f"{json.dumps({REPORTS: [*kept, report]}, indent=2, allow_nan=False)}\n".encode()
