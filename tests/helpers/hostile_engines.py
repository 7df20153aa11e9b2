"""Go engines that do what no engine should, as Python scripts by name, and the processes that are left of one."""

import os
from contextlib import suppress
from pathlib import Path

# Each notes its processes by this variable, which they inherit.
MARK = "HOSTILE_ENGINE"
_START = "import os, signal, subprocess, sys, time\n"
_OBEY = "for line in sys.stdin:\n    print('= \\n', flush=True)\n"
_SLEEP = "subprocess.Popen(['sleep', '600'], start_new_session={})\n"

HOSTILE = {
    name: _START + script
    for name, script in {
        "forks and exits": _SLEEP.format(False),
        "leaves its group and exits": _SLEEP.format(True),
        "forks twice, leaves its group, closes its pipes and exits": (
            "if os.fork():\n    os._exit(0)\nos.setsid()\nif os.fork():\n    os._exit(0)\n"
            "for i in range(3):\n    os.close(i)\ntime.sleep(600)\n"
        ),
        "ignores SIGTERM": (
            "for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):\n    signal.signal(number, signal.SIG_IGN)\n"
            "time.sleep(600)\n"
        ),
        "floods its output with lines": "while True:\n    sys.stdout.write('junk\\n' * 10_000)\n",
        "floods its output without a line": "while True:\n    sys.stdout.write('=' * 100_000)\n",
        "floods its output with replies": "while True:\n    sys.stdout.write('? no\\n\\n' * 10_000)\n",
        "floods its errors and never answers": "while True:\n    sys.stderr.write('junk ' * 10_000)\n",
        "never answers": "time.sleep(600)\n",
        "answers garbage": "for line in sys.stdin:\n    print('= \\x1b[2J\\x00 garbage\\n', flush=True)\n",
        "answers what is not UTF-8": "while True:\n    os.write(1, b'= \\xff\\xfe\\n\\n')\n    sys.stdin.readline()\n",
        "closes its pipes": "for i in range(3):\n    os.close(i)\ntime.sleep(600)\n",
        "dies at once": "os.kill(os.getpid(), signal.SIGKILL)\n",
        "kills its keeper": _SLEEP.format(False) + "os.kill(os.getppid(), signal.SIGKILL)\n" + _OBEY,
        "stops its keeper": _SLEEP.format(False) + "os.kill(os.getppid(), signal.SIGSTOP)\ntime.sleep(600)\n",
        "signals its whole group": _SLEEP.format(False) + "os.killpg(0, signal.SIGTERM)\ntime.sleep(600)\n",
    }.items()
}


def survivors(mark: str) -> list[int]:
    """The processes that were started with MARK set to this, but for those that have ended and wait to be noticed."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            marked = f"{MARK}={mark}".encode() in (path / "environ").read_bytes().split(b"\0")
            if marked and int(path.name) != os.getpid():
                found.append(int(path.name))
    return found
