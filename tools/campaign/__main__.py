"""The campaign: random kills, damage and want of resources, on the command line of an installed version.

    python tools/campaign --minutes 45                          # all attacks, as far as the time goes
    python tools/campaign --only "flipped bits" --case 17       # one case again, as a failure's line says
    python tools/campaign --command /elsewhere/bin/purejax-sc   # another installed version

It prints a table, one row per attack, and for each failure the line that repeats it. The exit status is 1 if there was
one.
"""

import argparse
import csv
import itertools
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import damage
import kills
import limits
from case import Attack, Case, Outcome, Site

ATTACKS: tuple[Attack, ...] = (*damage.ATTACKS, *limits.ATTACKS, *kills.ATTACKS)
COLUMNS = ("attack", "tried", "of", "failed", "seconds", "first failure")


class Row(NamedTuple):
    """Results of one attack. outcomes: of its cases, by number."""

    attack: Attack
    outcomes: dict[int, Outcome]
    seconds: float


def make_case(site: Site, attack: Attack, number: int, seed: int, keep: bool) -> Outcome:
    """Carry out one case in a directory of its own. An attack that breaks down itself counts as a failure."""
    scratch = Path(tempfile.mkdtemp(prefix=f"case-{number}-", dir=site.root))
    try:
        outcome = attack.run(Case(number, random.Random(f"{seed} {attack.name} {number}"), scratch, site))
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        outcome = Outcome((f"the attack itself: {type(error).__name__}: {error} ({place.filename}:{place.lineno})",))
    if not (keep and outcome.failures):
        shutil.rmtree(scratch, ignore_errors=True)
    return outcome


def make_attack(site: Site, attack: Attack, numbers: Iterable[int], until: float, seed: int, keep: bool) -> Row:
    """Carry out cases of an attack until the numbers are used up or the time is over, at least one."""
    began, outcomes = time.monotonic(), dict[int, Outcome]()
    for number in numbers:
        if outcomes and time.monotonic() >= until:
            break
        outcomes[number] = outcome = make_case(site, attack, number, seed, keep)
        for failure in outcome.failures:
            print(f"FAILED {attack.name}: {failure}", flush=True)
            print(f'       python tools/campaign --only "{attack.name}" --case {number} --seed {seed}', flush=True)
        if outcome.skipped:
            break
    return Row(attack, outcomes, time.monotonic() - began)


def cells(row: Row) -> tuple[str, ...]:
    """A row of the table."""
    failed = [f"case {i}: {x.failures[0]}" for i, x in row.outcomes.items() if x.failures]
    skipped = [f"skipped: {x.skipped}" for x in row.outcomes.values() if x.skipped]
    numbers = (len(row.outcomes) - len(skipped), row.attack.count, len(failed), round(row.seconds))
    return (row.attack.name, *map(str, numbers), " ".join([*failed, *skipped, ""][0].split()))


def report(rows: Sequence[Row], out: Path | None) -> str:
    """Return the table as text, and write it to a CSV file."""
    table = [COLUMNS, *map(cells, rows)]
    if out:
        with out.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(table)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in table)


def arguments() -> argparse.Namespace:
    names = [attack.name for attack in ATTACKS]
    parser = argparse.ArgumentParser("campaign", None, __doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=45.0, help="how long it may take, about")
    parser.add_argument("--command", type=Path, default=Path(sys.executable).parent / "purejax-sc", help="is attacked")
    parser.add_argument("--only", action="append", choices=names, help="this attack; may be given again")
    parser.add_argument("--case", type=int, help="this case of it")
    parser.add_argument("--seed", type=int, default=0, help="of all cases")
    parser.add_argument("--patience", type=float, default=120.0, help="seconds until a command counts as hung")
    parser.add_argument("--keep", action="store_true", help="keep the directories of what failed")
    parser.add_argument("--out", type=Path, help="write the table as CSV")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    if not options.command.is_file():
        sys.exit(f"there is no {options.command}: give the purejax-sc of an environment with --command")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # in order, so that no directory and no mount is left
    chosen = [attack for attack in ATTACKS if not options.only or attack.name in options.only]
    root = Path(tempfile.mkdtemp(prefix="campaign-"))
    site = Site(options.command, root, options.patience)
    end, rows = time.monotonic() + 60 * options.minutes, list[Row]()
    try:
        for i, attack in enumerate(chosen):
            share = attack.share / sum(other.share for other in chosen[i:])
            until = time.monotonic() + max(end - time.monotonic(), 0.0) * share
            numbers = range(attack.count) if options.case is None else itertools.repeat(options.case, 1)
            rows.append(make_attack(site, attack, numbers, until, options.seed, options.keep))
    finally:
        if not options.keep:
            shutil.rmtree(root, ignore_errors=True)
    print(report(rows, options.out))
    return int(any(outcome.failures for row in rows for outcome in row.outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
