"""Ctrl-C and SIGTERM as requests, which a run answers when nothing is lost by it."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stop_requests(say: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C or SIGTERM into a request, for the next log point to answer. The second acts at once."""
    if threading.current_thread() is not threading.main_thread():  # only that one receives signals
        yield lambda: False
        return
    requested = False
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def request(number: int, frame: Any) -> None:
        nonlocal requested
        requested = True
        _restore(before)
        say("stopping at the next log point; once more stops at once")

    for number in before:
        signal.signal(number, request)
    try:
        yield lambda: requested
    finally:
        _restore(before)


def _restore(handlers: dict[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)
