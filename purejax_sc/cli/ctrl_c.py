"""Ctrl-C while a library computes: Python's own handler would wait until the library returns."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def leave_at_once(message: str, status: int, farewell: Callable[[], None] | None = None) -> Iterator[None]:
    """Inside, Ctrl-C ends the process with `message` on stderr and this exit status, whatever the main thread does.

    No thread and no library is asked before: for where nothing is lost, such as while XLA compiles. `farewell` is
    called last. Only the main thread can ask for this; in another one nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    read, write = os.pipe()
    os.set_blocking(write, False)
    watcher = threading.Thread(target=_leave, args=(read, message, status, farewell), name="interrupts", daemon=True)
    watcher.start()
    # a handler in Python is needed for the number of a signal to be written, even one that does nothing
    handler = signal.signal(signal.SIGINT, lambda number, frame: None)
    descriptor = signal.set_wakeup_fd(write)
    try:
        yield
    finally:
        signal.set_wakeup_fd(descriptor)
        signal.signal(signal.SIGINT, handler)
        os.close(write)  # which ends the watcher
        watcher.join()
        os.close(read)


def _leave(descriptor: int, message: str, status: int, farewell: Callable[[], None] | None) -> None:
    while number := os.read(descriptor, 1):
        if number[0] == signal.SIGINT:
            print(message, file=sys.stderr, flush=True)
            if farewell is not None:
                farewell()
            os._exit(status)
