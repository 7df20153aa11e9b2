"""Ctrl-C, SIGTERM and SIGHUP as requests, which a run answers when nothing is lost by it."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stop_requests(say: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C, SIGTERM or SIGHUP into a request, for the next log point to answer. The second acts as it
    would have before. What the process was made to ignore, as by `nohup`, stays ignored."""
    if threading.current_thread() is not threading.main_thread():  # only that one receives signals
        yield lambda: False
        return
    requested = False
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: handler for number in numbers if (handler := signal.getsignal(number)) is not signal.SIG_IGN}
    watcher = signal.set_wakeup_fd(-1)  # who watches for signals would not know that they are requests

    def request(number: int, frame: Any) -> None:
        nonlocal requested
        requested = True
        _restore(before, watcher)
        say("stopping at the next log point; once more stops at once")

    for number in before:
        signal.signal(number, request)
    try:
        yield lambda: requested
    finally:
        _restore(before, watcher)


def _restore(handlers: dict[signal.Signals, Any], watcher: int) -> None:
    signal.set_wakeup_fd(watcher)
    for number, handler in handlers.items():
        signal.signal(number, handler)
