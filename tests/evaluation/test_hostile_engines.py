"""Engines that do what no engine should: one error of one line, in time, and none of their processes is left."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.hostile_engines import HOSTILE, MARK, survivors

from purejax_sc.evaluation.gtp_engine import Engine, GtpError

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc to see processes")


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(MARK, str(tmp_path))
    return str(tmp_path)


def play(command_line: str) -> str:
    """What stops a game with an engine; empty if nothing does."""
    try:
        with Engine(command_line, timeout=0.5, patience=0.2) as engine:
            engine.set_up(5, 7.5)
            engine.genmove(0, 5)
    except GtpError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_engine_is_one_line_and_leaves_nobody(name: str, tmp_path: Path, mark: str) -> None:
    script = tmp_path / "engine.py"
    script.write_text(HOSTILE[name])
    began = time.monotonic()
    error = play(shlex.join([sys.executable, "-I", "-S", str(script)]))
    # They sleep for ten minutes; it takes half a second, and once took eight on a machine at work.
    assert time.monotonic() - began < 30
    assert error.startswith(f"engine '{sys.executable} -I -S {script}' ")
    assert error.isprintable()
    assert "BrokenPipe" not in error, "its last words are about what we did to it"
    assert error.rpartition(": ")[2].startswith(
        ("run it in a terminal", "give it more time", "check that it", "choose")
    )
    assert survivors(mark) == []


def test_an_engine_ends_when_we_are_killed(tmp_path: Path, mark: str) -> None:
    script = tmp_path / "engine.py"
    script.write_text(HOSTILE["leaves its group and exits"])
    code = (
        "import sys, time; from purejax_sc.evaluation.gtp_engine import Engine\n"
        f"engine = Engine({shlex.join([sys.executable, '-I', '-S', str(script)])!r})\n"
        "print('here', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "here\n"
            # the process, the keeper, and what the engine started or itself
            assert within(10, lambda: len(survivors(mark)) >= 3)
        finally:
            os.kill(process.pid, signal.SIGKILL)
    assert within(10, lambda: survivors(mark) == [])


def within(seconds: float, fact: Callable[[], bool]) -> bool:
    """Whether something comes true in time."""
    limit = time.monotonic() + seconds
    while not fact() and time.monotonic() < limit:
        time.sleep(0.01)
    return fact()
