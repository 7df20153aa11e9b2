"""A game of Go that knows no rules, for tests of the protocol."""

import numpy as np

from purejax_sc.evaluation.gtp import Candidate, Clock


class FakeBackend:
    """Go without captures. It plays on the first empty point; with komi 99 it resigns, with 98 it breaks."""

    def __init__(self, size: int = 5) -> None:
        self.size = size
        self.komi = 0.0
        self.moves: list[tuple[int, int]] = []
        self.clocks: list[Clock | None] = [None, None]

    def clear(self) -> None:
        self.moves = []

    def play(self, colour: int, action: int) -> bool:
        if action != self.size**2 and self.board().ravel()[action]:
            return False
        self.moves.append((colour, action))
        return True

    def choose(self, colour: int) -> int | None:
        if self.komi == 99:
            return None
        if self.komi == 98:
            raise RuntimeError("first line\n\nsecond line")
        action = int(np.argmin(np.abs(np.append(self.board().ravel(), 0))))
        self.play(colour, action)
        return action

    def analyse(self, colour: int) -> list[Candidate]:
        """The first two empty points and a pass."""
        free = [int(x) for x in np.flatnonzero(np.append(self.board().ravel(), 0) == 0)]
        return [Candidate(a, 3 - i, 0.75 - 0.25 * i, 0.5, [a, free[-1]]) for i, a in enumerate(free[:2])]

    def to_move(self) -> int:
        return len(self.moves) % 2

    def set_clocks(self, clock: Clock | None) -> None:
        self.clocks = [clock, clock]

    def set_time_left(self, colour: int, seconds: float, moves: int) -> None:
        if self.clocks[colour] is not None:
            self.clocks[colour] = self.clocks[colour]._replace(seconds=seconds, moves=moves)

    def undo(self) -> bool:
        if not self.moves:
            return False
        self.moves.pop()
        return True

    def board(self) -> np.ndarray:
        points = np.zeros(self.size**2 + 1, np.int8)
        for colour, action in self.moves:
            points[action] = 1 - 2 * colour
        return points[:-1].reshape(self.size, self.size)
