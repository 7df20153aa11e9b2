"""What messages are made of: values quoted in part, and the names that are near."""

import difflib
from collections.abc import Iterable
from typing import Any

QUOTED, SHOWN = 60, 200  # characters of a value, and of other text, in a message
DIGITS = 20  # of an integer; a larger one is shown as 1e+39
PLAIN = {None: "null", True: "true", False: "false"}


def quote(value: Any) -> str:
    """A value as people write it, text as Python does, so that nothing in it reaches a terminal raw; of a long one the
    beginning."""
    try:
        text = repr(value[: 10 * QUOTED]) if isinstance(value, str) else _plain(value)
    except (ValueError, RecursionError):  # more digits than Python writes, or lists without end
        return f"a {type(value).__name__} too long to show"
    length = max(len(text), len(value)) if isinstance(value, str) else len(text)
    return text if len(text) <= QUOTED + 2 else f"{text[:QUOTED]}... ({length:,} characters)"


def _plain(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return PLAIN[value]
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(quote, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{printable(str(key))}: {quote(x)}' for key, x in value.items())}}}"
    text = repr(value)
    return f"{value:.6g}" if isinstance(value, int) and len(text) > DIGITS else text


def printable(text: str) -> str:
    """Text of others, such as a path, as one short line, with what a terminal would act upon escaped."""
    line = " ".join(text.split())
    line = line if len(line) <= SHOWN else f"{line[:SHOWN]}..."
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in line)


def nearest(name: str, known: Iterable[str], most: int = 1, cutoff: float = 0.6) -> list[str]:
    """Up to `most` known names like this one, upper and lower case alike, the nearest first."""
    folded = {other.lower(): other for other in known}
    close = difflib.get_close_matches(name[:QUOTED].lower(), folded, n=most, cutoff=cutoff)
    return [folded[other] for other in close]


def advice(name: str, known: Iterable[str], section: str = "") -> str:
    """What to write instead of an unknown name: the nearest, or any of those that there are."""
    known = list(known)
    close = nearest(name, known)
    return f"did you mean {f'{section}{close[0]}'!r}?" if close else f"known: {', '.join(known)}"
