"""README and docs: what can run runs, every command and setting is known, every link and file name leads somewhere.

A Python block whose first line is a comment with a file name, such as `# corridor.py`, is that file; all others of a
page run one after the other, in one namespace. The commands of docs/inside.md happen in a copy of the package.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import jax
import pytest
from helpers.configs import env_names

from purejax_sc import __version__, config, make_train, train
from purejax_sc.cli.commands import cli
from purejax_sc.config.sections import KINDS, kind_of
from purejax_sc.tabular import options as tabular

ROOT = Path(__file__).parent.parent
MANUAL = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
INDEX = ROOT / "bench" / "RESULTS.md"
RESULTS = sorted((ROOT / "bench" / "results").glob("*.md"))
HEADS = ["Question", "Answer", "Table", "Protocol", "Command", "Commit"]
PAGES = [*MANUAL, ROOT / "CONTRIBUTING.md", INDEX, *RESULTS]
INSIDE = ROOT / "docs" / "inside.md"  # its commands are not those of this package
FILE_NAME = re.compile(r"# (\S+\.py)\n")
LABEL = re.compile(r"\b[LN]\d+\b")
SAME_WITH = re.compile(r"`purejax-sc train (\w+)([^`]*)`.{,60}?\bthe\s+same\s+with\s+`(sc\.update=\w+)", re.DOTALL)
ANY = {"CONFIG", "NAME", "DIR", "COMMAND"}  # words of a page that stand for any


class Block(NamedTuple):
    """A block of a page. before: the lines above it, empty, so that a traceback names the line of the page."""

    language: str
    text: str
    before: str


def blocks(text: str) -> list[Block]:
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    return [Block(match[1], match[2], "\n" * text.count("\n", 0, match.start(2))) for match in found]


def prose(text: str) -> str:
    """A page without its blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def outside(page: Path) -> str:
    return "" if page == INSIDE else page.read_text(encoding="utf-8")


def write_files(text: str, directory: Path) -> None:
    """The files that a page shows."""
    for block in blocks(text):
        name = FILE_NAME.match(block.text)
        if block.language == "python" and name:
            (directory / name[1]).write_text(block.text, encoding="utf-8")


def shell_lines(text: str) -> Iterator[list[str]]:
    """The words of every command in a page's shell blocks."""
    script = "\n".join(block.text for block in blocks(text) if block.language == "bash").replace("\\\n", " ")
    for line in script.splitlines():
        words = shlex.split(line, comments=True)
        while "&&" in words:
            yield words[: words.index("&&")]
            words = words[words.index("&&") + 1 :]
        if words:
            yield words


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.fixture
def directory(tmp_path, monkeypatch) -> Iterator[Path]:
    """An empty current directory, whose modules can be imported for the time of a test."""
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def runs_something(page: Path) -> bool:
    return any(block.language == "python" and not FILE_NAME.match(block.text) for block in blocks(outside(page)))


@pytest.mark.parametrize("page", [page for page in MANUAL if runs_something(page)], ids=name_of)
def test_python_examples_run(page: Path, directory: Path) -> None:
    write_files(outside(page), directory)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(outside(page)):
        if block.language == "python" and not FILE_NAME.match(block.text):
            exec(compile(block.before + block.text, str(page), "exec"), namespace)


@pytest.mark.parametrize("page", [*MANUAL, *RESULTS], ids=name_of)
def test_commands_are_understood(page: Path, directory: Path) -> None:
    write_files(outside(page), directory)
    for program, *words in shell_lines(outside(page)):
        if program == "purejax-sc":
            check_command(*words)


def check_command(name: str, *words: str) -> None:
    """Parse a command, and the settings of those that train."""
    command = cli.commands[name]
    params = command.make_context(name, list(words)).params
    if name == "train" and params["config"] not in ANY:
        assert config.load(params["config"], params["overrides"]).env
    if name == "tabular":
        assert tabular.parse(params["overrides"])
    if name == "sweep":
        swept = config.split_words(params["settings"])
        fixed = [f"{setting}={values[0]}" for setting, values in swept.items() if len(values) == 1]
        for setting, values in swept.items():
            for value in values:
                assert config.load(params["config"], [*fixed, f"{setting}={value}"]).env


