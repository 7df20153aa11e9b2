"""Configuration: `Config` decides shapes, loops and branches (static); `Hyper` is numbers that may be traced.

Every default that the paper states is the paper's. `load` reads a YAML file and dotted overrides, and refuses
unknown keys, wrong types and impossible sizes with one line that names the cure.
"""

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import pydantic
import yaml
from pydantic import Field

_PACKAGE = Path(__file__).parent.parent
CONFIG_DIR = _PACKAGE / "configs"
if not CONFIG_DIR.is_dir():  # a checkout keeps them at the top level; the wheel carries them in the package
    CONFIG_DIR = _PACKAGE.parent / "configs"

NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[int, Field(gt=0)]


class ConfigError(ValueError):
    """A configuration that cannot be run. The message is one line that says what to change."""


class Hyper(NamedTuple):
    """Numbers that may be traced, hence swept by `vmap`. No Python branch may depend on them."""

    learning_rate: NonNegative = 3e-4  # decays linearly to 0 over training
    discount: Fraction = 0.995  # gamma; the sign of a two-player game comes from the environment
    lambda_: Fraction = 0.95  # Retrace's or V-trace's trace on real data
    target_rate: Fraction = 0.1  # alpha_target: share of the online network per update
    pg_weight: NonNegative = 3.0  # 0 turns the policy gradient off ("Muesli-MPO")
    cmpo_weight: NonNegative = 1.0  # policy distillation at k = 0
    model_policy_weight: NonNegative = 1.0  # policy distillation at k >= 1
    value_weight: NonNegative = 0.25  # value at k = 0
    model_value_weight: NonNegative = 0.25  # value at k >= 1
    reward_weight: NonNegative = 1.0
    sc_weight: NonNegative = 0.25
    cmpo_clip: NonNegative = 1.0  # c: advantages are clipped to [-c, c] before the exponential
    prior_behaviour: Fraction = 0.03  # share of the behaviour policy in the CMPO prior
    prior_uniform: Fraction = 0.003  # share of the uniform policy in the CMPO prior
    moment_decay: Annotated[float, Field(ge=0, lt=1)] = 0.99  # beta_var
    moment_epsilon: NonNegative = 1e-12  # epsilon_var
    epsilon: Fraction = 0.0  # share of uniform actions in imagination
    explore: Fraction = 0.0  # share of uniform actions in acting, which the returns correct for
    latent_noise: Fraction = 0.0  # x: root latents are multiplied by U(1 - x, 1 + x)


class Section(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True, protected_namespaces=())


class EnvOptions(Section):
    """Options that only some environments have; setting one that the environment lacks is refused."""

    sticky_actions: Fraction = 0.0  # MinAtar: probability that the previous action is repeated (0.1 in the original)
    max_steps: Positive | None = None  # time limit, as truncation; None keeps the environment's own
    size: Positive | None = None  # DeepSea: side of the square
    map_name: Literal["4x4", "8x8"] | None = None  # FrozenLake
    slippery: bool | None = None  # FrozenLake
    states: Positive | None = None  # garnet: |S|, 20 in the paper
    actions: Positive | None = None  # garnet: |A|, 4 in the paper
    mdp_seed: Annotated[int, Field(ge=0)] | None = None  # garnet: which random MDP
    pixels: bool = False  # Sokoban: a picture of 80x80 pixels instead of symbols
    komi: Annotated[float, Field(allow_inf_nan=False)] | None = None  # Go: White's points at the start, 7.5 in Pgx


