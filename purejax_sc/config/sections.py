"""Sections of a configuration: every key with its type, default, meaning and what it needs to have an effect.

A meaning is the docstring below a field. `Needs` beside a type names the other settings without which the field, or a
whole section, has no effect. The sections of network kinds stand beside their code, in `networks`.
"""

import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import pydantic
from pydantic import Field, GetPydanticSchema, WithJsonSchema
from pydantic_core import core_schema

from purejax_sc.config.errors import ConfigError, advice, printable, quote
from purejax_sc.types import Gates

MOST = 2**31 - 1  # of what a program counts: its integers have 32 bits

NonNegative = Annotated[float, Field(ge=0, le=3e38, allow_inf_nan=False)]  # programs compute with 32 bits
Fraction = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Positive = Annotated[int, Field(gt=0, le=MOST)]
Natural = Annotated[int, Field(ge=0, le=MOST)]
Repeats = Annotated[int, Field(gt=0, le=1_000)]  # of a piece of the program, written out so many times


class Section(pydantic.BaseModel):
    """Settings of one owner: frozen, hashable, and strict about keys and types."""

    model_config = pydantic.ConfigDict(
        extra="forbid", frozen=True, strict=True, protected_namespaces=(), use_attribute_docstrings=True
    )

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Yield the fields that differ from their defaults."""
        fields = type(self).model_fields
        for name, value in super().__repr_args__():
            if name is None or value != fields[name].get_default(call_default_factory=True):
                yield name, value


class Needs(NamedTuple):
    """Settings of which one must be on for a field to have an effect: not 0, false, null or none; `KEY=null`: null."""

    keys: tuple[str, ...]


def resolve(reference: str, like: Any = None) -> Any:
    """Return the object that `module:name` refers to, of the type of `like`. Raises ConfigError."""
    name, _, attribute = reference.partition(":")
    if str(Path.cwd()) not in sys.path:  # a console script does not look there by itself
        sys.path.append(str(Path.cwd()))
    try:
        found = getattr(import_module(name), attribute)
    except Exception as error:  # of the user's own code, too
        reason = printable(f"{type(error).__name__}: {error}")
        line = f"{quote(reference)} cannot be imported ({reason}): mend or install it"
        plain = ImportError | AttributeError | SyntaxError | ValueError  # which the reason tells whole
        raise ConfigError(line) from (None if isinstance(error, plain) else error)
    form = type(like)
    if like is not None and not isinstance(found, form):
        raise ConfigError(
            f"{quote(reference)} is a {type(found).__name__}: let it be a {form.__module__}.{form.__name__}"
        )
    return found


def row(table: str, name: str) -> Any:
    """Row `name` of the table that `table` refers to, or what `module:name` refers to. Raises ConfigError, KeyError."""
    rows = resolve(table)
    return resolve(name, like=next(iter(rows.values()))) if ":" in name else rows[name]


def names_row(key: str, table: str, *others: str) -> GetPydanticSchema:
    """The field `key`, which names a row of a table, an object as `module:name`, or one of `others`."""

    def check(name: str) -> str:
        if name not in others:
            try:
                row(table, name)
            except KeyError:
                cure = advice(name, [*others, *resolve(table), "module:name"])
                raise ConfigError(f"{key}={quote(name)}: {cure}") from None
        return name

    return GetPydanticSchema(
        lambda source, handler: core_schema.no_info_after_validator_function(check, handler(source)),
        lambda schema, handler: {"enum": [*others, *resolve(table), "module:name"]},
    )


UPDATES = "purejax_sc.agent.consistency:UPDATES"
ROLLOUT_POLICIES = "purejax_sc.agent.consistency:ROLLOUT_POLICIES"

_AS_GATES = GetPydanticSchema(  # three numbers are read as Gates
    lambda source, handler: core_schema.no_info_after_validator_function(
        Gates._make, handler(tuple[Fraction, Fraction, Fraction])
    )
)


class Hyper(NamedTuple):
    """Numbers that may be traced, hence swept by `vmap`. No Python branch may depend on them."""

    learning_rate: NonNegative = 2e-3
    """Learning rate of Adam; decays linearly to 0 over training."""
    discount: Fraction = 0.99
    """gamma; the sign of a two-player game comes from the environment."""
    lambda_: Fraction = 0.95
    """L5: Retrace's or V-trace's trace on real data."""
    target_rate: Fraction = 0.05
    """alpha_target: share of the online network that the target network takes over per update."""
    pg_weight: NonNegative = 3.0
    """Weight of the policy gradient; 0 turns it off ("Muesli-MPO")."""
    cmpo_weight: NonNegative = 1.0
    """Weight of the policy's distillation to CMPO at k = 0."""
    model_policy_weight: NonNegative = 1.0
    """Weight of the policy's distillation after k >= 1 model steps."""
    value_weight: NonNegative = 0.25
    """Weight of the value loss at k = 0."""
    model_value_weight: NonNegative = 0.25
    """Weight of the value loss after k >= 1 model steps."""
    reward_weight: NonNegative = 1.0
    """Weight of the model's reward loss."""
    aux_weight: Annotated[NonNegative, Needs(("muesli.reconstruct_planes", "muesli.predict_legal"))] = 0.2
    """Weight of the losses by which the model reconstructs the observation and predicts the legal actions."""
    sc_weight: Annotated[NonNegative, Needs(("sc.update",))] = 0.25
    """Weight of the self-consistency loss."""
    cmpo_clip: NonNegative = 1.0
    """c: advantages are clipped to [-c, c] before CMPO's exponential."""
    cmpo_temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """Divides the advantages before the clip: the lower, the further CMPO moves the policy."""
    prior_behaviour: Fraction = 0.03
    """Share of the behaviour policy in the CMPO prior."""
    prior_uniform: Fraction = 0.03
    """Share of the uniform policy in the CMPO prior."""
    moment_decay: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = 0.99
    """beta_var: decay of the moving second moment of advantages, sigma^2."""
    rollout_epsilon: Annotated[Fraction, Needs(("sc.update",))] = 0.0
    """Share of uniform actions in imagination, with sc.rollout_policy=epsilon."""
    acting_epsilon: Fraction = 0.0
    """Share of uniform actions in acting, which the returns correct for."""
    latent_noise: Annotated[Fraction, Needs(("sc.update",))] = 0.0
    """x: what sc.noise_on names is multiplied by U(1 - x, 1 + x)."""
    gates: Annotated[Annotated[Gates, _AS_GATES] | None, Needs(("sc.update",))] = None
    """Gates of the SC update (target, value, model); null for those of sc.update, known when it is compiled."""

    def __repr__(self) -> str:
        default = Hyper._field_defaults
        changed = {k: x for k, x in self._asdict().items() if not (isinstance(x, float) and x == default[k])}
        return f"Hyper({', '.join(f'{k}={x!r}' for k, x in changed.items() if x is not None)})"