@pytest.mark.parametrize("page", [*PAGES, *(ROOT / "bench" / "results").glob("*.md")], ids=name_of)
def test_runs_that_are_compared_have_different_configurations(page: Path) -> None:
    """Commands in blocks that train into different directories, and commands in prose "and the same with" an update."""
    text, runs = outside(page), {}
    for program, *words in shell_lines(text):
        if [program, *words[:1]] == ["purejax-sc", "train"] and ":" not in str(words) and words[1] not in ANY:
            params = cli.commands["train"].make_context("train", words[1:]).params
            runs[params["out"] or params["config"]] = config.load(params["config"], params["overrides"])
    assert len(set(runs.values())) == len(runs)
    for name, words, other in SAME_WITH.findall(text):
        if (config.CONFIG_DIR / f"{name}.yaml").exists():
            first = re.findall(r"sc\.update=\w+", words)
            assert config.load(name, first) != config.load(name, [other]), f"{name} is compared with itself"


def test_the_command_line_page_lists_every_command_with_options_that_it_has() -> None:
    lines = blocks((ROOT / "docs" / "command-line.md").read_text(encoding="utf-8"))[0].text.splitlines()
    assert {line.split()[1] for line in lines} == set(cli.commands)
    for line in lines:
        name, shown = line.split()[1], set(re.findall(r"--[a-z-]+", line))
        options = (option for option in cli.commands[name].params if isinstance(option, click.Option))
        unknown = shown - {text for option in options for text in option.opts}
        assert not unknown, f"{name} has no {unknown}"


def test_every_shipped_configuration_is_listed() -> None:
    page = (ROOT / "docs" / "configurations.md").read_text(encoding="utf-8").partition("\n## ")[0]
    cells = re.findall(r"^\| (`.*?) \|", page, flags=re.MULTILINE)
    listed = {name for cell in cells for name in re.findall("`(.*?)`", cell)}
    assert listed == {path.stem for path in (ROOT / "configs").glob("*.yaml")}


