"""Signals: SIGTERM and SIGHUP act like Ctrl-C. Training answers with a checkpoint; a second one ends the process."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PAIR_SECONDS = 0.2  # `timeout` and terminals that close send the same signal twice: that is one request


class Interrupted(KeyboardInterrupt):
    """KeyboardInterrupt that knows the number of its signal."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def exit_status(error: BaseException | None) -> int:
    """Return the exit status of a process that ends with a KeyboardInterrupt, as shells have it."""
    return 128 + getattr(error, "number", signal.SIGINT)


def install() -> None:
    """Let each signal raise `Interrupted`, and a second one end the process even while XLA compiles.

    Signals that are ignored, as by `nohup`, stay ignored.
    """
    for number in _heeded():
        signal.signal(number, _interrupt)
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    threading.Thread(target=_exit_at_second, args=(read,), name="signals", daemon=True).start()


@contextmanager
def stop_requests(say: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Context manager: turn the first signal into a request to stop at the next log point. A second one interrupts.

    A KeyboardInterrupt that answers the request leaves as `Interrupted`, with the number of the signal.
    """
    first: list[tuple[int, float]] = []

    def request(number: int, frame: FrameType | None) -> None:
        if not first:
            first.append((number, time.monotonic()))
            say("stopping at the next log point; once more stops at once")
        elif time.monotonic() - first[0][1] > PAIR_SECONDS:
            raise Interrupted(number)

    main = threading.current_thread() is threading.main_thread()  # only that one receives signals
    before = {number: signal.signal(number, request) for number in _heeded()} if main else {}
    try:
        yield lambda: bool(first)
    except KeyboardInterrupt as error:
        raise error if isinstance(error, Interrupted) or not first else Interrupted(first[0][0]) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted(number)


def _exit_at_second(descriptor: int) -> None:
    os.read(descriptor, 1)
    first = time.monotonic()
    while number := os.read(descriptor, 1)[0]:
        if time.monotonic() - first > PAIR_SECONDS:
            os._exit(128 + number)


def _heeded() -> list[signal.Signals]:
    return [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
