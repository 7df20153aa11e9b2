"""A process between us and an engine, which sees to it that no process of the engine outlives us: a script of its own.

    engine_keeper.py CONTROL PROGRAM [ARGUMENT]...

CONTROL is the descriptor of a socket. On it comes one line, empty if the program was started and else the reason why
not; then the keeper takes numbers of signals, one byte each, for all processes that the engine consists of. When the
other end is closed, by whatever death, it kills them all. It ends when none is left, with the exit status of the first.

A process group alone would not do: whoever calls `setsid` leaves it. Where Linux can make the keeper the new parent of
orphans, nobody leaves; elsewhere the group must do.
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

CHILD_SUBREAPER = 36  # of <sys/prctl.h>
PAUSE = 0.01  # seconds in which orphans find their new parent
PROC = Path("/proc")


def main() -> int:
    control = socket.socket(fileno=int(sys.argv[1]))
    with suppress(OSError, AttributeError):  # as where there is no Linux
        ctypes.CDLL(None).prctl(CHILD_SUBREAPER, 1, 0, 0, 0)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda number, frame: None)  # an engine may mean its whole group; a program resets this
    try:
        engine = subprocess.Popen(sys.argv[2:])  # noqa: S603 - to run it is the purpose
    except OSError as error:
        control.sendall(f"{error.strerror}\n".encode())
        return 1
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):  # the pipes are the engine's
        os.dup2(nothing, descriptor)
    control.sendall(b"\n")
    threading.Thread(target=obey, args=(control,), daemon=True).start()
    return wait_for_all(engine.pid)


def obey(control: socket.socket) -> None:
    """Pass on the signals that are asked for; at the end of the control, kill until nobody is left to be waited for."""
    while number := control.recv(1):
        send(number[0])
    while True:
        send(signal.SIGKILL)
        time.sleep(PAUSE)


def send(number: int) -> None:
    """A signal to all descendants; where they cannot be listed, to the group, which this process is of."""
    if not (PROC / "self").exists():
        os.killpg(0, number)
    for pid in descendants():
        with suppress(OSError):  # it has ended
            os.kill(pid, number)


def descendants() -> list[int]:
    """The processes below this one, the older generations first. Empty where there is no /proc."""
    parents: dict[int, int] = {}
    for path in PROC.glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            # the name, in parentheses, may hold anything
            parents[int(path.parent.name)] = int(path.read_bytes().rpartition(b")")[2].split()[1])
    found, generation = list[int](), {os.getpid()}
    while generation:
        generation = {pid for pid, parent in parents.items() if parent in generation}
        found += generation
    return found


def wait_for_all(engine: int) -> int:
    """Wait until there are no children, orphans of the engine included: the exit status of the first."""
    status = 0
    with suppress(ChildProcessError):
        while True:
            pid, ended = os.wait()
            if pid == engine:
                code = os.waitstatus_to_exitcode(ended)
                status = code if code >= 0 else 128 - code
    return status


if __name__ == "__main__":
    sys.exit(main())