class LevelsConfig(Section):
    """Sokoban: where the levels come from. Most of it is about those that are generated."""

    file: str | None = None  # levels from here: Boxoban text (.txt), or uint8 [n, 10, 10] (.npy)
    split: Literal["train", "test"] = "train"  # rooms are divided for good; `evaluate` plays "test"
    views: bool = False  # turn and mirror a level at random whenever an episode starts from it
    pool: Positive = 1_024  # levels in force at once
    refresh: Annotated[int, Field(ge=0)] = 64  # rooms in which new levels are searched, a few steps per acting phase
    refresh_steps: Positive = 16  # so many; a room is done after levels.positions / levels.refresh_steps phases
    depth: Annotated[int, Field(ge=12, le=1_000)] = 300  # actions of reverse play at most: the difficulty
    positions: Annotated[int, Field(ge=200)] = 4_000  # that a search looks at; a million in the paper
    dig_steps: Annotated[int, Field(ge=15)] = 30  # of the walk that digs a room
    turn: Annotated[float, Field(ge=0.05, le=1)] = 0.35  # probability that this walk turns, per step
    first_depth: Annotated[int, Field(ge=12)] | None = None  # curriculum: begin here, and go up to `depth`
    raise_at: Fraction = 0.8  # curriculum: when this share of episodes is solved
    raise_by: Positive = 4  # curriculum: reverse actions more

    @pydantic.model_validator(mode="after")
    def _check(self) -> "LevelsConfig":
        if self.refresh > self.pool:
            raise ValueError(f"levels.refresh={self.refresh} is more than levels.pool={self.pool}: lower it")
        if self.first_depth is not None and self.first_depth > self.depth:
            raise ValueError(f"levels.first_depth={self.first_depth} is above levels.depth={self.depth}: lower it")
        if self.file is not None and self.first_depth is not None:
            raise ValueError("levels.first_depth is for generated levels: leave it out, or levels.file")
        return self


