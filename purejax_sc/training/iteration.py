"""One iteration of training, but for acting: what the drivers share."""

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from purejax_sc.acting.policy import act
from purejax_sc.agent import muesli
from purejax_sc.config import Config, ConfigError, Hyper
from purejax_sc.envs import base
from purejax_sc.training import replay
from purejax_sc.types import (
    Array,
    Env,
    Key,
    LearnerState,
    Model,
    Sequence,
    Tree,
)


class TrainState(NamedTuple):
    """Everything that a run carries from one iteration to the next.

    driver: base.DriverState; with environments on the host, the returns of the last episodes.
    carry: the actor's recurrent state [num_envs, ...]. replay: replay.ReplayState, or () when the batch is all fresh.
    earlier: Params that acted earlier in the run, an opponent to be judged against; () where nobody is judged.
    """

    learner: LearnerState
    driver: Any
    carry: Tree
    replay: Any
    earlier: Any
    key: Key


def learn(
    config: Config,
    learner: muesli.Learner,
    state: LearnerState,
    rows: Sequence,
    ring: Any,
    key: Key,
    hyper: Hyper,
    as_batch: Callable[[Sequence], Sequence],
) -> tuple[LearnerState, dict[str, Array]]:
    """Update on every block of fresh rows, each joined by its share of replay; metrics are means over updates.

    rows: batch-major. ring: a ReplayState of such rows. as_batch: what makes of rows a batch for the learner.
    """

    def update(state: LearnerState, x: tuple[Sequence, Key]) -> tuple[LearnerState, dict[str, Array]]:
        fresh, key = x
        key_sample, key_update = jax.random.split(key)
        if config.replay_sequences:
            old = replay.sample(ring, key_sample, config.replay_sequences)
            if config.replay.carry == "zero":  # N2
                old = old._replace(carry=jax.tree.map(jnp.zeros_like, old.carry))
            fresh = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), fresh, old)
        return learner.update(state, as_batch(fresh), key_update, hyper)

    num = config.updates_per_iteration
    blocks = jax.tree.map(lambda x: jnp.reshape(x, (num, -1, *x.shape[1:])), rows)
    xs = (blocks, jax.random.split(key, num))
    if num == 1:  # no loop around a single update: convolutions are slower inside one
        return update(state, jax.tree.map(lambda x: x[0], xs))
    state, metrics = jax.lax.scan(update, state, xs)
    return state, jax.tree.map(jnp.mean, metrics)


def as_arrays(hyper: Hyper) -> Hyper:
    """float32 arrays, so that a number given by config and the same number traced take the same path."""
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), hyper)


def sequence_shapes(config: Config, env: Env, model: Model) -> Sequence:
    """Shapes and dtypes of one stored row: a sequence without its batch axis."""

    def make(key: Key) -> Sequence:
        key_params, key_env, key_act = jax.random.split(key, 3)
        driver, carry = base.init(env, key_env, 1), model.initial_carry(1)
        return swap_time(act(env, model, model.init(key_params), driver, carry, key_act, config.hyper, config)[2])

    shapes = jax.eval_shape(make, jax.random.key(0))
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), shapes)


def swap_time(sequence: Sequence) -> Sequence:
    """[T, B, ...] <-> [B, T, ...]; the carry has no time axis."""
    swapped = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), sequence._replace(carry=()))
    return swapped._replace(carry=sequence.carry)


def replay_bytes(config: Config, env: Env, model: Model) -> int:
    """Memory of the replay of one seed."""
    if not config.replay_sequences:
        return 0
    return replay.num_bytes(sequence_shapes(config, env, model), config.replay_capacity_sequences)


def check_memory(config: Config, env: Env, model: Model, num_seeds: int) -> None:
    stats = jax.local_devices()[0].memory_stats() or {}
    memory = stats.get("bytes_limit", os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    need = num_seeds * replay_bytes(config, env, model)
    check_replay_fits(config, need, memory, "the device", num_seeds)


def check_replay_fits(config: Config, need: int, memory: int, owner: str, num_seeds: int = 1) -> None:
    """Raise ConfigError if replays that need so many bytes do not fit in the `memory` of their owner."""
    if need > memory:
        fits = int(config.replay.capacity * memory / need / 2)
        raise ConfigError(
            f"replay.capacity={config.replay.capacity} takes {need / 2**30:.1f} GiB for {num_seeds} seed(s), {owner}"
            f" has {memory / 2**30:.1f} GiB: set replay.capacity={fits} or less"
        )
