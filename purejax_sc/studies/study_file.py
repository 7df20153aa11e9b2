"""A study is a file: which arms are compared on which environments, and what the paper says of them.

`configs/studies/NAME.yaml`; the words of an environment and of an arm are those of `purejax-sc train`.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import pydantic
from pydantic import Field

from purejax_sc.config import CONFIG_DIR, Config, ConfigError, Positive, Section, load
from purejax_sc.config.errors import advice, explain, printable, quote
from purejax_sc.config.experiment import switched_off
from purejax_sc.config.files import parse, split_word
from purejax_sc.config.sections import Natural

FOLDER = CONFIG_DIR / "studies"
NAME = re.compile(r"\w[\w.+-]*(?: [\w.+-]+)*")  # of an arm or an environment, which are names of directories
CLAIM = re.compile(r"(\S+)\.(\w+) *([<>]) *(\S+)\.(\w+)")

Size = Literal["laptop", "paper"]


class ArmFile(Section):
    """What is compared. title: as the paper calls it.   config: for the environments that name none."""

    title: str
    words: str = ""
    config: str | None = None
    x: float | None = None  # where it lies on the axis of the study, see `StudyFile.axis`


class ClaimFile(Section):
    """What should hold, as in `direct.auc > none.auc`, and the sentence of the paper that says so.

    on: how the names of the environments begin of which it is said; None is all of them.
    """

    claim: str
    says: str
    on: str | None = None


class GamesFile(Section):
    """Games of Go that the trained agents play, with and without search."""

    engine: str  # the command of a GTP engine
    games: Positive = 20  # of each seed
    simulations: tuple[Natural, ...] = (0, 32)


class TabularFile(Section):
    """Tasks of the tabular study: each is an environment with each of its models, each of its updates an arm."""

    tasks: tuple[Literal["evaluation", "control", "noise"], ...]
    words: str = ""


class StudyFile(Section):
    """environments: by size, name -> words of `train`.   arms: the first one is the baseline.

    axis: what lies on the axis of the last panel, whose places the arms' `x` give; without it there are bars.
    human: returns are also normalised by a human's, and their median over games is drawn.
    """

    title: str
    text: str
    figure: str | None = None  # of the paper
    seeds: Annotated[int, Field(ge=1, le=10_000)] = 5
    environments: dict[Size, dict[str, str]] = Field(default_factory=dict)
    arms: dict[str, ArmFile]
    claims: tuple[ClaimFile, ...] = ()
    axis: str | None = None
    human: bool = False
    games: GamesFile | None = None
    tabular: TabularFile | None = None


class Claim(NamedTuple):
    """`left.metric > right.metric`, or `<`, and the sentence that it tests."""

    left: str
    right: str
    metric: str
    more: bool
    says: str
    on: str | None = None

    @property
    def text(self) -> str:
        return f"{self.left}.{self.metric} {'>' if self.more else '<'} {self.right}.{self.metric}"


class Study(NamedTuple):
    """A study of one size. configs: environment -> arm -> its configuration.   words: the same as they were written."""

    name: str
    file: StudyFile
    size: Size
    seeds: int
    configs: dict[str, dict[str, Config]]
    words: dict[str, dict[str, list[str]]]
    claims: list[Claim]

    @property
    def arms(self) -> list[str]:
        return list(self.file.arms)

    def title(self, arm: str) -> str:
        return self.file.arms[arm].title


def shipped() -> list[str]:
    """Names of the studies that are shipped."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_study(
    name: str,
    size: Size = "laptop",
    seeds: int | None = None,
    envs: Sequence[str] | None = None,
    arms: Sequence[str] | None = None,
) -> Study:
    """The study in a file, or a shipped one by its name. envs, arms: only these. Raises ConfigError."""
    path = FOLDER / f"{name}.yaml" if name in shipped() else Path(name)
    if not path.is_file():
        raise ConfigError(f"no study {quote(name)}: give a file, or one of {', '.join(shipped())}")
    try:
        tree = parse(path.read_text(encoding="utf-8"), printable(str(path)))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {printable(str(path))}: {error}") from None
    file = _validated(tree, printable(str(path)))
    file = file.model_copy(update={"arms": _chosen("arm", file.arms, arms)})
    environments = _chosen("environment", _of_size(file, size), envs)
    words = {env: {arm: _words(text, file.arms[arm], env) for arm in file.arms} for env, text in environments.items()}
    configs = {env: {arm: _config(*each) for arm, each in row.items()} for env, row in words.items()}
    claims = [_claim(claim) for claim in file.claims]
    known = [claim for claim in claims if {claim.left, claim.right} <= set(file.arms)]
    return Study(path.stem, file, size, seeds or file.seeds, configs, words, known)


