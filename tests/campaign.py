"""The attack as a program: random kills, damage, want of resources and hostile input, on the command line of a version.

    python tests/campaign.py --minutes 45                          # all attacks, as far as the time goes
    python tests/campaign.py --only "flipped bits" --case 17       # one case again, as a failure's line says
    python tests/campaign.py --command /elsewhere/bin/purejax-sc   # another installed version

It prints a table, one row per attack, and a line for each failure that says how to make it happen again. The exit
status is 1 if something did not survive.
"""

import argparse
import csv
import itertools
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from attacks.base import HANG_SECONDS, Attack, Case, Outcome, Site
from attacks.table import ATTACKS

COLUMNS = ("attack", "tried", "of", "survived", "failed", "seconds", "first failure")


class Row(NamedTuple):
    """What came of one attack. outcomes: of its cases, by number."""

    attack: Attack
    outcomes: dict[int, Outcome]
    seconds: float

    @property
    def tried(self) -> int:
        return sum(outcome.tried for outcome in self.outcomes.values())

    @property
    def failed(self) -> int:
        """Cases count once, however many attacks they are made of."""
        return sum(bool(outcome.failures) for outcome in self.outcomes.values())


class Plan(NamedTuple):
    """How to make cases. seed: of all.   jobs: at once.   keep: the directories of what fails."""

    site: Site
    seed: int
    jobs: int
    keep: bool


def make_case(plan: Plan, attack: Attack, number: int) -> Outcome:
    """One case in a directory of its own. An attack that breaks down itself is reported like a failure."""
    scratch = Path(tempfile.mkdtemp(prefix=f"case-{number}-", dir=plan.site.root))
    rng = random.Random(f"{plan.seed} {attack.name} {number}")
    try:
        outcome = attack.run(Case(number, rng, scratch, plan.site))
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        outcome = Outcome((f"the attack itself: {type(error).__name__}: {error} ({place.filename}:{place.lineno})",))
    if not (plan.keep and outcome.failures):
        shutil.rmtree(scratch, ignore_errors=True)
    return outcome


def make_attack(plan: Plan, attack: Attack, numbers: Iterator[int], goes_on: Callable[[Row], bool]) -> Row:
    """Cases of one attack for as long as `goes_on` says so, or until the numbers are used up."""
    row, lock, stopped = Row(attack, {}, 0.0), threading.Lock(), threading.Event()
    began = time.monotonic()

    def work() -> None:
        while True:
            with lock:
                number = next(numbers, None) if goes_on(row) and not stopped.is_set() else None
            if number is None:
                return
            outcome = make_case(plan, attack, number)
            with lock:
                row.outcomes[number] = outcome
            for failure in outcome.failures:
                print(_line(plan, attack, number, failure), flush=True)

    with ThreadPoolExecutor(plan.jobs) as pool:
        futures = [pool.submit(work) for _ in range(plan.jobs)]
        try:
            for future in futures:
                future.result()
        finally:
            stopped.set()  # after Ctrl-C the cases at hand are the last
    return row._replace(seconds=time.monotonic() - began)


def campaign(plan: Plan, attacks: Sequence[Attack], minutes: float) -> list[Row]:
    """Each attack until it was made as often as wanted, or its share of what is left of the time is over."""
    end, rows = time.monotonic() + 60 * minutes, list[Row]()
    for i, attack in enumerate(attacks):
        left = max(end - time.monotonic(), 0.0)
        until = time.monotonic() + left * attack.share / sum(other.share for other in attacks[i:])

        def goes_on(row: Row, until: float = until) -> bool:
            if not row.outcomes:  # once at least, unless all of the time is over
                return time.monotonic() < end
            return time.monotonic() < until and row.tried < row.attack.count and not _skipped(row)

        rows.append(make_attack(plan, attack, itertools.count(), goes_on))
    return rows


def short(plan: Plan, attacks: Sequence[Attack]) -> list[Row]:
    """The short form: the same few cases every time."""
    return [make_attack(plan, attack, iter(range(attack.short)), lambda _: True) for attack in attacks if attack.short]


def report(rows: Sequence[Row], out: Path | None) -> str:
    """The table as text; the same goes to a CSV file."""
    cells = [COLUMNS, *(_cells(row) for row in rows)]
    if out:
        with out.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(cells)
    widths = [max(map(len, column)) for column in list(zip(*cells, strict=True))[:-1]]
    return "\n".join(_padded(row, widths) for row in cells)


def _padded(row: Sequence[str], widths: Sequence[int]) -> str:
    *first, last = row
    return "  ".join([*(cell.ljust(width) for cell, width in zip(first, widths, strict=True)), last[:100]]).rstrip()


def _cells(row: Row) -> tuple[str, ...]:
    failed = {number: outcome.failures[0] for number, outcome in row.outcomes.items() if outcome.failures}
    first = f"case {min(failed)}: {failed[min(failed)]}" if failed else _skipped(row)
    survived = sum(outcome.tried for outcome in row.outcomes.values() if not outcome.failures)
    numbers = (row.tried, row.attack.count, survived, row.failed, round(row.seconds))
    return (row.attack.name, *map(str, numbers), " ".join(first.split()))


def _skipped(row: Row) -> str:
    return next((f"skipped: {outcome.skipped}" for outcome in row.outcomes.values() if outcome.skipped), "")


def _line(plan: Plan, attack: Attack, number: int, failure: str) -> str:
    again = f'python tests/campaign.py --only "{attack.name}" --case {number} --seed {plan.seed}'
    return f"FAILED {attack.name}: {failure}\n       {again}"


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    names = [attack.name for attack in ATTACKS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=45.0, help="how long it may take, about")
    parser.add_argument("--short", action="store_true", help="the short form instead: the same few cases every time")
    parser.add_argument("--command", type=Path, default=Path(sys.executable).parent / "purejax-sc", help="is attacked")
    parser.add_argument("--only", action="append", choices=names, help="this attack; may be given again")
    parser.add_argument("--case", type=int, help="this case of it")
    parser.add_argument("--seed", type=int, default=0, help="of all cases")
    parser.add_argument("--jobs", type=int, default=1, help="cases at once")
    parser.add_argument("--patience", type=float, default=HANG_SECONDS, help="seconds until a command counts as hung")
    parser.add_argument("--keep", action="store_true", help="keep the directories of what failed")
    parser.add_argument("--out", type=Path, help="write the table as CSV")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    arguments = _arguments(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # in order, so that no directory and no mount is left
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # results are read on the CPU
    chosen = [attack for attack in ATTACKS if not arguments.only or attack.name in arguments.only]
    root = Path(tempfile.mkdtemp(prefix="campaign-"))
    site = Site(arguments.command, root, arguments.patience)
    plan = Plan(site, arguments.seed, arguments.jobs, arguments.keep)
    try:
        if arguments.case is not None:
            rows = [make_attack(plan, attack, iter([arguments.case]), lambda _: True) for attack in chosen]
        else:
            rows = short(plan, chosen) if arguments.short else campaign(plan, chosen, arguments.minutes)
    finally:
        site.close()
        if not arguments.keep:
            shutil.rmtree(root, ignore_errors=True)
    print(report(rows, arguments.out))
    return int(any(row.failed for row in rows))


if __name__ == "__main__":
    sys.exit(main())
