"""Ctrl-C where Python does not answer: the process leaves at once, with its line, and elsewhere nothing has changed."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from purejax_sc.cli import ctrl_c

# A computation in C that takes minutes and never returns to Python's signal handlers.
DEAF = """
import hashlib
from purejax_sc.cli.ctrl_c import leave_at_once
with leave_at_once("gone", 130):
    print("here", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
"""


@pytest.fixture(autouse=True)
def heeded() -> Iterator[None]:
    """Python's own handler of Ctrl-C, which a shell takes from what it runs in the background, and from all of its
    children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted(command: list[str], sign: str, **environment: str) -> tuple[int, str]:
    """Exit status and stderr of a process that is sent Ctrl-C once it has written a line that holds `sign`."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | environment
    )
    stream = process.stdout if sign == "here" else process.stderr
    assert stream is not None
    while sign not in (line := stream.readline()):
        assert line, "it ended too soon"
    process.send_signal(signal.SIGINT)
    return process.wait(timeout=30), process.communicate()[1]


def test_a_deaf_process_leaves_at_once_with_its_line() -> None:
    assert interrupted([sys.executable, "-c", DEAF], "here") == (130, "gone\n")


def test_a_training_leaves_while_it_compiles_and_goes_on_until_the_next_ctrl_c(tmp_path: Path) -> None:
    out, small = tmp_path / "run", ["sc.update=none", "muesli.unroll=1"]  # compiles sooner
    words = ["train.env_steps=200_000", "train.log_points=1_000", *small]
    command = [sys.executable, "-m", "purejax_sc", "train", "smoke", *words, "--out", str(out), "--resume"]
    status, error = interrupted(command, "compiling", JAX_COMPILATION_CACHE_DIR=str(tmp_path / "cache"))
    line = f"purejax-sc: stopped: what was written stays in {out}; --resume goes on from there\n"
    assert (status, error) == (130, line)
    assert [path.name for path in out.iterdir()] == ["config.yaml"]
    status, error = interrupted(command, "10%")
    assert status == 130
    assert error.endswith(f"stopping at the next log point; once more stops at once\n{line}")
    assert json.loads((out / "summary.json").read_text())["status"] == "stopped"
    assert len(list(out.glob("checkpoints/[0-9]*"))) == 1


def test_afterwards_ctrl_c_is_what_it_was() -> None:
    threads = threading.active_count()
    with ctrl_c.leave_at_once("gone", 130):
        assert threading.active_count() == threads + 1
    assert threading.active_count() == threads
    assert signal.set_wakeup_fd(-1) == -1
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_in_another_thread_nothing_changes() -> None:
    seen: list[object] = []

    def look() -> None:
        with ctrl_c.leave_at_once("gone", 130):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]
