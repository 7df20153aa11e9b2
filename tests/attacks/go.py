"""Go: hostile lines to `gtp`, and hostile engines against `match`.

Between the lines stand questions with numbers of their own; each must be answered, in its turn.
"""

import os
import random
import re
import sys
import time
from pathlib import Path

from attacks.base import Attack, Case, Outcome, Site, fault

AGENT = (
    "train", "go_5x5", "--quiet", "network.width=8", "network.channels=[4]", "train.env_steps=512", "arena.games=0",
    "train.log_points=1", "sc.update=none", "muesli.unroll=1", "network.padding=SAME",
)  # fmt: skip
LINES = 250  # hostile ones of a case
COMMANDS = (
    "protocol_version", "name", "version", "known_command", "list_commands", "boardsize", "clear_board", "komi", "play",
    "genmove", "undo", "showboard", "final_score", "time_settings", "time_left", "kgs-time_settings", "lz-analyze",
    "unknown", "PLAY",
)  # fmt: skip
ARGUMENTS = (
    "5", "0", "-1", "19", "1e999", "nan", "inf", "black", "white", "b", "W", "green", "A1", "e5", "I1", "J9", "Z99",
    "a0", "pass", "PASS", "resign", "name", "", "6.5", "99999999999999999999", "9" * 5000, "é", "🂡", "\x00", "٣", "²",
    "A\uff11",    "#", "=", "?", "%s%n", "'", '"', "\\", "A" * 10_000, "C3", "c3", "D2", "B4",
)  # fmt: skip
NOISE = (
    b"\xff\xfe",
    b"\x80",
    b"\xed\xa0\x80",
    b"\x1b[2J",
    b"\x07",
    b"\xc2\x85",
    b"\xe2\x80\xa8",
    b"\x0c",
    b"\x0b",
    b"\x1c",
)


def lines(case: Case) -> Outcome:
    """Hostile lines, each followed by a question; then `quit`, or the end of the input."""
    probes = [f"{1000 + i} known_command name\n".encode() for i in range(LINES)]
    data = b"".join(part for probe in probes for part in (_line(case.rng), probe))
    data += case.rng.choice((b"quit\n", b"QUIT\n4 quit\n", b"", b"5 na"))
    process = case.site.start(["gtp", str(agent(case.site))], case.scratch, stdin=-1)
    result = case.site.finish(process, data, 2 * case.site.patience)
    answers = re.findall(r"^=(1\d{3}) true$", result.out, re.MULTILINE)
    failure = fault(result, {0})
    if failure is None and answers != [str(1000 + i) for i in range(LINES)]:
        failure = f"{len(answers)} of {LINES} questions were answered"
    return Outcome((failure,) if failure else (), LINES)


def _line(rng: random.Random) -> bytes:
    words = [rng.choice(COMMANDS), *rng.choices(ARGUMENTS, k=rng.choice((0, 1, 1, 2, 2, 3)))]
    if rng.random() < 0.3:
        words.insert(0, rng.choice(("1", "00", "9" * 30, "-3", "1.5", "x")))
    line = " ".join(words).encode()
    if rng.random() < 0.2:
        place = rng.randrange(len(line) + 1)
        line = line[:place] + rng.choice(NOISE) + line[place:]
    return line.replace(b"\n", b"") + rng.choice((b"\n", b"\n", b"\r\n", b"\n\n"))


def engine(case: Case) -> Outcome:
    """A match against one of the hostile engines, which must not outlive it."""
    mode = list(ENGINES)[case.number % len(ENGINES)]
    script = case.scratch / "engine.py"
    script.write_text(ENGINE.replace("BEHAVIOUR", ENGINES[mode]))
    words = ["match", str(agent(case.site)), "--opponent", f"{sys.executable} {script}", "--games", "3"]
    process = case.site.start([*words, "--timeout", "2", "--out", str(case.scratch / "match")], case.scratch)
    result = case.site.finish(process)
    failure = fault(result, one_line=False) or _outlived(case.scratch)
    return Outcome((f"{mode}: {failure}",) if failure else ())


def _outlived(scratch: Path) -> str | None:
    """Whether an engine, or what it has started, is still there three seconds later."""
    pids = [int(path.suffix[1:]) for path in scratch.glob("pid.*")]
    for _ in range(30):
        alive = [pid for pid in pids if _runs(pid)]
        if not alive:
            return None
        time.sleep(0.1)
    for pid in alive:
        os.kill(pid, 9)
    return f"{len(alive)} process(es) of the engine are still there"


def _runs(pid: int) -> bool:
    """Whether a process is there, and is none that only waits to be noticed."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def agent(site: Site) -> Path:
    """The directory of a run that plays Go, made once."""
    return Path(site.once("go", lambda: _trained(site)))


def _trained(site: Site) -> Path:
    out = site.root / "go"
    result = site.finish(site.start([*AGENT, "--out", str(out)], site.root), seconds=10 * site.patience)
    if result.status != 0:
        raise RuntimeError(f"training Go ended with exit status {result.status}: {result.err[-300:]}")
    return out


ENGINE = """
import os, random, signal, subprocess, sys, time
from pathlib import Path
here = Path(__file__).parent
(here / f"pid.{os.getpid()}").touch()
def say(text):
    sys.stdout.write(text)
    sys.stdout.flush()
def moves():
    return random.choice("ABCDE") + random.choice("12345")
for line in sys.stdin:
    command = line.split()[0] if line.split() else ""
    answer = {"name": "Hostile", "version": "1", "genmove": moves(), "final_score": "B+1"}.get(command, "")
BEHAVIOUR
    say(f"= {answer}\\n\\n")
"""
# What stands in the loop of an engine before its honest answer.
ENGINES = {
    "silent": "    time.sleep(600)",
    "ends at once": "    sys.exit(3)",
    "ends in a game": "    command == 'genmove' and sys.exit(0)",
    "crashes": "    command == 'genmove' and os.kill(os.getpid(), signal.SIGSEGV)",
    "never ends a line": "    command == 'genmove' and (say('x' * 10_000_000), time.sleep(600))",
    "floods": "    while command == 'genmove': say('= ' + 'noise\\n' * 1000)",
    "floods stderr": "    sys.stderr.write('noise ' * 1_000_000)",
    "bytes": "    command == 'genmove' and os.write(1, bytes(range(256)) * 50)",
    "nonsense": "    answer = '\\N{PILE OF POO}' * 3 if command == 'genmove' else answer",
    "illegal moves": "    answer = 'A1' if command == 'genmove' else answer",
    "off the board": "    answer = 'T19' if command == 'genmove' else answer",
    "refuses all": "    say('? no\\n\\n')\n    continue",
    "resigns": "    answer = 'resign' if command == 'genmove' else answer",
    "answers twice": "    say(f'= {answer}\\n\\n')",
    "deaf to signals": "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n    time.sleep(600)",
    "leaves a child": (
        "    child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "    (here / f'pid.{child.pid}').touch()\n    command == 'genmove' and sys.exit(0)"
    ),
}

ATTACKS = (
    Attack("GTP lines", lines, 1000, 0.03, short=1),
    Attack("hostile engines", engine, len(ENGINES), 0.05, short=1),
)
