"""Settings of training: batches, replay, drivers, checkpoints, and games against opponents."""

from typing import Annotated, Literal

from pydantic import Field

from purejax_sc.config.base import Fraction, Natural, Positive, Section, Threads

Steps = Annotated[int, Field(gt=0, lt=2**63)]  # of the environment


class TrainConfig(Section):
    env_steps: Steps = 1_000_000  # per seed
    num_envs: Positive = 32
    sequence_length: Positive = 30  # transitions per sequence
    batch_sequences: Positive = 60
    replay_share: Fraction = 52 / 60  # of a batch
    log_points: Positive = 100  # rows per seed in metrics.csv, beside an early one
    data_shards: Positive = 1  # devices that share one seed's environments, replay and batch


class ReplayConfig(Section):
    capacity: Steps = 100_000  # per seed
    carry: Literal["stored", "zero"] = "stored"  # N2: recurrent state at the start of a replayed sequence
    file: str | None = None  # Atari: the replay lies in this file, mapped into memory; None is main memory


class HostConfig(Section):
    """Environments on the host, such as Atari's. With threads, which have the other options, they act while the learner
    learns; with xla, acting and learning are one compiled program on one device, and take turns."""

    driver: Literal["threads", "xla"] = "threads"
    actors: Threads = 2  # threads, which share `train.num_envs` environments evenly
    queue: Positive = 2  # blocks of sequences, one per actor and iteration, that may wait for the learner
    actor_devices: Natural = 0  # beside the train.data_shards that learn; 0: the first of those


class CheckpointConfig(Section):
    updates: Positive = 2_000  # a checkpoint at the first log point after so many updates, and at the end
    keep: Positive = 3  # the last few
    replay: bool = True  # False leaves the replay out: smaller, and a resumed run starts with an empty one


class MetricsConfig(Section):
    """What is logged beside the losses."""

    gradients: bool = (
        False  # norms and cosines of the gradients by loss term: an update then takes several times as long
    )


class ArenaConfig(Section):
    """Games of two players: the agent is judged at every log point. It draws its moves from its policy."""

    games: Natural = 64  # against each opponent, by each seed; 0 for none
    earlier: Fraction = 0.1  # of the run, whose agent stays as an opponent; before that, the log point before gives one
