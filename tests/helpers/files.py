"""What runs have written."""

import csv
from pathlib import Path


def read_rows(directory: Path) -> list[dict[str, str]]:
    with (directory / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def table(out: Path) -> list[dict[str, str]]:
    """metrics.csv without what the clock says."""
    with (out / "metrics.csv").open(newline="") as file:
        return [{key: value for key, value in row.items() if key != "wall_time"} for row in csv.DictReader(file)]
