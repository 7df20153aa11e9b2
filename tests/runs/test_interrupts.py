"""Signals that stop a command: a checkpoint at the next log point, an exit status that shells expect."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from purejax_sc.runs import interrupts

# A computation in C that takes minutes and never returns to Python's signal handlers, as XLA's compiler is.
DEAF = """
import hashlib, os, threading
from purejax_sc.runs import interrupts
interrupts.install()
for seconds in (0.2, 0.2, 1, 6):  # the last is needed where a busy machine delivers the third with the pair
    threading.Timer(seconds, os.kill, (os.getpid(), {number})).start()
hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
"""


@pytest.mark.parametrize("number", interrupts.SIGNALS)
def test_the_second_signal_ends_a_process_that_computes(number: signal.Signals) -> None:
    begin = time.monotonic()
    result = subprocess.run([sys.executable, "-c", DEAF.format(number=int(number))], timeout=30, check=False)
    assert result.returncode == 128 + number
    assert time.monotonic() - begin > 1  # the pair at the start is one request


def test_the_first_request_stops_and_the_second_interrupts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "PAIR_SECONDS", -1.0)
    said: list[str] = []
    before = signal.getsignal(signal.SIGTERM)
    with interrupts.stop_requests(said.append) as requested:
        assert not requested()
        signal.raise_signal(signal.SIGTERM)
        assert requested()
        with pytest.raises(interrupts.Interrupted) as caught:
            signal.raise_signal(signal.SIGTERM)
    assert interrupts.exit_status(caught.value) == 143
    assert said == ["stopping at the next log point; once more stops at once"]
    assert signal.getsignal(signal.SIGTERM) is before


def answer(number: signal.Signals) -> None:
    """Stop as a run does that was asked to."""
    with interrupts.stop_requests(lambda text: None) as requested:
        signal.raise_signal(number)
        if requested():
            raise KeyboardInterrupt


def test_the_answer_to_a_request_has_the_status_of_its_signal() -> None:
    with pytest.raises(interrupts.Interrupted) as caught:
        answer(signal.SIGTERM)
    assert interrupts.exit_status(caught.value) == 143


def test_what_nohup_makes_ignored_stays_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupts.stop_requests(pytest.fail):
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_ctrl_c_ends_a_training_with_a_checkpoint_and_a_line(tmp_path: Path) -> None:
    out, small = tmp_path / "run", ["sc.update=none", "muesli.unroll=1"]  # compiles sooner
    words = ["train.env_steps=200_000", "train.log_points=1_000", *small]
    command = [sys.executable, "-m", "purejax_sc", "train", "smoke", *words, "--out", str(out), "--resume"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ)
    assert process.stderr is not None
    while "10%" not in (line := process.stderr.readline()):
        assert line, "it ended too soon"
    process.send_signal(signal.SIGINT)
    error = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    said = f"purejax-sc: stopped: what was written stays in {out}; --resume continues from there\n"
    assert error.endswith(f"stopping at the next log point; once more stops at once\n{said}")
    assert json.loads((out / "summary.json").read_text())["status"] == "stopped"
    assert len(list(out.glob("checkpoints/[0-9]*"))) == 1
