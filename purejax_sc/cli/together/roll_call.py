"""The processes of a run meet: who is there, who is missing, and whether all were asked for the same run.

They meet where JAX's coordinator will listen, before JAX is asked for anything: nothing is compiled yet, nothing is
written, and Ctrl-C is answered. The first process compares what the others tell of themselves with its own, and all of
them hear the same verdict. The connections stay, for `watch` to see who is gone.
"""

import select
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from purejax_sc.cli.setup import UserError
from purejax_sc.cli.together.links import Address, ClosedError, Link, listen

NOTICE_SECONDS = 3.0  # after which waiting is worth a line
RETRY_SECONDS = 0.2

Facts = Mapping[str, str]
Say = Callable[[str], None]


class Place(NamedTuple):
    """A process among those of its run. wait: seconds until all must be there."""

    address: Address
    num: int
    process: int
    wait: int


def gather(place: Place, facts: Facts, say: Say) -> dict[int, Link]:
    """As the first process: wait for all others, and tell all whether they agree. Returns a link to each.

    The port is free again, for JAX. Raises UserError, which the others learn.
    """
    joined, strangers = dict[int, Link](), list[Link]()
    with listen(place.address) as listener, _settled(joined, strangers):
        clock = _Clock(place, say)
        while missing := [i for i in range(1, place.num) if i not in joined]:
            clock.check(missing)
            watched: list[Any] = [listener, *strangers, *joined.values()]
            ready = select.select(watched, [], [], RETRY_SECONDS)[0]
            if listener in ready:
                strangers.append(Link(listener.accept()[0]))
            _check_present(joined, ready)
            for stranger in [link for link in strangers if link in ready]:
                _admit(stranger, strangers, joined, place, facts)
    for link in joined.values():  # the listener is closed: they may look for JAX there
        link.send({"start": True})
    return joined


def attend(place: Place, facts: Facts, say: Say) -> Link:
    """As another process: find the first one and wait for its verdict. Returns the link to it. Raises UserError."""
    clock = _Clock(place, say)
    link = _connect(place, clock)
    try:
        link.send({"process": place.process, "facts": dict(facts)})
        _hear_verdict(link, place, clock)
    except BaseException:
        link.close()
        raise
    return link


def difference(process: int, theirs: Facts, ours: Facts) -> str | None:
    """The first thing in which a process differs from the first one, as a line; None if they agree."""
    for key in [*ours, *theirs]:
        if ours.get(key) != theirs.get(key):
            return (
                f"process {process} has {key}={theirs.get(key)}, process 0 has {key}={ours.get(key)}: start all"
                " processes with the same configuration, options and versions"
            )
    return None


def _hear_verdict(link: Link, place: Place, clock: "_Clock") -> None:
    """Wait until the first process says that all are there and agree. Raises UserError."""
    missing = [0]
    while True:
        clock.check(missing)
        if not select.select([link], [], [], RETRY_SECONDS)[0]:
            continue
        try:
            message = link.receive() or {}
        except ClosedError:
            raise UserError(
                f"process 0 is gone from {place.address.text}, or something else listens there: start all processes"
                " again, with a port of their own"
            ) from None
        if "end" in message:
            raise UserError(str(message["end"]))
        if "start" in message:
            return
        missing = message.get("missing", missing)


class _Clock:
    """Says once that this process waits, and for whom, and ends the waiting."""

    def __init__(self, place: Place, say: Say) -> None:
        self._place, self._say, self._begin, self._said = place, say, time.monotonic(), False

    def check(self, missing: list[int]) -> None:
        """Raises UserError when the time is over."""
        place, waited = self._place, time.monotonic() - self._begin
        who = f"{_named(missing)} of {place.num}"
        if waited > place.wait:
            raise UserError(
                f"{who} did not come to {place.address.text} within {place.wait} s: {_how(place, missing)}, or wait"
                " longer with --wait SECONDS"
            )
        if waited > NOTICE_SECONDS and not self._said:
            self._say(f"waiting for {who} (up to {place.wait} s): {_how(place, missing)}")
            self._said = True


def _named(processes: list[int]) -> str:
    """The processes of a list, of which there may be very many."""
    if len(processes) == 1:
        return f"process {processes[0]}"
    first, last = processes[:8], f"{len(processes) - 8} more"
    if len(processes) <= 8:
        first, last = processes[:-1], str(processes[-1])
    return f"processes {', '.join(map(str, first))} and {last}"


def _how(place: Place, missing: list[int]) -> str:
    return (
        f"start it with --coordinator {place.address.text} --num-processes {place.num} --process-id {missing[0]}"
        if len(missing) == 1
        else f"start each with --coordinator {place.address.text} and its --process-id"
    )


@contextmanager
def _settled(joined: Mapping[int, Link], strangers: list[Link]) -> Iterator[None]:
    """What ends the roll call early ends it for all who have come."""
    try:
        yield
    except (UserError, KeyboardInterrupt) as error:
        text = error.format_message() if isinstance(error, UserError) else "process 0 was stopped: start all again"
        for link in joined.values():
            link.send({"end": text})
            link.close()
        raise
    finally:
        for link in strangers:
            link.close()


def _check_present(joined: Mapping[int, Link], ready: list[Any]) -> None:
    """Nobody speaks between its name and the verdict: who can be read is gone. Raises UserError."""
    for process, link in joined.items():
        if link in ready:
            raise UserError(f"process {process} is gone before all have come: start all processes again")


def _admit(stranger: Link, strangers: list[Link], joined: dict[int, Link], place: Place, facts: Facts) -> None:
    """Hear who has come, and let it stay if it is one of ours. Raises UserError if it was started for another run."""
    try:
        message = stranger.receive()
    except ClosedError:
        strangers.remove(stranger)
        return stranger.close()
    if message is None:
        return None
    strangers.remove(stranger)
    process = message.get("process")
    if not isinstance(process, int) or not isinstance(message.get("facts"), dict):
        return stranger.close()
    if process in joined or process == 0:
        stranger.send({"end": f"there is a process {process} already: give each process its own --process-id"})
        return stranger.close()
    joined[process] = stranger  # first: it shall hear why not
    if differs := difference(process, message["facts"], facts):
        raise UserError(differs)
    missing = [i for i in range(1, place.num) if i not in joined]
    for link in joined.values() if missing else ():  # otherwise they hear more soon
        link.send({"missing": missing})
    return None


def _connect(place: Place, clock: _Clock) -> Link:
    """Raises UserError if nobody answers in time."""
    while True:
        clock.check([0])
        try:
            return Link(socket.create_connection(place.address[1:], timeout=NOTICE_SECONDS))
        except OSError:
            time.sleep(RETRY_SECONDS)
