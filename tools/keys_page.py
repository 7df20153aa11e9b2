"""Write docs/keys.md: every key of a configuration and option of the tabular study, by section."""

from itertools import groupby
from pathlib import Path

from purejax_sc.config import reference
from purejax_sc.config.reference import TABULAR, Key
from purejax_sc.config.sections import resolve

FILE = Path(__file__).parents[1] / "docs" / "keys.md"
PAGE = """# Keys

Every key of a configuration, and every option of [`purejax-sc tabular`](#purejax-sc-tabular). `purejax-sc keys PATTERN`
shows those that have PATTERN in their name or meaning, and `purejax-sc train CONFIG --print-config` the values in
force. How to set them: [the command line](command-line.md#settings).

Defaults suit small tasks; the configurations `atari`, `sokoban` and `go_9x9` have the paper's numbers. Labels such as
L5 and N7 refer to the [readings chosen](algorithm.md#readings-chosen) where the papers leave a question open.

This page is made by `python tools/keys_page.py`.
"""


def page() -> str:
    """Write the page: a table for each section."""
    tables, about = [PAGE], reference.sections() | {TABULAR: resolve(reference.STUDY)}
    for section, rows in groupby(reference.read_keys(), lambda key: key.owner or key.name.rpartition(".")[0]):
        title = f"## {section}\n\n{summary(about[section])}\n" if section in about else ""
        tables.append(title or (f"### {section}\n" if section else "## The whole\n"))
        tables.append("| key | default | values | meaning |\n|---|---|---|---|\n" + "".join(map(_row, rows)))
    return "\n".join(tables)


def summary(section: type) -> str:
    """Return the subject of a section: the first sentence of its docstring."""
    text = " ".join((section.__doc__ or "").split())
    return text.partition(". ")[0].removesuffix(".") + "." if text else ""


def _row(key: Key) -> str:
    cells = (f"`{key.name}`", key.default, key.values, key.meaning)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
