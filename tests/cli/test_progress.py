"""What a terminal and a file see of a run."""

import io
import sys
import time

import numpy as np
import pytest

from purejax_sc.cli.progress import Bar
from purejax_sc.training.compiled import Point


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def point(env_steps: int) -> Point:
    return Point(0, env_steps, 0.0, {"episode_return": np.array([2.0, 4.0])})


def test_a_terminal_counts_the_seconds_of_what_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Bar().busy("compiling"):
        time.sleep(1.2)
    assert terminal.getvalue() == "compiling 0 s\rcompiling 1 s\r\x1b[K"  # the last clears the line


def test_a_file_is_told_once_that_something_is_busy(capsys: pytest.CaptureFixture[str]) -> None:
    with Bar().busy("compiling"):
        pass
    assert capsys.readouterr().err == "compiling\n"


def test_a_file_has_the_first_point_and_every_tenth(capsys: pytest.CaptureFixture[str]) -> None:
    bar = Bar()
    bar.start(total=2000, done=0)
    for env_steps in (5, 50, 100, 150, 200):  # of each of two seeds
        bar.advance(point(env_steps))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in lines] == ["0%", "10%", "20%"]
    assert all(line.endswith("env steps/s  return 3") for line in lines)


def test_a_terminal_sees_every_point_also_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    bar = Bar()
    bar.start(total=2000, done=0)
    bar.advance(point(5))
    bar.close()
    assert "10.0/2.00k" in terminal.getvalue()
    assert "return 3" in terminal.getvalue()
