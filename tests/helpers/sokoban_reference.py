"""Sokoban in plain Python, written from the rules alone: sets of cells (row, column)."""

from typing import NamedTuple

import numpy as np

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
TIME_LIMIT = 120


class Game(NamedTuple):
    walls: frozenset
    targets: frozenset
    boxes: frozenset
    player: tuple
    steps: int


def cells(grid: np.ndarray, *codes: int) -> frozenset:
    return frozenset((int(r), int(c)) for r, c in np.argwhere(np.isin(grid, codes)))


def start(grid: np.ndarray) -> Game:
    (player,) = cells(grid, 3, 5)
    return Game(cells(grid, 1), cells(grid, 2, 5, 6), cells(grid, 4, 6), player, 0)


def step(game: Game, action: int) -> tuple[Game, float, bool]:
    """The next game, the reward, and whether it is solved."""
    row, column = MOVES[action]
    ahead = (game.player[0] + row, game.player[1] + column)
    beyond = (ahead[0] + row, ahead[1] + column)
    boxes, player = game.boxes, game.player
    if ahead in boxes:
        if beyond not in game.walls and beyond not in boxes:
            boxes, player = (boxes - {ahead}) | {beyond}, ahead
    elif ahead not in game.walls:
        player = ahead
    solved = boxes == game.targets
    reward = -0.1 + len(boxes & game.targets) - len(game.boxes & game.targets) + 10.0 * solved
    return Game(game.walls, game.targets, boxes, player, game.steps + 1), reward, solved


def codes(game: Game) -> np.ndarray:
    """The grid uint8 [10, 10]."""
    grid = np.zeros((10, 10), np.uint8)
    for cell in game.walls:
        grid[cell] = 1
    for cell in game.targets:
        grid[cell] = 2
    for cell in game.boxes:
        grid[cell] = 6 if cell in game.targets else 4
    grid[game.player] = 5 if game.player in game.targets else 3
    return grid
