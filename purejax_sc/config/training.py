"""Settings of training: batches, replay, drivers, checkpoints, and games against opponents."""

from typing import Annotated

from pydantic import Field

from purejax_sc.config.base import Fraction, Natural, Positive, Section, Threads

Steps = Annotated[int, Field(gt=0, lt=2**63)]  # of the environment


class TrainConfig(Section):
    """Sizes of a run and of its batches."""

    env_steps: Steps = 1_000_000
    """Environment steps of each seed."""
    num_envs: Positive = 32
    """Environments that act side by side, for each seed."""
    sequence_length: Positive = 30
    """Transitions per sequence."""
    batch_sequences: Positive = 60
    """Sequences in a batch."""
    replay_share: Fraction = 52 / 60
    """Share of a batch that is replayed; the rest is fresh."""
    log_points: Positive = 100
    """Rows per seed in metrics.csv, beside an early one."""
    data_shards: Positive = 1
    """Devices that share one seed's environments, replay and batch."""


class ReplayConfig(Section):
    """The replay of each seed."""

    capacity: Steps = 100_000
    """Steps that it holds, for each seed."""
    file: str | None = None
    """Atari: the replay lies in this file, mapped into memory; null is main memory."""


class HostConfig(Section):
    """Environments on the host, such as Atari's: threads act in them while the learner learns."""

    actors: Threads = 2
    """Threads, which share train.num_envs environments evenly."""
    actor_devices: Natural = 0
    """Devices for acting beside the train.data_shards that learn; 0: the first of those."""


class CheckpointConfig(Section):
    """How often a run is kept, and how much of it."""

    updates: Positive = 2_000
    """A checkpoint at the first log point after so many updates, and at the end."""
    keep: Positive = 3
    """The last few checkpoints stay."""
    replay: bool = True
    """Keep the replay, too; without it they are smaller, and a resumed run starts with an empty one."""


class ArenaConfig(Section):
    """Games of two players: the agent is judged at every log point. It draws its moves from its policy."""

    games: Natural = 64
    """Against each opponent, by each seed, at every log point; 0 for none."""