def _validated(tree: Any, name: str) -> StudyFile:
    if not isinstance(tree, dict):
        raise ConfigError(f"{name} holds no mapping: start it with 'title: ...'")
    try:
        file = StudyFile.model_validate(_with_tuples(tree))
    except pydantic.ValidationError as error:
        raise ConfigError(f"{name}: {explain(error, _known)}") from None
    for each in [*file.arms, *(env for names in file.environments.values() for env in names)]:
        if not NAME.fullmatch(each):  # they are names of directories
            raise ConfigError(
                f"{name}: {quote(each)} is no name of an arm or environment: use letters, digits, . + - _"
            )
    for claim in map(_claim, file.claims):
        strange = next((arm for arm in (claim.left, claim.right) if arm not in file.arms), None)
        if strange:
            raise ConfigError(f"{name}: no arm {quote(strange)} in {claim.text!r}: {advice(strange, file.arms)}")
    if bool(file.tabular) == bool(file.environments):
        raise ConfigError(f"{name}: give environments, or tabular, and not both")
    return file


def _with_tuples(tree: Any) -> Any:
    """The same with tuples for lists, which are all that YAML knows."""
    if isinstance(tree, dict):
        return {key: _with_tuples(value) for key, value in tree.items()}
    return tuple(_with_tuples(value) for value in tree) if isinstance(tree, list) else tree


def _known(path: list[str]) -> list[str]:
    """The keys that there are beside an unknown one."""
    sections: dict[str, type[Section]] = {
        "arms": ArmFile,
        "claims": ClaimFile,
        "games": GamesFile,
        "tabular": TabularFile,
    }
    section = sections.get(path[0], StudyFile) if len(path) > 1 else StudyFile
    return list(section.model_fields)


def _of_size(file: StudyFile, size: Size) -> dict[str, str]:
    if file.tabular:
        return {}
    if size not in file.environments:
        raise ConfigError(f"this study has no size {size}: choose {' or '.join(file.environments)}")
    return file.environments[size]


def _chosen(kind: str, known: Mapping[str, Any], wanted: Sequence[str] | None) -> dict[str, Any]:
    for name in wanted or ():
        if name not in known:
            raise ConfigError(f"no {kind} {quote(name)} in this study: {advice(name, known)}")
    return {name: value for name, value in known.items() if not wanted or name in wanted}


def _words(text: str, arm: ArmFile, env: str) -> list[str]:
    """What `train` would be given: a configuration and settings."""
    words = text.split()
    if words and "=" not in words[0]:
        if arm.config:
            raise ConfigError(f"{env} and {quote(arm.title)} both name a configuration: leave one of them out")
    elif arm.config:
        words = [arm.config, *words]
    else:
        raise ConfigError(f"{env} names no configuration, and neither does {quote(arm.title)}: begin with one")
    return [*words, *arm.words.split()]


def _config(name: str, *words: str) -> Config:
    """Settings of an arm may have no effect in its baseline. Raises ConfigError."""
    for word in words:
        split_word(word)
    return load(name, words, strict=False)


def check_effects(study: Study) -> None:
    """Raise ConfigError for a setting of an arm that another one switches off: it would be another arm again."""
    for env, row in study.configs.items():
        for arm, config in row.items():
            for word in study.file.arms[arm].words.split():
                switch = switched_off(config, split_word(word)[0])
                if switch:
                    raise ConfigError(f"arm {arm} on {env}: {word} has no effect with {switch}: leave it out")


def _claim(claim: ClaimFile) -> Claim:
    found = CLAIM.fullmatch(claim.claim.strip())
    if not found or found[2] != found[5]:
        raise ConfigError(f"{quote(claim.claim)} is no claim: write it as in 'direct.auc > none.auc'")
    return Claim(found[1], found[4], found[2], found[3] == ">", claim.says, claim.on)
