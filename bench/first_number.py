"""How long a user waits for the first number of a run: with an empty compilation cache, and again with a full one.

    python bench/first_number.py minatar_breakout --seeds 5
    PYTHONPATH=/another/checkout python bench/first_number.py minatar_breakout --seeds 5

The command runs on a terminal of its own and is killed when it has shown a return.
"""

import argparse
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path

PATIENCE = 300.0  # seconds
SIGNS = {"compiling": "compiling", "compiled": "compiled in", "first return": r"return -?[\d.]+"}


def watch(words: list[str], cache: Path, out: Path) -> dict[str, float]:
    """Seconds from the start of `purejax-sc train WORDS` to each of its signs of life."""
    begin, shown, seen = time.perf_counter(), "", dict[str, float]()
    pid, terminal = pty.fork()
    if pid == 0:
        environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(cache), "TERM": "xterm"}
        command = [sys.executable, "-m", "purejax_sc", "train", *words, "--out", str(out)]
        os.execve(sys.executable, command, environment)  # noqa: S606 - there is no shell to need
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    while len(seen) < len(SIGNS) and time.perf_counter() - begin < PATIENCE:
        if not select.select([terminal], [], [], 0.1)[0]:
            continue
        try:
            shown += os.read(terminal, 2**16).decode(errors="replace")
        except OSError:  # it has ended
            break
        now = time.perf_counter() - begin
        seen = {name: seen.get(name, now) for name, sign in SIGNS.items() if re.search(sign, shown)}
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(terminal)
    if len(seen) < len(SIGNS):
        sys.exit(f"no return was shown: {shown[-500:]}")
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--seeds", default="1")
    args = parser.parse_args()
    words = [args.config, *args.overrides, "--seeds", args.seeds]
    with tempfile.TemporaryDirectory() as folder:
        for name in ("empty", "full"):
            seen = watch(words, Path(folder) / "cache", Path(folder) / name)
            print(f"{name} cache:", ", ".join(f"{sign} {t:.1f} s" for sign, t in seen.items()), flush=True)


if __name__ == "__main__":
    main()