class MuesliConfig(Section):
    """The grounded loss. Labels such as L5 refer to the readings chosen in docs/algorithm.md."""

    unroll: Repeats = 5
    """K: steps of the model along the real actions."""
    returns: Literal["retrace", "vtrace"] = "retrace"
    """Off-policy correction of returns."""
    num_action_samples: Natural = 0
    """Actions per state from which CMPO and Retrace's expected q are estimated; 0: exact sums over all actions."""
    bins: Annotated[int, Field(ge=3, le=100_000)] = 101
    """Atoms of the distributions of value and reward."""
    value_max: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 300.0
    """The bins lie between -value_max and value_max, in transformed units."""
    spacing: Literal["symexp", "even"] = "symexp"
    """N8: symexp spaces them by a share of the number, for returns of any scale; even as the paper does."""
    model_policy: Literal["cmpo", "distill"] = "cmpo"
    """Policy target at k >= 1: CMPO, or with distill the root policy there, latents fixed."""
    reconstruct_planes: Annotated[int, Field(ge=0, le=MOST)] = 0
    """N10: first planes of the input that the model reconstructs, empty beyond the end; 0 as in the papers."""
    terminal_value: Literal["zero", "outcome"] = "zero"
    """N11: how episodes end in the model: by a reward and then nothing, or, with outcome, by a value that stays."""
    predict_legal: bool = False
    """N12: predict from states of the model which actions are legal; search and imagination keep to those."""

    @property
    def atoms(self) -> Any:
        """The atoms [bins] of rewards and values, see `agent.transforms.make_atoms`."""
        return resolve("purejax_sc.agent.transforms:make_atoms")(self.spacing, self.bins, self.value_max)


