"""One experiment: all sections together, what follows from them, and what no section can know alone."""

from collections.abc import Mapping
from functools import partial, reduce
from typing import Annotated, Any, get_type_hints

import pydantic
from pydantic import BeforeValidator, Field, SerializeAsAny

from purejax_sc.config.errors import ConfigError, explain, quote
from purejax_sc.config.sections import (
    DEFAULT_KIND,
    FAMILIES,
    KINDS,
    AtariConfig,
    CheckpointConfig,
    EnvFamily,
    EnvOptions,
    HostConfig,
    Hyper,
    LevelsConfig,
    MuesliConfig,
    Needs,
    NetworkConfig,
    ReplayConfig,
    ScConfig,
    Section,
    SelfplayEvalConfig,
    TrainConfig,
    family_of,
    kind_of,
    read_network,
)

OFF = (None, False, 0, "none")
OWN = EnvFamily("", sections=("selfplay_eval",), rules=True)  # what an environment of the user's own may have

# the options of the network's kind
Network = Annotated[SerializeAsAny[NetworkConfig], BeforeValidator(read_network)]


class Config(Section):
    """One experiment. Frozen and hashable. `repr` shows what differs from the defaults."""

    env: str
    """Family and name, as in gymnax/Catch-bsuite, or module:function of an environment of your own."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Seed of the first run; N seeds are this one and the next."""
    env_options: EnvOptions = EnvOptions()
    levels: LevelsConfig = LevelsConfig()
    atari: AtariConfig = AtariConfig()
    network: Network = Field(default_factory=lambda: read_network({}))
    train: TrainConfig = TrainConfig()
    replay: ReplayConfig = ReplayConfig()
    host: HostConfig = HostConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    selfplay_eval: SelfplayEvalConfig = SelfplayEvalConfig()
    muesli: MuesliConfig = MuesliConfig()
    sc: ScConfig = ScConfig()
    hyper: Hyper = Hyper()

    def __init__(self, /, **settings: Any) -> None:
        """Raises ConfigError with one line for a fault."""
        try:
            super().__init__(**settings)
        except pydantic.ValidationError as error:
            raise ConfigError(explain(error, partial(_keys, settings))) from None

    @property
    def replay_sequences(self) -> int:
        """Replayed sequences in a batch."""
        return round(self.train.replay_share * self.train.batch_sequences)

    @property
    def fresh_sequences(self) -> int:
        """Sequences in a batch that the actor has just made."""
        return self.train.batch_sequences - self.replay_sequences

    @property
    def updates_per_iteration(self) -> int:
        """Updates between two acting phases: each fresh sequence is used as fresh exactly once."""
        return self.train.num_envs // self.fresh_sequences

    @property
    def steps_per_iteration(self) -> int:
        """Environment steps of one acting phase."""
        return self.train.num_envs * self.train.sequence_length

    @property
    def num_iterations(self) -> int:
        """Acting phases of a whole run: the smallest number that reaches `env_steps`."""
        return -(-self.train.env_steps // self.steps_per_iteration)

    @property
    def num_updates(self) -> int:
        return self.num_iterations * self.updates_per_iteration

    @property
    def replay_capacity_sequences(self) -> int:
        """Rows of the ring: whole blocks of `num_envs` sequences, so that a block never wraps around."""
        blocks = self.replay.capacity // self.train.sequence_length // self.train.num_envs
        return blocks * self.train.num_envs

    def shard(self) -> "Config":
        """One device's part of a run that `train.data_shards` devices share."""
        train, n = self.train, self.train.data_shards
        part = {
            "env_steps": self.num_iterations * self.steps_per_iteration // n,
            "num_envs": train.num_envs // n,
            "batch_sequences": train.batch_sequences // n,
            "data_shards": 1,
        }
        rows = self.replay_capacity_sequences // n
        levels = {"pool": self.levels.pool // n, "refresh": -(-self.levels.refresh // n)}
        return self.model_copy(
            update={
                "levels": self.levels.model_copy(update=levels),
                "train": train.model_copy(update=part),
                "replay": self.replay.model_copy(update={"capacity": rows * train.sequence_length}),
            }
        )

    @pydantic.model_validator(mode="after")
    def _check(self) -> "Config":
        """Raise ValueError for what no field can know alone."""
        self._check_environment(family_of(self.env) or OWN)
        self._check_batch()
        self._check_shards()
        self._check_unrolls()
        self._check_hyper()
        return self

    def _check_environment(self, family: EnvFamily) -> None:
        """Refuse settings that belong to other environments."""
        for name in [name for other in FAMILIES.values() for name in other.sections if name not in family.sections]:
            section = getattr(self, name)
            changed = dict(section).items() - dict(type(section)()).items()
            if changed:
                key, value = min(changed)
                raise ValueError(f"{name}.{key}={quote(value)} has no effect with env={quote(self.env)}: leave it out")
        if self.muesli.predict_legal and not family.rules:
            raise ValueError(
                f"muesli.predict_legal=true has no effect with env={self.env}, where actions are always legal: leave it"
                " out"
            )
        if family.host and self.train.num_envs % self.host.actors:
            raise ValueError(
                f"train.num_envs={self.train.num_envs} cannot be shared by host.actors={self.host.actors}: set"
                f" train.num_envs={-(-self.train.num_envs // self.host.actors) * self.host.actors}, or other actors"
            )

    def _check_batch(self) -> None:
        train, capacity = self.train, self.replay_capacity_sequences
        if self.fresh_sequences < 1:
            raise ValueError(f"train.replay_share={train.replay_share} leaves no fresh sequence in a batch: lower it")
        if train.num_envs % self.fresh_sequences:
            raise ValueError(
                f"train.num_envs={train.num_envs} must be a multiple of the {self.fresh_sequences} fresh sequences of a"
                f" batch (batch_sequences={train.batch_sequences}, replay_share={train.replay_share}): set"
                f" train.num_envs={self.fresh_sequences}, or change the share"
            )
        need, name = max((train.batch_sequences, "batch_sequences"), (train.num_envs, "num_envs"))
        if self.replay_sequences and capacity < need:
            raise ValueError(
                f"replay.capacity={self.replay.capacity} holds {capacity} sequences of {train.sequence_length} steps,"
                f" less than train.{name}={need}: lower that, or set replay.capacity={need * train.sequence_length}"
            )

    def _check_shards(self) -> None:
        shards = self.train.data_shards
        shared = {"fresh sequences of a batch": self.fresh_sequences, "replayed ones": self.replay_sequences}
        if "levels" in (family_of(self.env) or OWN).sections:
            shared["levels of levels.pool"] = self.levels.pool
        for name, size in shared.items():
            if size % shards:
                raise ValueError(f"train.data_shards={shards} cannot share the {size} {name}: choose a divisor")

    def _check_unrolls(self) -> None:
        length = self.train.sequence_length
        if self.muesli.unroll > length:
            raise ValueError(
                f"muesli.unroll={self.muesli.unroll} is longer than train.sequence_length={length}:"
                f" lower the one or raise the other"
            )
        if self.sc.rollout_policy == "original" and self.sc.unroll > length:
            raise ValueError(
                f"sc.rollout_policy=original replays sc.unroll={self.sc.unroll} real actions, but train.sequence_length"
                f" is {length}: lower sc.unroll"
            )
        if self.sc.update != "none" and self.sc.unroll == 1 and not self.sc.include_last:
            raise ValueError("sc.unroll=1 leaves the SC loss without a term (it sums k = 1 .. K - 1): set sc.unroll=2")

    def _check_hyper(self) -> None:
        if self.hyper.latent_noise > 0 and self.sc.noise_on == "none":
            raise ValueError("hyper.latent_noise has no effect with sc.noise_on=none: set sc.noise_on=encoding")
        if self.hyper.rollout_epsilon > 0 and self.sc.rollout_policy != "epsilon":
            raise ValueError(
                f"hyper.rollout_epsilon has no effect with sc.rollout_policy={self.sc.rollout_policy}: set"
                " sc.rollout_policy=epsilon"
            )
        if self.hyper.prior_behaviour + self.hyper.prior_uniform > 1:
            raise ValueError("hyper.prior_behaviour + hyper.prior_uniform is above 1: lower one of them")


def switched_off(config: Config, name: str) -> str | None:
    """Return the settings that switch this one off, in words; None where it has an effect. See `Needs`."""
    owner, _, leaf = name.rpartition(".")
    section = type(getattr(config, owner)) if owner else Config
    hint = get_type_hints(section, include_extras=True).get(leaf)
    for need in (x for x in getattr(hint, "__metadata__", ()) if isinstance(x, Needs)):
        names = {key: key.removesuffix("=null") for key in need.keys}
        values: dict[str, Any] = {key: reduce(getattr, name.split("."), config) for key, name in names.items()}
        if all(value is not None if key.endswith("=null") else value in OFF for key, value in values.items()):
            shown = {names[key]: value if isinstance(value, str) else quote(value) for key, value in values.items()}
            return " and ".join(f"{name}={text}" for name, text in shown.items())
    return None


def _keys(settings: Mapping[str, Any], path: list[str]) -> list[str]:
    """The keys that there are beside an unknown one. Raises ConfigError for one that belongs elsewhere."""
    *parents, leaf = path
    network = dict(settings.get("network", {}))
    sections: dict[str, Any] = {name: field.annotation for name, field in Config.model_fields.items()}
    sections["network"] = kind_of(network.get("kind", DEFAULT_KIND)).options
    kinds = [name for name in KINDS if parents == ["network"] and leaf in _fields(kind_of(name).options)]
    if kinds:
        cures = " or ".join(f"network.kind={name}" for name in kinds)
        kind = network.get("kind", DEFAULT_KIND)
        raise ConfigError(f"network.{leaf} has no effect with network.kind={kind}: leave it out, or set {cures}")
    homes = [f"{name}.{leaf}" for name, section in sections.items() if leaf in _fields(section)]
    if homes:
        value: Any = reduce(lambda tree, key: tree[key], path, settings)
        raise ConfigError(f"unknown key {quote('.'.join(path))}: did you mean {homes[0]}={quote(value)}?")
    return _fields(sections[parents[0]] if parents else Config)


def _fields(section: Any) -> list[str]:
    return list(section._fields if section is Hyper else getattr(section, "model_fields", ()))
