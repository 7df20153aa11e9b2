"""Agents without a network and engines without rules, for tests of games of Go on 5x5."""

import jax
import jax.numpy as jnp
import numpy as np

from purejax_sc.agent.search import SearchResult
from purejax_sc.games.player import MovePolicy

# An engine that answers genmove with the vertices of its arguments, in order, and then passes. `crash` ends it, `hang`
# silences it.
PUPPET = """\
import sys, time
answers = sys.argv[1:]
print("Loading...\\n\\n=====", flush=True)
for line in sys.stdin:
    command, *_ = line.split()
    text = {"name": "Puppet", "version": "1"}.get(command, "")
    if command == "genmove":
        text = answers.pop(0) if answers else "PASS"
        if text == "crash":
            sys.exit("out of ideas")
        if text == "hang":
            time.sleep(60)
    print("? no\\n" if text == "refuse" else f"=1 {text}\\n", flush=True)
    if command == "quit":
        break
"""

# An engine that answers genmove with the first empty point after one that the moves so far tell: never a capture. After
# so many moves as its first argument says it passes; as the colour of its second one it crashes.
COUNTER = """\
import sys
names = [f"{column}{row}" for column in "ABCDE" for row in range(1, 6)]
played, limit = [], int(sys.argv[1])
for line in sys.stdin:
    command, *words = line.split()
    text = ""
    if command == "clear_board":
        played = []
    elif command == "play":
        played.append(words[1].upper())
    elif command == "genmove":
        if words[0] in sys.argv[2:]:
            sys.exit(f"never as {words[0]}")
        start = sum(names.index(name) for name in played if name in names) % 25
        free = [name for name in names[start:] + names[:start] if name not in played]
        text = free[0] if free and len(played) < limit else "PASS"
        played.append(text)
    print(f"= {text}\\n", flush=True)
    if command == "quit":
        break
"""


def policy_of(move) -> MovePolicy:
    """It likes the move of how many positions it has been shown, or, if that is illegal, what the key says."""

    def search_moves(params, obs, shown, key) -> SearchResult:
        likes = jnp.reshape(jax.nn.one_hot(move(shown + 1), 26), (1, 26)) + 0.1 * jax.random.uniform(key, (1, 26))
        return _result(jnp.where(obs.legal, likes, 0.0))

    return MovePolicy(lambda num: jnp.zeros(num, jnp.int32), lambda params, obs, shown: shown + 1, search_moves)


def policy_by_stones() -> MovePolicy:
    """It likes the moves that a hash of the stones, and of how many positions it has seen, tells."""

    def search_moves(params, obs, shown, key) -> SearchResult:
        planes = obs.frame.reshape(-1).astype(jnp.float32)
        seen = jnp.sum(planes * jnp.arange(1.0, planes.size + 1.0))
        likes = jnp.sin(seen * jnp.arange(1.0, 27.0) + shown.astype(jnp.float32) + 1.0)[None]
        return _result(jnp.where(obs.legal, likes, -2.0))

    return MovePolicy(lambda num: jnp.zeros(num, jnp.int32), lambda params, obs, shown: shown + 1, search_moves)


def _result(likes) -> SearchResult:
    action, none = jnp.argmax(likes, axis=-1).astype(jnp.int32), jnp.zeros((1, 26))
    return SearchResult(action, likes, jnp.zeros(1), none.astype(jnp.int32), none)


class FakePlayer:
    """Go without captures, in place of a `GamePlayer`. It plays on the first empty point."""

    def __init__(self) -> None:
        self.moves = []

    def clear(self) -> None:
        self.moves = []

    @property
    def board(self) -> np.ndarray:
        points = np.zeros(26, np.int8)
        for side, action in self.moves:
            points[action] = 1 - 2 * side
        return points[:-1].reshape(5, 5)

    def legal(self, side: int) -> np.ndarray:
        return np.append(self.board.ravel(), 0) == 0

    def search(self, side: int) -> SearchResult:
        return SearchResult(np.argmax(self.legal(side)), None, None, None, None)

    def play(self, action: int, side: int) -> None:
        self.moves.append((side, action))

    def undo(self) -> bool:
        return bool(self.moves and self.moves.pop())
