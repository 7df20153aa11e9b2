"""Progress as a terminal and a file show it."""

import io
import sys

import numpy as np
import pytest

from purejax_sc.cli.progress import Bar
from purejax_sc.training.compiled import Point


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def point(env_steps: int) -> Point:
    """Of two seeds with 1,000 steps each, at ten steps per second."""
    return Point([0, 1], 0, env_steps, env_steps / 1000, env_steps / 10, 0.0, {"episode_return": np.array([2.0, 4.0])})


def test_a_file_has_the_first_point_and_every_tenth(capsys: pytest.CaptureFixture[str]) -> None:
    bar = Bar()
    for env_steps in (5, 50, 100, 150, 200):
        bar(point(env_steps))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in lines] == ["0%", "10%", "20%"]
    assert all(line.endswith("20 env steps/s  return 3") for line in lines)


def test_a_terminal_sees_every_point_also_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    bar = Bar()
    bar(point(5))
    bar.close()
    assert "10.0/2.00k" in terminal.getvalue()
    assert "return 3" in terminal.getvalue()