class AtariConfig(Section):
    """Atari: the protocol of the paper, and the engine that plays it."""

    backend: Literal["envpool", "ale"] = "envpool"  # "ale" is ale-py's vector environment
    size: Annotated[int, Field(ge=8)] = 96  # side of a frame in pixels
    gray: bool = False
    stack: Positive = 1  # frames that the agent sees at once
    sticky: Annotated[float, Field(ge=0, lt=1)] = 0.25  # probability that a frame repeats the action of the one before
    full_actions: bool = True  # all 18 of the joystick; else those that the game uses
    repeat: Positive = 4  # frames per agent step
    max_over: Positive = 2  # last frames of a step whose maximum is seen. 4 in the paper; 2 is the engines' own
    max_frames: Positive = 108_000  # half an hour; then an episode is truncated
    threads: Positive | None = None  # of the engine; None for as many as there are cores or games, whichever is less

    @pydantic.model_validator(mode="after")
    def _check(self) -> "AtariConfig":
        if self.max_over not in (2, self.repeat) or self.max_over > self.repeat:
            choices = " or ".join(str(n) for n in sorted({min(2, self.repeat), self.repeat}))
            raise ValueError(
                f"atari.max_over={self.max_over} is not possible with atari.repeat={self.repeat}: set"
                f" atari.max_over={choices}"
            )
        if self.max_frames % self.repeat:
            whole = -(-self.max_frames // self.repeat) * self.repeat
            raise ValueError(
                f"atari.max_frames={self.max_frames} is no multiple of atari.repeat={self.repeat}: set"
                f" atari.max_frames={whole}"
            )
        return self


class NetworkConfig(Section):
    """`mlp` and `minatar`: feed-forward encoder, residual MLP model. `impala`: the paper's deep ResNet + LSTM
    encoder with an LSTM model. `resnet`: the same ResNet as a feed-forward encoder, residual MLP model. `muzero`:
    residual convolutions for the encoder and the model."""

    kind: Literal["mlp", "minatar", "impala", "resnet", "muzero"] = "mlp"
    width: Positive = 128  # latent and hidden width; the encoder's LSTM units for impala (512 in Muesli)
    depth: Positive = 1  # mlp: hidden layers before the latent
    channels: tuple[Positive, ...] = (16, 16)  # minatar: 3x3 layers; impala, resnet: sections; muzero: one number
    padding: Literal["SAME", "VALID"] = "VALID"  # minatar convolutions
    blocks: Positive = 6  # muzero: residual blocks in the encoder and again in the dynamics
    model_width: Positive = 1024  # impala: units of the model's LSTM
    model_blocks: Positive = 1  # mlp, minatar, resnet: residual blocks per model step
    head_width: Annotated[int, Field(ge=0)] = 128  # hidden layer of each head; 0 for linear heads
    pool: tuple[Positive, ...] | None = None  # impala, resnet: stride of each section's pooling; None is 2 everywhere
    patch: Positive = 1  # impala, resnet: squares of so many pixels a side become channels before all else
    remat: bool = False  # impala: one time step of frames at a time, recomputed in the backward pass; memory / T
    conv: Literal["auto", "matmul", "banded", "lax"] = "auto"  # form of the convolutions; auto picks the fastest


class TrainConfig(Section):
    env_steps: Positive = 1_000_000  # per seed
    num_envs: Positive = 32
    sequence_length: Positive = 30  # transitions per sequence
    batch_sequences: Positive = 60
    replay_share: Fraction = 52 / 60  # of a batch
    log_points: Positive = 100  # rows per seed in metrics.csv
    data_shards: Positive = 1  # devices that share one seed's environments, replay and batch


class ReplayConfig(Section):
    capacity: Positive = 100_000  # environment steps per seed
    carry: Literal["stored", "zero"] = "stored"  # N2: recurrent state at the start of a replayed sequence
    file: str | None = None  # Atari: the replay lies in this file, mapped into memory; None is main memory


class HostConfig(Section):
    """Environments on the host, such as Atari's. With threads, which have the other options, they act while the learner
    learns; with xla, acting and learning are one compiled program on one device, and take turns."""

    driver: Literal["threads", "xla"] = "threads"
    actors: Positive = 2  # threads, which share `train.num_envs` environments evenly
    queue: Positive = 2  # blocks of sequences, one per actor and iteration, that may wait for the learner
    actor_devices: Annotated[int, Field(ge=0)] = 0  # beside the train.data_shards that learn; 0: the first of those


class CheckpointConfig(Section):
    updates: Positive = 2_000  # a checkpoint at the first log point after so many updates, and at the end
    keep: Positive = 3  # the last few
    replay: bool = True  # False leaves the replay out: smaller, and a resumed run starts with an empty one


class ArenaConfig(Section):
    """Games of two players: the agent is judged at every log point. It draws its moves from its policy."""

    games: Annotated[int, Field(ge=0)] = 64  # against each opponent, by each seed; 0 for none
    earlier: Fraction = 0.1  # of the run, whose agent stays as an opponent; before that, the log point before gives one


class MuesliConfig(Section):
    """The grounded loss. Labels like L4 are those of the table of open questions in the README."""

    unroll: Positive = 5  # K
    returns: Literal["retrace", "vtrace"] = "retrace"
    expectation: Literal["sampled", "exact"] = "sampled"  # of q under the Retrace policy
    cmpo: Literal["sampled", "exact"] = "sampled"
    samples: Positive = 16  # actions per state for the sampled estimators
    bins: Annotated[int, Field(ge=3)] = 601
    bins_max: Annotated[float, Field(gt=0)] = 300.0  # the support is [-bins_max, bins_max] in transformed units
    value_transform: bool = True  # N8
    pg_scope: Literal["pg", "policy"] = "pg"  # L1: pg_weight multiplies the policy gradient alone, or all policy terms
    unroll_reduction: Literal["one_plus_mean", "sum", "mean"] = "one_plus_mean"  # L2
    value_target: Literal["corrected", "return", "state"] = "corrected"  # L4
    return_policy: Literal["prior", "online"] = "prior"  # L6
    actor: Literal["prior", "online"] = "prior"  # L7
    dynamics_gradient: Fraction = 0.5  # L9: gradient scale at the start of each model step
    clip_pg_ratio: bool = True  # L14
    pg_baseline: Literal["target", "online"] = "target"  # N3
    model_policy: Literal["cmpo", "distill"] = "cmpo"  # target at k >= 1; distill: the root policy, latents fixed
    adam_epsilon: Annotated[float, Field(gt=0)] = 1e-8
    update_clip: Annotated[float, Field(gt=0)] = 1.0  # after Adam's normalisation, before the learning rate


class ScConfig(Section):
    update: Literal["none", "residual", "direct", "reverse", "dyna", "model_only"] = "direct"
    unroll: Positive = 3  # K
    policy: Literal["pi", "epsilon", "avoid_first", "original"] = "pi"  # mu
    original_correction: bool = True  # policy original: V-trace weights for the replayed actions
    rollout_ratio: Annotated[float, Field(gt=0)] = 1.0  # imagined rollouts per state of the batch
    loss: Literal["cross_entropy", "squared"] = "cross_entropy"  # L12
    reduction: Literal["mean", "sum"] = "mean"  # L3
    include_last: bool = False  # L10: the term k = K
    include_root: bool = False  # the term k = 0, on the root value
    encoder_gradient: bool = True  # L11
    noise_on: Literal["none", "encoding", "model"] = "none"  # N7: what hyper.latent_noise multiplies


class Config(Section):
    """One experiment. Frozen and hashable."""

    env: str
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    env_options: EnvOptions = EnvOptions()
    levels: LevelsConfig = LevelsConfig()
    atari: AtariConfig = AtariConfig()
    network: NetworkConfig = NetworkConfig()
    train: TrainConfig = TrainConfig()
    replay: ReplayConfig = ReplayConfig()
    host: HostConfig = HostConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    arena: ArenaConfig = ArenaConfig()
    muesli: MuesliConfig = MuesliConfig()
    sc: ScConfig = ScConfig()
    hyper: Hyper = Hyper()

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

    def _refuse_host_settings(self) -> None:
        sections = {"atari": self.atari, "host": self.host}
        for section, values in sections.items():
            for name, field in type(values).model_fields.items():
                if getattr(values, name) != field.default:
                    raise ValueError(
                        f"{section}.{name}={getattr(values, name)} has no effect with env={self.env!r}: leave it out,"
                        " or choose a game such as atari/Pong"
                    )
        if self.replay.file is not None:
            raise ValueError(
                f"replay.file has no effect with env={self.env!r}, whose replay is on the device: leave it out"
            )

    def _refuse_what_needs_threads(self) -> None:
        set_ = {
            "atari.backend": (self.atari.backend, "envpool"),
            "atari.max_over": (self.atari.max_over, 2),
            "host.actor_devices": (self.host.actor_devices, 0),
            "train.data_shards": (self.train.data_shards, 1),
            "replay.file": (self.replay.file, None),
        }
        for name, (value, needed) in set_.items():
            if value != needed:
                raise ValueError(f"{name}={value} is not possible with host.driver=xla: set host.driver=threads")

    @pydantic.model_validator(mode="after")
    def _check_together(self) -> "Config":
        """What no field can know alone."""
        self._check_environment()
        self._check_batch()
        self._check_shards()
        self._check_unrolls()
        self._check_hyper()
        return self

    def _check_environment(self) -> None:
        if self.env.startswith("atari/"):
            if self.host.driver == "xla":
                self._refuse_what_needs_threads()
            elif self.train.num_envs % self.host.actors:
                raise ValueError(
                    f"train.num_envs={self.train.num_envs} cannot be shared by host.actors={self.host.actors}: set"
                    f" train.num_envs={-(-self.train.num_envs // self.host.actors) * self.host.actors}, or other actors"
                )
        else:
            self._refuse_host_settings()

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
        if self.replay_sequences and capacity < max(train.batch_sequences, train.num_envs):
            need = max(train.batch_sequences, train.num_envs) * train.sequence_length
            raise ValueError(
                f"replay.capacity={self.replay.capacity} holds {capacity} sequences of {train.sequence_length} steps,"
                f" less than a batch: set replay.capacity={need} or more"
            )

    def _check_shards(self) -> None:
        shards = self.train.data_shards
        for name, size in {"fresh": self.fresh_sequences, "replayed": self.replay_sequences}.items():
            if size % shards:
                raise ValueError(
                    f"train.data_shards={shards} cannot share the {size} {name} sequences of a batch: choose a divisor,"
                    " or change train.batch_sequences"
                )
        if self.levels.pool % shards:
            raise ValueError(
                f"train.data_shards={shards} cannot share a pool of {self.levels.pool} levels: set"
                f" levels.pool={-(-self.levels.pool // shards) * shards}"
            )

    def _check_unrolls(self) -> None:
        length = self.train.sequence_length
        if self.muesli.unroll > length:
            raise ValueError(
                f"muesli.unroll={self.muesli.unroll} is longer than train.sequence_length={length}:"
                f" lower the one or raise the other"
            )
        if self.sc.policy == "original" and self.sc.unroll > length:
            raise ValueError(
                f"sc.policy=original replays sc.unroll={self.sc.unroll} real actions, but train.sequence_length is"
                f" {length}: lower sc.unroll"
            )
        if self.sc.update != "none" and self.sc.unroll == 1 and not (self.sc.include_root or self.sc.include_last):
            raise ValueError("sc.unroll=1 leaves the SC loss without a term (it sums k = 1 .. K - 1): set sc.unroll=2")

    def _check_hyper(self) -> None:
        if self.hyper.latent_noise > 0 and self.sc.noise_on == "none":
            raise ValueError("hyper.latent_noise has no effect with sc.noise_on=none: set sc.noise_on=encoding")
        if self.hyper.epsilon > 0 and self.sc.policy != "epsilon":
            raise ValueError(f"hyper.epsilon has no effect with sc.policy={self.sc.policy}: set sc.policy=epsilon")
        if self.hyper.prior_behaviour + self.hyper.prior_uniform > 1:
            raise ValueError("hyper.prior_behaviour + hyper.prior_uniform is above 1: lower one of them")


class _Loader(yaml.SafeLoader):
    """YAML 1.1 reads `3e-4` as text; this reads it as the number that everybody means."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:[0-9][0-9_]*)(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)$"),
    list("-+0123456789"),
)


def find(name: str | os.PathLike[str]) -> Path:
    """The file of a configuration given by path or by the name of a shipped one. Raises ConfigError."""
    path = Path(name)
    if path.is_file():
        return path
    shipped = CONFIG_DIR / f"{name}.yaml"
    if shipped.is_file():
        return shipped
    names = sorted(p.stem for p in CONFIG_DIR.glob("*.yaml"))
    close = difflib.get_close_matches(path.stem, names, n=3, cutoff=0.4) or names
    raise ConfigError(f"no configuration {str(name)!r}: give a path, or a shipped name such as {', '.join(close)}")


def read(text: str) -> Any:
    """Parse YAML text. Raises ConfigError."""
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506  (a SafeLoader with one more number format)
    except yaml.YAMLError as error:
        raise ConfigError(f"not valid YAML: {' '.join(str(error).split())}") from None


def load(name: str | os.PathLike[str], overrides: Iterable[str] = ()) -> Config:
    """The configuration in a YAML file, with `dotted.key=value` overrides. Raises ConfigError."""
    path = find(name)
    try:
        tree = read(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from None
    if not isinstance(tree, dict):
        raise ConfigError(f"{path} holds no mapping: start it with a line such as 'env: gymnax/Catch-bsuite'")
    for item in overrides:
        _override(tree, item)
    return from_tree(tree)


def override(config: Config, items: Iterable[str]) -> Config:
    """The configuration with `dotted.key=value` overrides. Raises ConfigError."""
    tree = to_tree(config)
    for item in items:
        _override(tree, item)
    return from_tree(tree)


def from_tree(tree: Mapping[str, Any]) -> Config:
    """Validate nested plain values. Raises ConfigError with one line for the first fault."""
    try:
        return Config.model_validate(_with_tuples(tree))
    except pydantic.ValidationError as error:
        raise ConfigError(_explain(error.errors()[0])) from None


def to_tree(config: Config) -> dict[str, Any]:
    """Plain nested values of the whole configuration, for YAML and JSON; `from_tree` reads them back."""
    tree = config.model_dump(mode="json")
    tree["hyper"] = dict(config.hyper._asdict())
    return tree


def to_yaml(config: Config) -> str:
    return yaml.safe_dump(to_tree(config), sort_keys=False)


def _override(tree: dict[str, Any], item: str) -> None:
    key, equals, text = item.partition("=")
    if not equals or not key:
        raise ConfigError(f"{item!r} is not of the form key=value, as in hyper.sc_weight=0.5")
    *parents, leaf = key.split(".")
    for parent in parents:
        if tree.get(parent) is None:
            tree[parent] = {}
        tree = tree[parent]
        if not isinstance(tree, dict):
            raise ConfigError(f"{parent!r} in {item!r} is not a section")
    tree[leaf] = read(text)


def _with_tuples(tree: Any) -> Any:
    if isinstance(tree, Mapping):
        return {key: _with_tuples(value) for key, value in tree.items()}
    return tuple(_with_tuples(value) for value in tree) if isinstance(tree, list) else tree


def _explain(error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"])
    if error["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        *parents, leaf = (str(part) for part in error["loc"])
        known = _keys(parents)
        close = difflib.get_close_matches(leaf, known, n=1, cutoff=0.5)
        advice = f"did you mean {'.'.join([*parents, close[0]])!r}?" if close else f"known: {', '.join(known)}"
        return f"unknown key {where!r}: {advice}"
    if error["type"] == "missing":
        return f"{where!r} is missing: add it, for example 'env: gymnax/Catch-bsuite'"
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    return f"{where}={error['input']!r}: {error['msg'][0].lower()}{error['msg'][1:]}"


def _keys(parents: list[str]) -> list[str]:
    section: Any = Config
    for parent in parents:
        section = section.model_fields[parent].annotation
    return list(section._fields if section is Hyper else section.model_fields)
