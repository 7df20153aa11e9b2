"""TensorBoard's events, written by the thread that trains: an error while writing is met where it can be told."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.summary import scalar

from purejax_sc.results.files import unwritable

FLUSH_SECONDS = 10.0


class Events:
    """One file of events. Raises RunError for what cannot be written; after that nothing more is."""

    def __init__(self, out: Path, step: int) -> None:
        """step: what an earlier part of the run wrote from there on is hidden, for it comes again."""
        self._out, self._flushed = out, time.perf_counter()
        try:
            self._writer = EventsWriter(str(out / "events"))
        except OSError as error:
            raise unwritable(out, error) from None
        self._add(Event(step=step, file_version="brain.Event:2"))
        self._add(Event(step=step, session_log=SessionLog(status=SessionLog.START)))

    def add(self, scalars: Mapping[str, float], step: int) -> None:
        for name, value in scalars.items():
            self._add(Event(step=step, wall_time=time.time(), summary=scalar(name, value)))
        if time.perf_counter() - self._flushed > FLUSH_SECONDS:
            self._try(self._writer.flush)
            self._flushed = time.perf_counter()

    def close(self) -> None:
        self._try(self._writer.close)

    def _add(self, event: Event) -> None:
        self._try(lambda: self._writer.write_event(event))

    def _try(self, write: Callable[[], object]) -> None:
        try:
            write()
        except OSError as error:
            with suppress(OSError):
                self._writer.close()  # else the buffer is written once more when it is collected
            raise unwritable(self._out, error) from None