class ScConfig(Section):
    """Self-consistency. With update=none the rest has no effect: it is that of the updates it is compared with."""

    update: Annotated[str, names_row("sc.update", UPDATES, "none")] = "none"
    """Gradient flow of self-consistency; none is the Muesli baseline."""
    unroll: Annotated[Repeats, Needs(("sc.update",))] = 3
    """K: imagined steps."""
    rollout_policy: Annotated[str, names_row("sc.rollout_policy", ROLLOUT_POLICIES), Needs(("sc.update",))] = "pi"
    """mu: pi; epsilon: pi mixed with uniform; avoid_first: never the first real action; original: the real actions."""
    rollout_ratio: Annotated[float, Field(gt=0, le=MOST), Needs(("sc.update",))] = 1.0
    """Imagined rollouts per state of the batch."""
    loss: Annotated[Literal["cross_entropy", "distributional"], Needs(("sc.update",))] = "cross_entropy"
    """L12: how a value is compared with its target."""
    include_last: Annotated[bool, Needs(("sc.update",))] = False
    """L10: the term k = K."""
    noise_on: Annotated[Literal["none", "encoding"], Needs(("sc.update",))] = "none"
    """N7: what hyper.latent_noise multiplies."""

    @property
    def gates(self) -> Gates:
        """Gates of the update. Raises ConfigError for update=none, which has none."""
        gates: Gates = row(UPDATES, self.update)
        return gates

    @property
    def policy(self) -> Any:
        """The `agent.consistency.RolloutPolicy` of the imagination policy."""
        return row(ROLLOUT_POLICIES, self.rollout_policy)


class EnvFamily(NamedTuple):
    """Environments of one adapter. sections: only theirs.   host: run there.   rules: actions may be illegal."""

    module: str
    sections: tuple[str, ...] = ()
    host: bool = False
    rules: bool = False


# The first part of an environment's name -> its family.
FAMILIES = {
    "gymnax": EnvFamily("purejax_sc.envs.gymnax"),
    "garnet": EnvFamily("purejax_sc.envs.garnet", sections=("env_options",)),
    "jumanji": EnvFamily("purejax_sc.envs.sokoban", sections=("levels",)),
    "pgx": EnvFamily("purejax_sc.envs.pgx", sections=("selfplay_eval",), rules=True),
    "atari": EnvFamily("purejax_sc.envs.atari", sections=("atari", "host"), host=True),
}


def family_of(env: str) -> EnvFamily | None:
    """The family of an environment by its whole name; None for one of the user's own, and for unknown ones."""
    return FAMILIES.get(env.partition("/")[0])


class EnvOptions(Section):
    """Options of single environments."""

    mdp_seed: Natural = 0
    """garnet: which random MDP."""


class LevelsConfig(Section):
    """Sokoban: where the levels come from. Most of it is about those that are generated."""

    file: str | None = None
    """Levels from this file: Boxoban text (.txt), or uint8 [n, 10, 10] (.npy); null generates them."""
    split: Literal["train", "test"] = "train"
    """Rooms are divided for good; evaluate plays test."""
    augment: bool = False
    """Rotate and mirror a level at random whenever an episode starts from it."""
    pool: Positive = 1_024
    """Levels in use at once."""
    refresh: Natural = 64
    """Rooms in which new levels are searched, a few steps per acting phase."""
    refresh_steps: Annotated[Positive, Needs(("levels.file=null",)), Needs(("levels.refresh",))] = 16
    """Steps of each search per acting phase; a room is done after levels.positions / levels.refresh_steps phases."""
    depth: Annotated[int, Field(ge=12, le=1_000), Needs(("levels.file=null",))] = 300
    """Actions of reverse play at most: the difficulty."""
    positions: Annotated[int, Field(ge=200, le=2**28), Needs(("levels.file=null",))] = 4_000
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


