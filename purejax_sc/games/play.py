"""A person plays a board game against an agent, in the terminal: text in, text out."""

from collections.abc import Callable

import numpy as np

from purejax_sc.agent.search import SearchResult
from purejax_sc.envs import pgx
from purejax_sc.evaluation.matches import load_entrant
from purejax_sc.games.notation import COLUMNS, draw, draw_columns, vertex
from purejax_sc.games.player import GamePlayer, make_policy
from purejax_sc.results.files import RunError, Say
from purejax_sc.runs.agents import take_row
from purejax_sc.types import EnvSpec

SHOWN = 4  # moves that the agent says it considers
HELP = "undo: take your move back.  resign, quit: the end.  help: this."
LEAVE = ("q", "quit", "exit", "resign")

Ask = Callable[[str], str | None]  # (prompt) -> a line without its end, None when there are no more


def open_game(name: str, say: Say) -> "TerminalGame":
    """Begin a game with the first agent of a run. Raises RunError and ConfigError."""
    entrant = load_entrant(name, say)
    names = move_names(entrant.env.spec, entrant.config.env)
    is_go = pgx.go_size(entrant.config.env) is not None
    env = pgx.forbid_repetition(entrant.env) if is_go else entrant.env
    return TerminalGame(GamePlayer(env, make_policy(entrant), take_row(entrant.params, 0)), names)


def move_names(spec: EnvSpec, env: str) -> list[str]:
    """Return the name of each action: a column such as 4, a point such as D4, pass or swap. Raises RunError."""
    if spec.two_player and len(spec.obs_shape) == 3 and spec.obs_shape[1] <= len(COLUMNS):
        height, width, _ = spec.obs_shape
        points = [vertex(action, width) for action in range(width**2)] if height == width else []
        for names in ([str(1 + i) for i in range(width)], points, [*points, "swap" if env == "pgx/hex" else "pass"]):
            if len(names) == spec.num_actions:
                return names
    raise RunError(f"{env} has moves that are neither points nor columns of a board: let agents play it with match")


def from_terminal(prompt: str) -> str | None:
    """Return a line that the person types; None at the end of the input."""
    try:
        return input(prompt)
    except UnicodeDecodeError:
        return "?"  # which is no move
    except EOFError:
        return None


class TerminalGame:
    """A game and what is said about it. names: of the actions."""

    def __init__(self, game: GamePlayer, names: list[str]) -> None:
        self.game, self.names = game, names
        self._draw, self._sides = (draw_columns, "●○") if names[0].isdigit() else (draw, "XO")

    def run(self, person: int, ask: Ask, say: Say) -> None:
        """Play until the game is over or the person quits. person: 0 moves first, 1 second."""
        say(f"You are {self._sides[person]}, the agent is {self._sides[1 - person]}; {self._sides[0]} moves first.")
        self._help(say)
        while self.game.result is None:
            if self.game.turn != person:
                found = self.game.search()
                say(f"agent: {self._opinion(found)}")
                self.game.play(int(found.action))
                continue
            say(self._draw(self.game.board))
            line = ask("your move> ")
            if line is None or line.strip().lower() in LEAVE:
                return
            self._do(line.strip().lower(), person, say)
        say(self._draw(self.game.board))
        say({1.0: "You win.", 0.5: "A draw.", 0.0: "The agent wins."}[abs(self.game.result - person)])

    def _do(self, word: str, person: int, say: Say) -> None:
        """Carry out what the person says: a move, `undo` or `help`."""
        legal = [name for name, legal in zip(self.names, self.game.legal(), strict=True) if legal]
        if word == "undo":
            while self.game.undo() and self.game.turn != person:
                pass
        elif word in ("help", "h", "?"):
            self._help(say)
        elif word in [name.lower() for name in legal]:
            self.game.play([name.lower() for name in self.names].index(word))
        else:
            say(f"{word!r} is not possible here: help, or a legal move such as {legal[0]}")

    def _help(self, say: Say) -> None:
        say(f"Moves look like {self.names[0]} or {self.names[-1]}.")
        say(HELP)

    def _opinion(self, found: SearchResult) -> str:
        """Describe a move, the agent's estimated chance to win, and other moves that it considers."""
        best, weights = int(found.action), np.asarray(found.weights)
        others = [x for x in np.argsort(-weights, stable=True) if x != best and weights[x] >= 0.01]
        considered = ", ".join(f"{self.names[x]} {weights[x]:.0%}" for x in [best, *others][:SHOWN])
        chance = np.clip(0.5 + 0.5 * found.value, 0.0, 1.0)  # values are in [-1, 1], but for errors
        return f"{self.names[best]}, chance to win {chance:.0%} (considers {considered})"
