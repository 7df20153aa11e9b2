"""Sokoban levels: how fast they are made, how many tries succeed, and how they compare with an exact search.

    python bench/levels.py --rooms 40 --json bench/results/sokoban_levels.json

The reference plays backwards as Racaniere et al. (2017) do, in plain Python: depth first over actions in random order,
300 deep, no position twice, until so many positions are seen. Both searches start from the same rooms, targets and
player. Levels are compared by the paper's score, and by the moves of a shortest solution (breadth first).
"""

import argparse
import json
import time
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from purejax_sc.envs.sokoban import levels
from purejax_sc.envs.sokoban.levels import SIZE, Rules

DELTAS = (-SIZE, 1, SIZE, -1)


class Position(NamedTuple):
    boxes: tuple[int, ...]
    player: int


def depth_first(
    floor: np.ndarray, targets: tuple[int, ...], player: int, depth: int, limit: int, rng: np.random.Generator
) -> tuple[int, Position]:
    """The best score and its position after at most `limit` positions."""
    walls, best, seen = set(np.flatnonzero(~floor.ravel())), (0, Position(targets, player)), set()
    orders = [rng.permutation(8).tolist() for _ in range(997)]
    stack = [(targets, player, -1, 0, depth)]
    while stack and len(seen) < limit:
        boxes, player, last, swaps, left = stack.pop()
        key = (player, *sorted(boxes))
        if key in seen:
            continue
        seen.add(key)
        score = room_score(boxes, player, swaps, targets)
        if score > best[0]:
            best = (score, Position(boxes, player))
        if left == 0:
            continue
        for action in orders[len(seen) % 997]:
            delta = DELTAS[action % 4]
            ahead, behind = player + delta, player - delta
            if ahead in walls or ahead in boxes:
                continue
            if action < 4:
                stack.append((boxes, ahead, last, swaps, left - 1))
            elif behind in boxes:
                box = boxes.index(behind)
                moved = (*boxes[:box], player, *boxes[box + 1 :])
                stack.append((moved, ahead, box, swaps + (last >= 0 and last != box), left - 1))
    return best


def room_score(boxes: tuple[int, ...], player: int, swaps: int, targets: tuple[int, ...]) -> int:
    if player in targets or any(box in targets for box in boxes):
        return 0
    return swaps * sum(
        abs(box // SIZE - target // SIZE) + abs(box % SIZE - target % SIZE)
        for box, target in zip(boxes, targets, strict=True)
    )


def shortest(floor: np.ndarray, targets: tuple[int, ...], start: Position, limit: int) -> int | None:
    """Moves of a shortest solution; None if it is not among the first `limit` positions."""
    walls, goal = set(np.flatnonzero(~floor.ravel())), frozenset(targets)
    first = (frozenset(start.boxes), start.player)
    distance, queue = {first: 0}, deque([first])
    while queue and len(distance) < limit:
        state = boxes, player = queue.popleft()
        if boxes == goal:
            return distance[state]
        for delta in DELTAS:
            ahead, beyond = player + delta, player + 2 * delta
            if ahead in walls:
                continue
            moved = boxes
            if ahead in boxes:
                if beyond in walls or beyond in boxes:
                    continue
                moved = (boxes - {ahead}) | {beyond}
            new = (moved, ahead)
            if new not in distance:
                distance[new] = distance[state] + 1
                queue.append(new)
    return None


def speed(rules: Rules, batch: int, rounds: int) -> dict[str, float]:
    """Levels tried per second at this batch size, and the share that are levels."""
    make = jax.jit(lambda key: jax.vmap(lambda key: levels.generate(key, rules))(jax.random.split(key, batch)))
    start = time.perf_counter()
    jax.block_until_ready(make(jax.random.key(0)))
    compiled, times, valid = time.perf_counter() - start, [], []
    for seed in range(1, rounds + 1):
        start = time.perf_counter()
        level = jax.block_until_ready(make(jax.random.key(seed)))
        times.append(time.perf_counter() - start)
        valid.append(float(np.mean(level.score > 0)))
    tried = batch / float(np.median(times))
    share = float(np.mean(valid))
    return {"compile_s": compiled, "tried_per_s": tried, "valid": share, "levels_per_s": tried * share}


def compare(rules: Rules, rooms: int, limit: int, solver_limit: int) -> dict[str, Any]:
    """Scores and shortest solutions of both searches from the same starts."""
    rng, rows = np.random.default_rng(0), []
    play = jax.jit(lambda key, search: levels.advance(key, search, rules.positions).best)
    for seed in range(rooms):
        key_begin, key_play = jax.random.split(jax.random.key(seed))
        search = levels.begin(key_begin, rules)
        if not search.fits:
            continue
        best = jax.device_get(play(key_play, search))
        ours = (int(best.score), Position(tuple(best.position.boxes.tolist()), int(best.position.player)))
        room, goals = np.asarray(search.floor), tuple(np.asarray(search.targets).tolist())
        exact = depth_first(room, goals, int(search.path.player[0]), rules.depth, limit, rng)
        row: dict[str, Any] = {"floor": int(room.sum())}
        for name, (score, position) in {"ours": ours, "exact": exact}.items():
            moves = shortest(room, goals, position, solver_limit) if score else None
            row |= {f"{name}_score": score, f"{name}_moves": moves}
        rows.append(row)
    return {"rows": rows, "summary": {name: quartiles(rows, name) for name in rows[0]}}


def quartiles(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    values = [row[name] for row in rows if row[name] is not None]
    return {
        "known": len(values),
        "zero": sum(value == 0 for value in values),
        "quartiles": np.percentile(values, [25, 50, 75]).tolist() if values else None,
        "mean": float(np.mean(values)) if values else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rooms", type=int, default=40, help="rooms to compare on")
    parser.add_argument(
        "--limit", type=int, default=1_000_000, help="positions that the reference looks at; the paper's"
    )
    parser.add_argument("--solver-limit", type=int, default=2_000_000, help="positions that the solver looks at")
    parser.add_argument("--json", type=Path, help="also write the results here")
    for field, default in Rules._field_defaults.items():
        parser.add_argument(f"--{field.replace('_', '-')}", type=type(default), default=default)
    args = parser.parse_args()
    rules = Rules(*(getattr(args, field) for field in Rules._fields))
    report: dict[str, Any] = {"rules": rules._asdict(), "speed": speed(rules, args.batch, args.rounds)}
    print(report)
    if args.rooms:
        report |= compare(rules, args.rooms, args.limit, args.solver_limit)
        for name, summary in report["summary"].items():
            print(f"{name:<14}{summary}")
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
