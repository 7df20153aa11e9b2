"""The processes of a run watch each other: when one is gone, the others end with a line that says which.

Every process has a connection to the first one, by which each says every second that it lives. A connection that
breaks, or stays silent, is a lost process. One that ends on its own says so before: whoever ends badly, or is stopped,
takes the others along, which have a while to come to the same end by themselves. All of this happens beside the main
thread, which may compile, or wait for the lost one in a computation that never ends.
"""

import os
import select
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from purejax_sc.cli.setup import UserError
from purejax_sc.cli.signals import line
from purejax_sc.cli.together.links import ClosedError, Link, Message

TICK_SECONDS = 1.0
SILENT_TICKS = 20  # ticks, not seconds: one that was suspended itself calls nobody lost when it goes on
GRACE_TICKS = 15  # for those that end by themselves when another has ended
HEARD_SECONDS = 0.5  # for the others to read how this one ends, before its connections break
LINGER_SECONDS = 5.0  # for what another is still told by this process's libraries
LOOK_SECONDS = 5.0  # from the first error to knowing who is gone

DONE, STOPPED, FAILED = "done", "was stopped", "ended with an error: see its message"


class Watch:
    """What this process knows of the others.

    links:  to all others in the first process, to the first one in the others.
    cure:   ends every line about another one.
    hush:   ends what else is shown on the terminal.
    """

    def __init__(self, process: int, links: dict[int, Link], cure: str, hush: Callable[[], None]) -> None:
        self._process, self._links, self._cure, self._hush = process, dict(links), cure, hush
        self._silent = dict.fromkeys(links, 0)
        self._ends: dict[int, str] = {}  # how others have ended
        self._grace = GRACE_TICKS
        self._changed, self._ending = threading.Condition(), threading.Lock()
        self._over, self._thread = threading.Event(), threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def tell(self, end: str) -> None:
        """Tell the others how this process ends."""
        self._send({"process": self._process, "end": end})

    def end(self, message: str, status: int, end: str) -> NoReturn:
        """End this process with one line, whichever thread is the first to ask, and whatever the others do."""
        self._ending.acquire()  # for good: there is one end
        self._leave(message, status, end)

    def look_around(self) -> None:
        """After an error that may come of another's end: if it does, end with the line about that one."""
        self._grace = 0
        time.sleep(LOOK_SECONDS)

    def finish(self) -> None:
        """Return when all processes are done; the first one tells the others so."""
        if self._process:
            self.tell(DONE)
        with self._changed:
            self._changed.wait_for(lambda: all(self._ends.get(i) == DONE for i in self._silent))
        if not self._process:
            self.tell(DONE)

    def close(self) -> None:
        """Watch no more, after `finish`."""
        self._over.set()
        self._thread.join()
        for link in self._links.values():
            link.close()

    def _run(self) -> None:
        tick = time.monotonic()
        while not self._over.is_set():
            ready = select.select(list(self._links.values()), [], [], TICK_SECONDS)[0]
            for process, link in list(self._links.items()):
                if link in ready:
                    self._read(process, link)
            if time.monotonic() - tick >= TICK_SECONDS:
                tick = time.monotonic()
                self._send({})
                self._count()

    def _read(self, process: int, link: Link) -> None:
        try:
            message = link.receive()
        except ClosedError:
            with self._changed:
                del self._links[process]
                self._changed.notify_all()
            if process not in self._ends:
                self._give_up(f"lost process {process}")
            return
        self._silent[process] = 0
        if message and "lost" in message:
            self._give_up(message["lost"])
        if message and "end" in message:
            self._hear(message)

    def _hear(self, message: Message) -> None:
        if not self._process and message["end"] != DONE:  # the first one tells DONE when all are
            self._send(message)
        with self._changed:
            self._ends[message["process"]] = message["end"]
            self._changed.notify_all()

    def _count(self) -> None:
        """A second has passed: see who has been silent for too long, and who has taken the others along."""
        for process in self._links:
            self._silent[process] += 1
            if self._silent[process] > SILENT_TICKS and process not in self._ends:
                self._give_up(f"lost process {process}, which is silent")
        bad = [process for process, end in self._ends.items() if end != DONE]
        if bad:
            self._grace -= 1
        if bad and self._grace < 0:
            self._give_up(f"process {bad[0]} {self._ends[bad[0]]}")

    def _give_up(self, reason: str) -> None:
        """End this process because of another, unless it is about to end by itself."""
        self._send({"lost": reason})
        if self._ending.acquire(blocking=False):
            self._leave(f"{reason}: {self._cure}", UserError.exit_code, FAILED)

    def _leave(self, message: str, status: int, end: str) -> NoReturn:
        with suppress(OSError):  # nobody may read it
            self._hush()
            sys.stdout.flush()
            print(line(message), file=sys.stderr, flush=True)
        self.tell(end)
        if threading.current_thread() is threading.main_thread():
            with self._changed:
                self._changed.wait_for(lambda: set(self._links) <= set(self._ends), LINGER_SECONDS)
        else:
            time.sleep(HEARD_SECONDS)
        os._exit(status)  # an orderly exit would wait for the others

    def _send(self, message: Message) -> None:
        for link in list(self._links.values()):
            link.send(message)