def test_every_column_of_the_metrics_is_explained(directory: Path) -> None:
    train("smoke", "run")
    header = (directory / "run" / "metrics.csv").read_text(encoding="utf-8").partition("\n")[0]
    othello = jax.eval_shape(make_train("othello_planes"), jax.random.key(0))[1]  # shows observations and legal actions
    names = {*header.split(","), *(name for name in othello if not name.endswith(("_sum", "_count")))}
    names |= {"result_earlier", "episode_first_wins", "episode_solved", "episode_frames", "episode_score"}
    names |= {"lag_updates", "actors_waiting", "learner_waiting"}  # of games on the host
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| (`.*?) \|", page, flags=re.MULTILINE)
    listed = [name for cell in cells for name in re.findall("`(.*?)`", cell)]
    assert sorted(listed) == sorted({re.sub(r"_\d+$", "_k", name) for name in names})


def test_every_environment_is_listed() -> None:
    page = ROOT / "docs" / "configurations.md"
    assert tuple(blocks(page.read_text(encoding="utf-8"))[-1].text.split()) == env_names()


def test_what_is_added_from_inside_trains(tmp_path) -> None:
    before, inside = (page.read_text(encoding="utf-8") for page in (INSIDE.with_name("extending.md"), INSIDE))
    shutil.copytree(ROOT / "purejax_sc", tmp_path / "purejax_sc", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    write_files(before, tmp_path)
    commands = list(shell_lines(inside))
    for program, *words in commands:
        if program == "mv":
            (tmp_path / words[0]).rename(tmp_path / words[1])
    for block in blocks(inside):
        if block.language == "diff":
            apply(block.text, tmp_path)
    for program, *words in commands:
        if program == "purejax-sc":
            line = [sys.executable, "-m", "purejax_sc", *words]
            environment = os.environ | {"PYTHONPATH": str(tmp_path)}
            result = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True)
            assert result.returncode == 0, f"{shlex.join(words)}: {result.stderr}"


def apply(diff: str, directory: Path) -> None:
    """Change a file: `+++ path`, then hunks with `@@` between them. What was there must be found once, in one piece."""
    header, _, body = diff.partition("\n")
    path = directory / header.removeprefix("+++ ")
    text = path.read_text(encoding="utf-8")
    for hunk in body.split("@@\n"):
        lines = hunk.splitlines(keepends=True)
        old = "".join(line[1:] for line in lines if not line.startswith("+"))
        new = "".join(line[1:] for line in lines if not line.startswith("-"))
        assert text.count(old) == 1, f"{path.name} does not have once:\n{old}"
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")


def anchors(path: Path) -> list[str]:
    """Of the headings of a page, as they are linked to."""
    headings = re.findall(r"^#+ (.*)$", prose(path.read_text(encoding="utf-8")), flags=re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_two_headings_are_linked_to_alike(page: Path) -> None:
    found = anchors(page)
    assert sorted(set(found)) == sorted(found)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text(encoding="utf-8"))):
        if "://" in link:
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{link}: no such file"
        assert not anchor or anchor in anchors(path), f"{link}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_file_names_exist(page: Path) -> None:
    top = {path.name for path in ROOT.iterdir()} - {"runs"}
    for text in re.findall(r"`([\w.][\w./-]*)`", page.read_text(encoding="utf-8")):
        first = text.split("/")[0]
        if ("/" in text and first in top) or text in top:
            assert (ROOT / text).exists(), f"{text} does not exist"
        elif text.endswith((".py", ".md")):
            assert (page.parent / text).exists() or (ROOT / "purejax_sc" / text).exists(), f"{text} does not exist"


@pytest.mark.parametrize("page", RESULTS, ids=name_of)
def test_results_have_the_same_heads_and_a_row_in_the_index(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"^## (.*)$", prose(text), flags=re.MULTILINE) == HEADS
    assert f"](results/{page.name})" in INDEX.read_text(encoding="utf-8")


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_the_citation_is_of_this_version() -> None:
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_readings_chosen_are_those_that_the_code_cites() -> None:
    page = (ROOT / "docs" / "algorithm.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| ([LN]\d+) \|", page, flags=re.MULTILINE))
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "purejax_sc").rglob("*.py")]
    cited = {label for text in sources for label in LABEL.findall(re.sub("# noqa.*", "", text))}
    assert cited == listed


@pytest.mark.parametrize("page", MANUAL, ids=name_of)
def test_settings_exist(page: Path) -> None:
    sections = {name: field.annotation for name, field in config.Config.model_fields.items()}
    known = {
        f"{name}.{option}" for name, section in sections.items() for option in getattr(section, "model_fields", ())
    }
    known |= {f"network.{option}" for kind in KINDS for option in kind_of(kind).options.model_fields}
    known |= {f"hyper.{option}" for option in config.Hyper._fields}
    named = set(re.findall(rf"`(?:{'|'.join(sections)})\.\w+(?=[`=:])", page.read_text(encoding="utf-8")))
    assert {name[1:] for name in named} - {"metrics.csv"} <= known


def test_readings_chosen_name_options_with_their_defaults_first() -> None:
    page = (ROOT / "docs" / "algorithm.md").read_text(encoding="utf-8")
    default = config.from_tree({"env": "garnet"})
    for cell in re.findall(r"^\| [LN]\d+ \|.*\| (.*) \|$", page, flags=re.MULTILINE):
        for name, first in re.findall(r"`([\w.]+): ([\w.]+)", cell):
            section, _, field = name.partition(".")
            assert str(getattr(getattr(default, section), field)).lower() == first, name
