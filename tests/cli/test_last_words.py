"""One line in place of an abort of the C++ library, in processes where its exceptions are caught by nobody."""

import ctypes
import subprocess
import sys

import pytest

from purejax_sc.cli import last_words

THROW = """
import ctypes, threading
from purejax_sc.cli import last_words

library = ctypes.CDLL(last_words.LIBRARY)
with last_words.said({last_words.NO_MEMORY: "no memory: lower something", last_words.NO_THREAD: "no thread"}):
    %s
library._ZSt17__throw_bad_allocv()
"""
ALONE = "thread = threading.Thread(target=%s)\n    thread.start()\n    thread.join()"
MEMORY, SYSTEM = "library._ZSt17__throw_bad_allocv", "lambda: library._ZSt20__throw_system_errori(11)"


@pytest.fixture(autouse=True)
def _gnu() -> None:
    try:
        ctypes.CDLL(last_words.LIBRARY)
    except OSError:
        pytest.skip("the C++ library is not GNU's")


def thrown(code: str) -> tuple[int, str]:
    """The exit status and the last line of a process that runs this code inside `said`."""
    process = subprocess.run([sys.executable, "-c", THROW % code], capture_output=True, text=True, check=False)
    return process.returncode, process.stderr


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (f"{MEMORY}()", "no memory: lower something\n"),
        (ALONE % MEMORY, "no memory: lower something\n"),
        (ALONE % SYSTEM, "no thread\n"),
    ],
    ids=["main thread", "memory, in a thread", "threads, in a thread"],
)
def test_want_of_memory_or_threads_is_one_line(code: str, said: str) -> None:
    assert thrown(code) == (2, said)


@pytest.mark.parametrize(
    ("code", "what"),
    [("library._ZSt20__throw_out_of_rangePKc(b'x')", "std::out_of_range"), ("pass", "std::bad_alloc")],
    ids=["another exception", "afterwards"],
)
def test_everything_else_ends_as_it_would_have(code: str, what: str) -> None:
    status, text = thrown(code)
    assert status == -6
    assert what in text
