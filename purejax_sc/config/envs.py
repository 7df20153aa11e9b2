"""Settings of environments, and the families that there are."""

from typing import Annotated, Literal, NamedTuple

import pydantic
from pydantic import Field

from purejax_sc.config.base import MOST, Fraction, Natural, Positive, Section


class Family(NamedTuple):
    """Environments of one adapter. module: of the adapter.   install: the extra that brings what it needs, if one does.

    sections: of the configuration that only these environments have.   host: do they run on the host?
    rules: are there actions that are not always legal?
    """

    module: str
    install: str = ""
    sections: tuple[str, ...] = ()
    host: bool = False
    rules: bool = False


# The first part of an environment's name -> its family.
FAMILIES = {
    "gymnax": Family("purejax_sc.envs.gymnax"),
    "garnet": Family("purejax_sc.envs.garnet"),
    "jumanji": Family("purejax_sc.envs.sokoban", sections=("levels",)),
    "pgx": Family("purejax_sc.envs.pgx", sections=("arena",), rules=True),
    "atari": Family("purejax_sc.envs.atari", "'purejax-sc[atari]'", ("atari", "host", "replay.file"), host=True),
}


def family_of(env: str) -> Family | None:
    """The family of an environment by its whole name; None for one of the user's own, and for unknown ones."""
    return FAMILIES.get(env.partition("/")[0])


def foreign_sections(env: str) -> set[str]:
    """Those, or single settings as `replay.file`, that only environments of other families have."""
    family = family_of(env)
    return {section for other in FAMILIES.values() for section in other.sections} - set(
        family.sections if family else ()
    )


class EnvOptions(Section):
    """Options that only some environments have; setting one that the environment lacks is refused."""

    sticky_actions: Fraction = 0.0
    """MinAtar: probability that the previous action is repeated (0.1 in the original)."""
    states: Positive | None = None
    """garnet: |S|, 20 in the paper."""
    actions: Positive | None = None
    """garnet: |A|, 4 in the paper."""
    mdp_seed: Natural | None = None
    """garnet: which random MDP."""
    komi: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Go: White's points at the start, 7.5 in Pgx."""


class LevelsConfig(Section):
    """Sokoban: where the levels come from. Most of it is about those that are generated."""

    file: str | None = None
    """Levels from this file: Boxoban text (.txt), or uint8 [n, 10, 10] (.npy); null generates them."""
    split: Literal["train", "test"] = "train"
    """Rooms are divided for good; evaluate plays test."""
    views: bool = False
    """Turn and mirror a level at random whenever an episode starts from it."""
    pool: Positive = 1_024
    """Levels in force at once."""
    refresh: Natural = 64
    """Rooms in which new levels are searched, a few steps per acting phase."""
    refresh_steps: Positive = 16
    """Steps of each search per acting phase; a room is done after levels.positions / levels.refresh_steps phases."""
    depth: Annotated[int, Field(ge=12, le=1_000)] = 300
    """Actions of reverse play at most: the difficulty."""
    positions: Annotated[int, Field(ge=200, le=2**28)] = 4_000
    """Positions that a search looks at; a million in the paper."""

    @pydantic.model_validator(mode="after")
    def _check(self) -> "LevelsConfig":
        if self.refresh > self.pool:
            raise ValueError(f"levels.refresh={self.refresh} is more than levels.pool={self.pool}: lower it")
        return self


class AtariConfig(Section):
    """Atari: the frames that the agent sees, and its actions; by default the paper's."""

    size: Annotated[int, Field(ge=8, le=MOST)] = 96
    """Side of a frame in pixels."""
    gray: bool = False
    """Gray frames instead of colours."""
    stack: Positive = 1
    """Frames that the agent sees at once."""
    full_actions: bool = True
    """All 18 actions of the joystick; else those that the game uses."""
