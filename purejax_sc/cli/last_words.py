"""One line in place of an abort: where XLA's own threads run out of memory, no Python learns of it.

An exception of C++ that nobody catches ends the process with SIGABRT and a message of the C++ library. That library
can be given another function to call. This is done for the exceptions that say that the system gives no more, and where
the library is GNU's; everything else ends as it would have.
"""

import ctypes
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

LIBRARY = "libstdc++.so.6"
NO_MEMORY, NO_THREAD = b"St9bad_alloc", b"St12system_error"  # std::bad_alloc, std::system_error as it names them
STATUS = 2
_NAME = ctypes.sizeof(ctypes.c_void_p)  # where a std::type_info keeps its name: after its table of functions

_Function = ctypes.CFUNCTYPE(None)


class _Library(NamedTuple):
    """The two functions of the C++ library. replace: std::set_terminate.   exception: the type of what is thrown."""

    replace: Any
    exception: Any


@contextmanager
def said(lines: Mapping[bytes, str]) -> Iterator[None]:
    """Inside, an uncaught exception of C++ ends the process with a line on stderr and the exit status of a refusal.

    lines: by the type of the exception, `NO_MEMORY` or `NO_THREAD`.
    """
    library = _library()
    if library is None:
        yield
        return

    def end() -> None:
        line = lines.get(_thrown(library))
        if line is None:
            _Function(before)()
        else:
            os.write(2, f"{line}\n".encode(errors="replace"))
            os._exit(STATUS)

    handler = _Function(end)  # held here for as long as C++ may call it
    before = library.replace(ctypes.cast(handler, ctypes.c_void_p))
    try:
        yield
    finally:
        library.replace(before)


def _thrown(library: _Library) -> bytes:
    """The name of the type of what was thrown in this thread, empty if nothing was."""
    kind = library.exception()
    name = ctypes.c_char_p.from_address(kind + _NAME).value if kind else None
    return name or b""


@cache
def _library() -> _Library | None:
    try:
        library = ctypes.CDLL(LIBRARY)
        replace, exception = library._ZSt13set_terminatePFvvE, library.__cxa_current_exception_type
    except (OSError, AttributeError):
        return None
    replace.argtypes, replace.restype = [ctypes.c_void_p], ctypes.c_void_p
    exception.argtypes, exception.restype = [], ctypes.c_void_p
    return _Library(replace, exception)
