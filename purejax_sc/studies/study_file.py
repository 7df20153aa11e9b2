"""Study files: the arms that are compared, on which environments, and the claims of the paper about them.

`configs/studies/NAME.yaml`; the words of an environment and of an arm are those of `purejax-sc train`.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import pydantic
from pydantic import Field

from purejax_sc.config import CONFIG_DIR, Config, ConfigError, Positive, Section, load, override
from purejax_sc.config.errors import advice, explain, printable, quote
from purejax_sc.config.files import parse
from purejax_sc.config.sections import Natural

FOLDER = CONFIG_DIR / "studies"
CLAIM = re.compile(r"(\S+)\.(\w+) *([<>]) *(\S+)\.(\2)")

Name = Annotated[str, Field(pattern=r"^\w[\w.+-]*( [\w.+-]+)*$")]  # of an arm or an environment: of a directory
Size = Literal["laptop", "paper"]


class _Part(Section, strict=False):
    """A part of a study file, in which lists of YAML become tuples."""


class ArmSection(_Part):
    """One of the agents compared."""

    title: str  # as the paper calls it
    words: str = ""
    x: float | None = None  # place on the axis of the study, see `StudyFile.axis`


class Claim(_Part):
    """A comparison, as in `direct.auc > none.auc`, and the sentence of the paper that says so."""

    claim: str
    says: str
    on: str | None = None  # prefix of the names of its environments; None is all of them

    @property
    def parts(self) -> tuple[str, str, str, bool]:
        """Arm on the left, arm on the right, metric, and whether the left one should have more. Raises ConfigError."""
        found = CLAIM.fullmatch(self.claim)
        if not found:
            raise ConfigError(f"{quote(self.claim)} is no claim: write it as in 'direct.auc > none.auc'")
        return found[1], found[4], found[2], found[3] == ">"


class GamesFile(_Part):
    """Games of Go that the trained agents play, with and without search."""

    engine: str  # the command of a GTP engine
    games: Positive = 20  # of each seed
    simulations: tuple[Natural, ...] = (0, 32)


class TabularFile(_Part):
    """Tasks of the tabular study: each is an environment with each of its models, each of its updates an arm."""

    tasks: tuple[Literal["evaluation", "control", "noise"], ...]
    words: str = ""


class StudyFile(_Part):
    """Contents of a study file."""

    title: str
    text: str
    figure: str | None = None  # of the paper
    seeds: Annotated[int, Field(ge=1, le=10_000)] = 5
    environments: dict[Size, dict[Name, str]] = Field(default_factory=dict)  # by size, name -> words of `train`
    arms: dict[Name, ArmSection]  # the first one is the baseline
    claims: tuple[Claim, ...] = ()
    axis: str | None = None  # label of the axis on which the arms have their `x`; without it areas are bars
    human: bool = False  # also score by human-normalised returns, aggregated over games (Atari)
    games: GamesFile | None = None
    tabular: TabularFile | None = None


KEYS = [key for section in (StudyFile, ArmSection, Claim, GamesFile, TabularFile) for key in section.model_fields]


class Study(NamedTuple):
    """A study of one size. configs: environment -> arm -> its configuration."""

    name: str
    file: StudyFile
    size: Size
    seeds: int
    configs: dict[str, dict[str, Config]]

    @property
    def arms(self) -> list[str]:
        return list(self.file.arms)

    @property
    def claims(self) -> list[Claim]:
        """Claims whose arms are both in the study."""
        return [claim for claim in self.file.claims if set(claim.parts[:2]) <= set(self.arms)]

    def words(self, env: str, arm: str) -> str:
        """Return the arguments that `train` would get."""
        return f"{self.file.environments[self.size][env]} {self.file.arms[arm].words}".strip()


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
    """Read the study in a file, or a shipped one by its name. envs, arms: only these. Raises ConfigError."""
    path = FOLDER / f"{name}.yaml" if name in shipped() else Path(name)
    shown = printable(str(path))
    try:
        file = _validated(parse(path.read_text(encoding="utf-8"), shown), shown)
    except OSError:
        raise ConfigError(f"no study {quote(name)}: give a file, or one of {', '.join(shipped())}") from None
    if not file.tabular and size not in file.environments:
        raise ConfigError(f"this study has no size {size}: choose {' or '.join(file.environments)}")
    environments = {} if file.tabular else _chosen("environment", file.environments[size], envs)
    file = file.model_copy(update={"arms": _chosen("arm", file.arms, arms)})
    configs = {env: {arm: _config(text, x.words) for arm, x in file.arms.items()} for env, text in environments.items()}
    return Study(path.stem, file, size, seeds or file.seeds, configs)


def _validated(tree: Any, name: str) -> StudyFile:
    if not isinstance(tree, dict):
        raise ConfigError(f"{name} holds no mapping: start it with 'title: ...'")
    try:
        file = StudyFile.model_validate(tree)
    except pydantic.ValidationError as error:
        raise ConfigError(f"{name}: {explain(error, lambda path: KEYS)}") from None
    for claim in file.claims:
        strange = next((arm for arm in claim.parts[:2] if arm not in file.arms), None)
        if strange:
            raise ConfigError(f"{name}: no arm {quote(strange)} in {claim.claim!r}: {advice(strange, file.arms)}")
    if bool(file.tabular) == bool(file.environments):
        raise ConfigError(f"{name}: give environments, or tabular, and not both")
    return file


def _chosen(kind: str, known: Mapping[str, Any], wanted: Sequence[str] | None) -> dict[str, Any]:
    for name in wanted or ():
        if name not in known:
            raise ConfigError(f"no {kind} {quote(name)} in this study: {advice(name, known)}")
    return {name: value for name, value in known.items() if not wanted or name in wanted}


def _config(text: str, words: str) -> Config:
    """Load the configuration of an arm, whose own words must have an effect. Raises ConfigError."""
    name, *settings = text.split() or [""]
    return override(load(name, settings, strict=False), words.split())
