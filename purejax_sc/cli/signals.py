"""Ctrl-C, SIGTERM (as of `kill`, or a cluster whose time is up) and SIGHUP (the terminal was closed): each ends the
process with one line on stderr and the exit status that shells expect, 128 and its number.

A process that has nothing to lose, because it starts or XLA compiles, leaves `at_once`. One that works is given an
exception, so that all is put in order, and leaves without if it does not answer: see `in_order`. What a shell made the
process ignore, as `nohup` does, stays ignored.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

WORDS = {signal.SIGINT: "stopped", signal.SIGTERM: "terminated", signal.SIGHUP: "terminated by the end of its terminal"}
GRACE = 5.0  # seconds that a library may keep the main thread from answering
AGAIN = 0.01  # seconds until a signal that was lost is sent again

Handler = Callable[[int, FrameType | None], None]


class Ended(KeyboardInterrupt):
    """A signal that ends the process. number: which one."""

    def __init__(self, number: int) -> None:
        super().__init__(WORDS[signal.Signals(number)])
        self.number = number


def line(message: str) -> str:
    """How every message of ours looks."""
    return f"purejax-sc: {' '.join(message.split())}"


def message(number: int, stays: str) -> str:
    """What is said after a signal. stays: what remains of the work; may be empty."""
    word = WORDS[signal.Signals(number)]
    return f"{word}: {stays}" if stays else word


def status(number: int) -> int:
    return 128 + number


def leave(number: int, stays: str = "", farewell: Callable[[], None] | None = None) -> NoReturn:
    """End the process, whatever its threads and libraries do. farewell: called last."""
    begin = "\n" if os.isatty(2) else ""  # after ^C, or a progress bar
    with suppress(OSError):  # the terminal is gone
        # not through sys.stderr, which another thread may hold
        os.write(2, f"{begin}{line(message(number, stays))}\n".encode(errors="replace"))
    if farewell is not None:
        farewell()
    os._exit(status(number))


def leave_from_now_on() -> None:
    """Until told otherwise, each signal ends the process where it is found: for one that starts."""
    for number in _heeded():
        signal.signal(number, lambda number, frame: leave(number))


@contextmanager
def at_once(stays: str = "", farewell: Callable[[], None] | None = None) -> Iterator[None]:
    """Inside, a signal ends the process within a moment, also while a library computes and Python is not asked.

    farewell: called last.
    """
    # a handler in Python is needed for the number of a signal to be written, even one that does nothing
    with _handled(lambda number, frame: None), _watched(lambda number: leave(number, stays, farewell)):
        yield


@contextmanager
def in_order(stays: str = "") -> Iterator[None]:
    """Inside, a signal raises `Ended` in the main thread, once.

    If a library keeps that thread busy for longer than GRACE, or if another signal comes later than that, the process
    leaves at once. So it does where modules are being imported: an exception would be lost there, or shown by others.
    """
    answered = threading.Event()
    first: list[float] = []

    def answer(number: int, frame: FrameType | None) -> None:
        if _importing(frame):
            leave(number, stays)
        if not answered.is_set():
            answered.set()
            raise Ended(number)

    def watch(number: int) -> None:
        first.append(time.monotonic())
        if not answered.wait(GRACE) or first[-1] - first[0] > GRACE:
            leave(number, stays)

    with _handled(answer), _watched(watch), _sent_again(answered):
        try:
            yield
        finally:
            answered.set()  # for whoever still watches


@contextmanager
def _sent_again(answered: threading.Event) -> Iterator[None]:
    """Inside, a signal whose exception was raised where Python ignores all of them, as in a callback of the garbage
    collector, comes again a moment later instead of being printed and lost. answered: is cleared for it."""
    before = sys.unraisablehook

    def hook(args: Any) -> None:
        if not isinstance(args.exc_value, Ended):
            before(args)
            return
        answered.clear()
        # by a thread: in this place, the next exception would be ignored too
        main = threading.main_thread().ident
        threading.Timer(AGAIN, signal.pthread_kill, (main, args.exc_value.number)).start()

    sys.unraisablehook = hook
    try:
        yield
    finally:
        if sys.unraisablehook is hook:  # another one that was put around it inside is there to stay
            sys.unraisablehook = before


@contextmanager
def _handled(handler: Handler) -> Iterator[None]:
    """Inside, signals go to the handler. Only the main thread can ask for this; in another one nothing changes."""
    before = {number: signal.signal(number, handler) for number in _heeded()} if _is_main() else {}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextmanager
def _watched(act: Callable[[int], None]) -> Iterator[None]:
    """Inside, a thread of its own is told of every signal, also while a library keeps the main thread busy."""
    if not _is_main():
        yield
        return
    read, write = os.pipe()
    os.set_blocking(write, False)
    watcher = threading.Thread(target=_watch, args=(read, act), name="signals", daemon=True)
    watcher.start()
    descriptor = signal.set_wakeup_fd(write)
    try:
        yield
    finally:
        signal.set_wakeup_fd(descriptor)
        os.close(write)  # which ends the watcher
        watcher.join()
        os.close(read)


def _watch(descriptor: int, act: Callable[[int], None]) -> None:
    while number := os.read(descriptor, 1):
        if number[0] in WORDS:
            act(number[0])


def _heeded() -> list[signal.Signals]:
    return [number for number in WORDS if signal.getsignal(number) is not signal.SIG_IGN]


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False
