"""Whether a run fits in memory, by arithmetic on shapes: nothing is compiled and nothing is allocated."""

from typing import Any

import jax

from purejax_sc.agent.muesli import Learner
from purejax_sc.config import Config
from purejax_sc.memory import refuse_beyond
from purejax_sc.training import replay
from purejax_sc.training.compiled import tree_bytes
from purejax_sc.types import Sequence

FLOAT = 4  # bytes


def check_fits(config: Config, learner: Learner, row: Sequence, memory: int, owner: str, num_seeds: int = 1) -> None:
    """Raise ConfigError, which names a setting, if one part of a run alone needs more than the `memory` of its owner.

    row: shapes of one stored sequence. num_seeds: whose parameters the memory holds; batches may come one by one.
    """
    train, bins = config.train, _numbers(config, "muesli.bins")
    batch = _numbers(config, "train.batch_sequences", "train.sequence_length", "train.num_envs")
    frame = _numbers(config, "atari.size", "atari.stack")
    states = train.sequence_length * train.batch_sequences
    imagined = states * config.sc.rollout_ratio * config.sc.unroll if config.sc.update != "none" else 0
    state = tree_bytes(jax.eval_shape(learner.init, jax.random.key(0)))
    one = replay.num_bytes(row, 1)
    parts: list[tuple[str, float, dict[str, float]]] = [
        ("the parameters, with what Adam keeps of them,", num_seeds * state, _network_numbers(config) | bins | frame),
        ("the sequences of an acting phase", num_seeds * train.num_envs * one, batch | frame),
        ("the sequences of a batch", train.batch_sequences * one, batch | frame),
        ("the values of an update", states * (config.muesli.unroll + 1) * bins["muesli.bins"] * FLOAT, batch | bins),
        (
            "the actions that are sampled",
            states * config.muesli.num_action_samples * FLOAT,
            _numbers(config, "muesli.num_action_samples"),
        ),
        ("the imagined values", imagined * bins["muesli.bins"] * FLOAT, bins | _numbers(config, "sc.rollout_ratio")),
        ("the games of the arena", config.arena.games * one / train.sequence_length, _numbers(config, "arena.games")),
    ]
    for what, num_bytes, settings in parts:
        refuse_beyond(memory, owner, what, num_bytes, settings)


def _numbers(config: Config, *names: str) -> dict[str, float]:
    """Settings by their dotted names; those that are None do not count."""
    values = {name: getattr(getattr(config, name.split(".")[0]), name.split(".")[1]) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def _network_numbers(config: Config) -> dict[str, float]:
    """The sizes of a network; of a list the largest."""

    def largest(value: Any) -> Any:
        return max(value, key=largest, default=None) if isinstance(value, tuple) else value

    sizes = {f"network.{name}": largest(value) for name, value in config.network}
    return {name: value for name, value in sizes.items() if isinstance(value, int) and not isinstance(value, bool)}
