"""A person plays a board game against an agent, in the terminal: text in, text out."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from purejax_sc.agent.search import SearchResult
from purejax_sc.evaluation.board_game import LETTERS, BoardGame
from purejax_sc.evaluation.matches import MatchOptions, load_entrant
from purejax_sc.evaluation.minds import candidates, win_rate
from purejax_sc.results.files import RunError
from purejax_sc.runs.agents import row_of

SIGNS = {1: "X", -1: "O", 0: "."}  # of the first side, of the other, of an empty cell
SHOWN = 4  # moves that the agent says it considers

Ask = Callable[[str], str | None]  # (prompt) -> a line without its end, None when there are no more
Say = Callable[[str], None]


def open_game(name: str, options: MatchOptions, seed: int | None, say: Say) -> BoardGame:
    """A game against the agent of one seed of a run; None is the first. Raises RunError and ConfigError."""
    entrant = load_entrant(name, options, say)
    if entrant.config is None:
        raise RunError(f"{name} makes random moves: give the directory of an agent")
    row = row_of(seed, entrant.seeds, name)
    mind, *_ = entrant.make_minds(jax.tree.map(lambda x: jnp.asarray(x[row]), entrant.params))
    return BoardGame(entrant.config, mind, options.seed)


def from_terminal(prompt: str) -> str | None:
    """A line that the person types; None at the end of the input."""
    try:
        return input(prompt)
    except EOFError:
        return None


def converse(game: BoardGame, person: int, ask: Ask, say: Say) -> None:
    """Play until the person quits, or a game is over and no other is asked for. person: 0 moves first, 1 second."""
    moves = "columns such as D" if game.notation.columns else "points such as B2"
    beside = f" or {game.notation.beside}" if game.notation.beside else ""
    mine, others = SIGNS[1 - 2 * person], SIGNS[2 * person - 1]
    say(f"You are {mine}, the agent is {others}; X moves first. Moves are {moves}{beside}.")
    say("hint: what the agent would do.  undo: take your move back.  new: another game.  quit: the end.")
    ended, shown = False, ""
    while not ended:
        if game.result is None and game.turn != person:
            thought = game.think()
            say(f"agent: {_opinion(game, thought)}")
            game.play(int(thought.action))
            continue
        board = draw(game)
        if board != shown:
            say(board)
        shown = board
        if game.result is None:
            ended = _take_turn(game, person, ask("your move> "), say)
        else:
            say(_outcome(game.result, person))
            ended = _do(game, person, ask("new, undo or quit> "), say)


def draw(game: BoardGame) -> str:
    """The board as text, the last move in brackets."""
    pieces, last = game.pieces(), -1 if game.last is None else game.last
    height, width = pieces.shape
    if game.notation.columns:  # the topmost piece of the column is the one that was dropped
        filled = np.flatnonzero(pieces[:, last]) if last >= 0 else np.array([], int)
        last = int(filled[0]) * width + last if len(filled) else -1
    lines = []
    for row in range(height):
        marks = [last == row * width + column for column in range(width)]
        cells = "".join(
            f"{'(' if mark else ')' if column and marks[column - 1] else ' '}{SIGNS[int(piece)]}"
            for column, (mark, piece) in enumerate(zip(marks, pieces[row], strict=True))
        )
        lines.append(f"{height - row:>3} {cells}{')' if marks[-1] else ''}")
    return "\n".join([*lines, "     " + " ".join(LETTERS[:width])])


def _take_turn(game: BoardGame, person: int, line: str | None, say: Say) -> bool:
    """What the person says where it is their turn. Is that the end?"""
    action = None if line is None else game.notation.read(line)
    if action is None:
        return _do(game, person, line, say)
    if game.legal()[action]:
        game.play(action)
    else:
        say(f"{game.notation.name(action)} is not legal here")
    return False


def _do(game: BoardGame, person: int, line: str | None, say: Say) -> bool:
    """What is asked for with a word that is no move. Is that the end?"""
    word = "quit" if line is None else line.strip().lower()
    if word == "new":
        game.clear()
    elif word == "undo":
        if not game.undo(person):
            say("you have not moved yet")
    elif word == "hint" and game.result is None:
        say(f"agent: {_opinion(game, game.think())}")
    elif word != "quit":
        say(f"{line!r} is no word of mine: new, undo, quit" + _example(game))
    return word == "quit"


def _example(game: BoardGame) -> str:
    """Of a legal move, where the game goes on."""
    return (
        ""
        if game.result is not None
        else f", hint, or a move such as {game.notation.name(int(np.argmax(game.legal())))}"
    )


def _opinion(game: BoardGame, thought: SearchResult) -> str:
    """A move, the chance to win that the agent sees for who makes it, and what else it considers."""
    best, *others = candidates(thought)[:SHOWN]
    text = f"{game.notation.name(best.action)}, chance to win {win_rate(float(thought.value)):.0%}"
    weights = ", ".join(f"{game.notation.name(x.action)} {x.prior:.0%}" for x in (best, *others))
    return f"{text} (considers {weights})"


def _outcome(result: float, person: int) -> str:
    mine = 1 - result if person else result
    return {1.0: "You win.", 0.5: "A draw.", 0.0: "The agent wins."}[mine]
