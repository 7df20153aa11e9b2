"""Settings that have no effect on the run at hand: they are refused, because somebody meant something by them.

What belongs to other environments is refused wherever it is written. What another setting switches off is refused
where it is asked for by name, on the command line: a file may hold the settings of several arms of a comparison.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from purejax_sc.config.base import ConfigError, Section
from purejax_sc.config.envs import FAMILIES, family_of
from purejax_sc.config.words import quote

if TYPE_CHECKING:
    from purejax_sc.config.experiment import Config

EXAMPLES = {"levels": "jumanji/Sokoban", "arena": "pgx/tic_tac_toe", "atari": "atari/Pong", "host": "atari/Pong"}


class Switch(NamedTuple):
    """Settings that another one switches off. settings: of sections, as in `sc.`, or single ones.

    off: is it switched off?   by: the setting that does it, for the message.
    """

    settings: tuple[str, ...]
    off: Callable[["Config"], bool]
    by: str


SWITCHES = (
    Switch(("sc.", "hyper.sc_weight", "hyper.epsilon", "hyper.latent_noise", "hyper.gates"),
           lambda config: config.sc.update == "none", "sc.update=none"),
    Switch(("hyper.reconstruction_weight",), lambda config: not config.muesli.reconstruct and not config.muesli.legal,
           "muesli.reconstruct=0 and muesli.legal=false"),
    Switch(("replay.", "checkpoint.replay"), lambda config: not config.replay_sequences, "a replay_share of 0"),
    Switch(("levels.depth", "levels.positions", "levels.refresh_steps"),
           lambda config: config.levels.file is not None, "levels.file"),
    Switch(("levels.refresh_steps",), lambda config: not config.levels.refresh, "levels.refresh=0"),
)  # fmt: skip


def refuse_foreign(config: type["Config"], tree: Mapping[str, Any]) -> None:
    """Raises ConfigError for a setting, other than its default, of environments that this one is not.

    tree: sections as they were given, before anything is asked of their values.
    """
    env = tree.get("env")
    if not isinstance(env, str):
        return
    family = family_of(env)
    own = family.sections if family else ("arena",)  # an environment of the user's own may have two players
    for section in dict.fromkeys(section for other in FAMILIES.values() for section in other.sections):
        if section in own:
            continue
        for name, value in _changed(config, tree, section):
            raise ConfigError(
                f"{name}={quote(value)} has no effect with env={quote(env)}: leave it out, or choose a game such as"
                f" {EXAMPLES.get(section, 'atari/Pong')}"
            )


def refuse_switched_off(config: "Config", named: Iterable[str]) -> None:
    """Raises ConfigError for a setting that was asked for by its dotted name and that another one switches off."""
    for name in named:
        switch = switched_off(config, name)
        if switch:
            raise ConfigError(f"{name} has no effect with {switch}: leave it out")


def switched_off(config: "Config", name: str) -> str | None:
    """What switches a setting off, in words; None where it has an effect."""
    if name == "sc.update":
        return None
    return next((switch.by for switch in SWITCHES if name.startswith(switch.settings) and switch.off(config)), None)


def _changed(config: type["Config"], tree: Mapping[str, Any], section: str) -> Iterator[tuple[str, Any]]:
    """The settings of a section, or an only one as in `replay.file`, that are not at their defaults."""
    owner, _, only = section.partition(".")
    options = tree.get(owner)
    defaults = dict(config.model_fields[owner].default)
    for name, value in dict(options).items() if isinstance(options, Mapping | Section) else ():
        if (not only or name == only) and (name not in defaults or value != defaults[name]):
            yield f"{owner}.{name}", value