Steps = Annotated[int, Field(gt=0, lt=2**63)]  # of the environment


class TrainConfig(Section):
    """Sizes of a run and of its batches."""

    env_steps: Steps = 200_000
    """Environment steps of each seed."""
    num_envs: Positive = 8
    """Environments that act side by side, for each seed."""
    sequence_length: Positive = 16
    """Transitions per sequence."""
    batch_sequences: Positive = 16
    """Sequences in a batch."""
    replay_share: Fraction = 0.5
    """Share of a batch that is replayed; the rest is fresh."""
    log_points: Positive = 100
    """Rows per seed in metrics.csv, beside an early one."""
    data_shards: Positive = 1
    """Devices that share one seed's environments, replay and batch."""


class ReplayConfig(Section):
    """The replay of each seed."""

    capacity: Annotated[Steps, Needs(("train.replay_share",))] = 100_000
    """Steps that it holds, for each seed."""


class HostConfig(Section):
    """Environments on the host, such as Atari's: threads act in them while the learner learns."""

    actors: Annotated[int, Field(gt=0, le=1_024)] = 2
    """Threads, which share train.num_envs environments evenly."""


class CheckpointConfig(Section):
    """Checkpoints: how often, and what they hold."""

    updates: Positive = 2_000
    """A checkpoint at the first log point after so many updates, and at the end."""
    keep: Positive = 3
    """The last few checkpoints stay."""
    replay: Annotated[bool, Needs(("train.replay_share",))] = True
    """Keep the replay, too; without it they are smaller, and a resumed run starts with an empty one."""


class SelfplayEvalConfig(Section):
    """Games of two players: the agent is judged at every log point. It draws its moves from its policy."""

    games: Natural = 64
    """Against each opponent, by each seed, at every log point; 0 for none."""


# Kind -> what it is: a `networks.parts.Kind`, its options and how they make a network.
KINDS = {
    "mlp": "purejax_sc.networks.mlp:MLP",
    "cnn": "purejax_sc.networks.cnn:CNN",
    "impala": "purejax_sc.networks.impala:IMPALA",
    "resnet": "purejax_sc.networks.resnet:RESNET",
    "muzero": "purejax_sc.networks.muzero:MUZERO",
}

DEFAULT_KIND = "mlp"

Precision = Literal["float32", "bfloat16"]


class NetworkConfig(Section):
    """Options of every kind of network. Those of a kind extend it."""

    kind: Annotated[str, WithJsonSchema({"enum": [*KINDS, "module:name"]})]
    """The kind of network, or module:name of a kind of your own."""
    head_width: Natural = 0
    """Hidden layer of each head; 0 for linear heads."""
    input_planes: tuple[Natural, ...] | None = None
    """Planes of the observation, which are its last axis, that the network reads, in this order; null for all."""
    crop: Natural = 0
    """Rows and columns at each edge of an image that the network does not read."""
    precision: Precision = "float32"
    """flax's dtype of layers; parameters, latents and the last layers are float32."""


def kind_of(name: Any) -> Any:
    """The `networks.parts.Kind` of this name. Raises ConfigError for an unknown one."""
    if isinstance(name, str) and ":" in name:
        return resolve(name, like=kind_of(DEFAULT_KIND))
    if not isinstance(name, str) or name not in KINDS:
        raise ConfigError(f"network.kind={quote(name)}: choose {', '.join(KINDS)}, or module:name of one of your own")
    return resolve(KINDS[name])


def read_network(value: Any) -> Any:
    """The options of a kind from a mapping; anything else as it is, for the validation that follows."""
    if not isinstance(value, dict):
        return value
    kind = value.get("kind", DEFAULT_KIND)
    return kind_of(kind).options.model_validate({**value, "kind": kind})
