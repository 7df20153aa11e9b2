"""Runs many command lines in one process of the attacked interpreter, so that imports and compilation are paid once.

    python -P worker.py COMMAND

reads one JSON object per line: `words`, `directory` to work in, `seconds` that it may take; and answers each with one:
`status`, `out`, `err`, `hung`. Python's own streams are what is captured; what libraries write to descriptor 2 goes to
the file `stderr` names, and is part of `err`.
"""

import contextlib
import io
import json
import os
import runpy
import signal
import sys
import traceback
from typing import Any


class Hung(BaseException):
    """Raised by the alarm; no handler of ordinary exceptions may take it."""


def raise_hung(*_: object) -> None:
    raise Hung


def status_of(code: Any) -> int:
    """What the process would have ended with."""
    return code if isinstance(code, int) else 0 if code is None else 1


def run(command: str, words: list[str], seconds: float) -> dict[str, Any]:
    """Run the script with these words in this very process."""
    out, err = io.StringIO(), io.StringIO()
    status, hung = 0, False
    sys.argv = [command, *words]
    signal.signal(signal.SIGALRM, raise_hung)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            runpy.run_path(command, run_name="__main__")
        except SystemExit as error:
            status = status_of(error.code)
        except Hung:
            hung = True
        except BaseException:  # what would have ended the process with a traceback
            status = 1
            traceback.print_exc()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    return {"status": status, "out": out.getvalue(), "err": err.getvalue(), "hung": hung}


def libraries_said(descriptor: int, start: int) -> str:
    """What was written to descriptor 2 since `start`, by whatever is no Python."""
    return os.pread(descriptor, 1 << 20, start).decode(errors="replace")


def main() -> None:
    command = sys.argv[1]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        task = json.loads(line)
        os.chdir(task["directory"])
        start = os.fstat(2).st_size
        answer = run(command, task["words"], task["seconds"])
        answer["err"] += libraries_said(2, start)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
