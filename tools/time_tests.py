"""What the tests' time is spent on, by folder: a plugin of pytest that adds rows to a CSV file.

    TIMES=tests/times.csv python -m pytest -n 2 -m "not slow" -p tools.time_tests

seconds: of the tests and their fixtures.   tracing, compiling: JAX's own share of them.   processes: CPU seconds of
processes that tests started.
"""

import csv
import os
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import jax
import pytest

COLUMNS = ("tests", "seconds", "tracing", "compiling", "processes")
CAUSES = {
    "/jax/core/compile/jaxpr_trace_duration": "tracing",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "tracing",
    "/jax/core/compile/backend_compile_duration": "compiling",
}
Times = dict[str, dict[str, float]]  # folder and tier -> column -> value


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Clock(config), "time_tests")


class _Clock:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._times: Times = defaultdict(lambda: dict.fromkeys(COLUMNS, 0.0))
        self._jax = dict.fromkeys(COLUMNS, 0.0)
        jax.monitoring.register_event_duration_secs_listener(self._note)

    def _note(self, event: str, seconds: float, **_: Any) -> None:
        if event in CAUSES:
            self._jax[CAUSES[event]] += seconds

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        begin, children, before = time.perf_counter(), _children(), dict(self._jax)
        try:
            return (yield)
        finally:
            tier = "integration" if item.get_closest_marker("integration") else "default"
            folder = item.path.parent.name if item.path.parent.name != "tests" else item.path.stem
            row = self._times[f"{folder},{tier}"]
            row["tests"] += 1
            row["seconds"] += time.perf_counter() - begin
            row["processes"] += _children() - children
            for cause in ("tracing", "compiling"):
                row[cause] += self._jax[cause] - before[cause]

    def pytest_testnodedown(self, node: Any) -> None:
        """Add the times of a worker of pytest-xdist that has ended."""
        for name, row in node.workeroutput.get("times", {}).items():
            for column, value in row.items():
                self._times[name][column] += value

    def pytest_sessionfinish(self) -> None:
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["times"] = {name: dict(row) for name, row in self._times.items()}

    def pytest_unconfigure(self) -> None:
        if hasattr(self._config, "workeroutput") or not self._times:
            return
        with Path(os.environ["TIMES"]).open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            if not file.tell():
                writer.writerow(["folder", "tier", *COLUMNS])
            for name, row in sorted(self._times.items(), key=lambda pair: -pair[1]["seconds"]):
                writer.writerow([*name.split(","), *(round(row[column]) for column in COLUMNS)])


def _children() -> float:
    times = os.times()
    return times.children_user + times.children_system
