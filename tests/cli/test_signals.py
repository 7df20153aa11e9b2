"""Signals that end a process: one line and the status that shells expect, wherever they find it."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from purejax_sc.cli import signals

ENDINGS = {
    signal.SIGINT: "stopped",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "terminated by the end of its terminal",
}
# A computation in C that takes minutes and never returns to Python's signal handlers.
DEAF = """
import hashlib, os, threading
from purejax_sc.cli import signals
signals.GRACE = 0.1
with signals.{how}("all stays"):
    threading.Timer(0.3, os.kill, (os.getpid(), {number})).start()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
"""
# A module that takes minutes to be imported and is no place for an exception.
IMPORTING = """
import contextlib, sys
from pathlib import Path
from purejax_sc.cli import signals
Path("slow.py").write_text("import time; print('here', flush=True); time.sleep(600)")
sys.path.insert(0, "")
signals.leave_from_now_on()
with {how}:
    import slow
"""


@pytest.fixture(autouse=True)
def heeded() -> Iterator[None]:
    """Python's own handlers: a shell takes that of Ctrl-C from what it runs in the background, and from all of its
    children."""
    handlers = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def ended(
    command: list[str], sign: str, number: int = signal.SIGINT, cwd: Path | None = None, **environment: str
) -> tuple[int, str]:
    """Exit status and stderr of a process that is sent a signal once it has written a line that holds `sign`."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd, env=os.environ | environment
    )
    stream = process.stdout if sign == "here" else process.stderr
    assert stream is not None
    while sign not in (line := stream.readline()):
        assert line, "it ended too soon"
    process.send_signal(number)
    return process.wait(timeout=30), process.communicate()[1]


@pytest.mark.parametrize("how", ["at_once", "in_order"])
@pytest.mark.parametrize("number", ENDINGS)
def test_a_deaf_process_leaves_with_its_line(number: signal.Signals, how: str) -> None:
    code = DEAF.format(how=how, number=int(number))
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    line = f"purejax-sc: {ENDINGS[number]}: all stays\n"
    assert (result.returncode, result.stderr) == (128 + number, line)


@pytest.mark.parametrize("how", ["contextlib.nullcontext()", "signals.in_order()"])
def test_a_process_that_imports_leaves_with_its_line(how: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", IMPORTING.format(how=how)]
    assert ended(command, "here", signal.SIGTERM, tmp_path) == (143, "purejax-sc: terminated\n")


def test_the_command_has_its_line_before_anything_is_imported() -> None:
    code = (
        "import os, signal, sys; from purejax_sc.__main__ import main\n"
        "assert 'click' not in sys.modules\n"
        "class Finder:\n"
        "    def find_spec(*_):\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "sys.meta_path.insert(0, Finder)\n"
        "main()"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (143, "purejax-sc: terminated\n")


def test_what_nohup_makes_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with signals.in_order():
        signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


@pytest.mark.parametrize("number", ENDINGS)
def test_work_is_put_in_order_before_a_process_ends(number: signal.Signals) -> None:
    done: list[str] = []

    def work() -> None:
        try:
            signal.raise_signal(number)
        finally:
            signal.raise_signal(number)  # as it comes in pairs when a terminal is closed
            done.append("put in order")

    with pytest.raises(signals.Ended) as caught, signals.in_order("all stays"):
        work()
    assert done == ["put in order"]
    assert caught.value.number == number
    assert signals.message(caught.value.number, "all stays") == f"{ENDINGS[number]}: all stays"


@pytest.mark.parametrize("number", ENDINGS)
def test_a_signal_is_not_lost_where_python_ignores_exceptions(number: signal.Signals, capfd) -> None:
    """As in a callback of the garbage collector, of which JAX has one."""

    class Deaf:
        def __del__(self) -> None:
            signal.raise_signal(number)
            time.sleep(0)  # where the handler is called

    def work() -> None:
        del [Deaf()][0]
        time.sleep(10)

    with pytest.raises(signals.Ended) as caught, signals.in_order():
        work()
    assert caught.value.number == number
    assert capfd.readouterr().err == ""


def test_what_hears_ignored_exceptions_stays_as_work_left_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = sys.unraisablehook
    with signals.in_order():
        assert sys.unraisablehook is not before
    assert sys.unraisablehook is before
    with signals.in_order():
        monkeypatch.setattr(sys, "unraisablehook", lambda args: None)  # as after a checkpoint that failed
        inside = sys.unraisablehook
    assert sys.unraisablehook is inside


def test_a_training_leaves_while_it_compiles_and_goes_on_until_the_next_ctrl_c(tmp_path: Path) -> None:
    out, small = tmp_path / "run", ["sc.update=none", "muesli.unroll=1"]  # compiles sooner
    words = ["train.env_steps=200_000", "train.log_points=1_000", *small]
    command = [sys.executable, "-m", "purejax_sc", "train", "smoke", *words, "--out", str(out), "--resume"]
    status, error = ended(command, "compiling", signal.SIGTERM, JAX_COMPILATION_CACHE_DIR=str(tmp_path / "cache"))
    line = f"what was written stays in {out}; --resume goes on from there\n"
    assert (status, error) == (143, f"purejax-sc: terminated: {line}")
    assert not list(out.glob("checkpoints/*"))
    status, error = ended(command, "10%")
    assert status == 130
    assert error.endswith(f"stopping at the next log point; once more stops at once\npurejax-sc: stopped: {line}")
    assert json.loads((out / "summary.json").read_text())["status"] == "stopped"
    assert len(list(out.glob("checkpoints/[0-9]*"))) == 1


@pytest.mark.parametrize("how", [signals.at_once, signals.in_order])
def test_afterwards_signals_are_what_they_were(how) -> None:
    threads = threading.active_count()
    with how():
        assert threading.active_count() == threads + 1
    assert threading.active_count() == threads
    assert signal.set_wakeup_fd(-1) == -1
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("how", [signals.at_once, signals.in_order])
def test_in_another_thread_nothing_changes(how) -> None:
    seen: list[object] = []

    def look() -> None:
        with how():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]
