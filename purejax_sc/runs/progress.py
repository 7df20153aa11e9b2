"""How a run tells what it does while it does it. What is shown, and where, is up to whoever watches."""

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from purejax_sc.training.compiled import Point


class Progress(Protocol):
    """Who watches a run. Several programs may be watched one after the other, each from `start` to `close`."""

    def say(self, text: str) -> None:
        """Hear of what happens, in a line of text."""

    def busy(self, text: str) -> AbstractContextManager[None]:
        """Hear of what begins, and be told that it lasts until the context is left."""

    def start(self, total: int, done: int) -> None:
        """Count speed from now on. Both are environment steps of all seeds together; an earlier part did `done`."""

    def advance(self, point: Point) -> None:
        """See a log point, which is recorded already. A KeyboardInterrupt stops the run here, without a checkpoint."""

    def close(self) -> None:
        """The program has ended, well or not."""


class Silent:
    """Nobody watches."""

    def say(self, text: str) -> None:
        pass

    def busy(self, text: str) -> AbstractContextManager[None]:
        return nullcontext()

    def start(self, total: int, done: int) -> None:
        pass

    def advance(self, point: Point) -> None:
        pass

    def close(self) -> None:
        pass


SILENT = Silent()
