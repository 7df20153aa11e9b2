"""State of training, and the learning half of an iteration, shared by the drivers `anakin` and `sebulba`."""

from typing import Any, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from purejax_sc import memory
from purejax_sc.agent import muesli
from purejax_sc.config import Config, ConfigError, Hyper
from purejax_sc.envs import is_host
from purejax_sc.training import replay
from purejax_sc.types import PRNG, Array, Key, LearnerState, Params, Sequence, Tree

LAST_EPISODES = 200  # whose mean return is the paper's score
FLOAT = 4  # bytes
Nothing = tuple[()]  # in place of what a run does not have
Driver = TypeVar("Driver")
Ring = TypeVar("Ring")


class TrainState(NamedTuple, Generic[Driver, Ring]):
    """State that a run carries from one iteration to the next.

    driver: envs.base.DriverState; on the host, the returns [LAST_EPISODES] of the last episodes.
    carry: the actor's recurrent state [num_envs, ...].   replay: ReplayState or RingState, () if batches are all fresh.
    earlier: Params that acted earlier, an opponent in evaluation games, or ().
    """

    learner: LearnerState
    driver: Driver
    carry: Tree
    replay: Ring
    earlier: Params | Nothing
    key: Key


AnyState = TrainState[Any, Any]  # of whichever driver


def learn(
    config: Config,
    learner: muesli.Learner,
    state: LearnerState,
    rows: Sequence,
    ring: Any,
    key: Key,
    hyper: Hyper,
) -> tuple[LearnerState, dict[str, Array]]:
    """Update on blocks of fresh rows (batch-major) and their share of replay; metrics are means over updates."""

    def update(state: LearnerState, x: tuple[Sequence, Key]) -> tuple[LearnerState, dict[str, Array]]:
        fresh, key = x
        key_sample, key_update = jax.random.split(key)
        if config.replay_sequences:
            fresh = join(fresh, replay.sample(ring, key_sample, config.replay_sequences), jnp)
        return learner.update(state, swap_time(fresh), key_update, hyper)

    num = config.updates_per_iteration
    blocks = jax.tree.map(lambda x: jnp.reshape(x, (num, -1, *x.shape[1:])), rows)
    xs = (blocks, jax.random.split(key, num))
    if num == 1:  # no loop around a single update: convolutions are slower inside one
        return update(state, jax.tree.map(lambda x: x[0], xs))
    state, metrics = jax.lax.scan(update, state, xs)
    return state, jax.tree.map(jnp.mean, metrics)


def join(fresh: Sequence, old: Sequence, xp: Any) -> Sequence:
    """Concatenate fresh and replayed rows, which start from the state stored with them (N2). xp: NumPy or jax.numpy."""
    joined: Sequence = jax.tree.map(lambda a, b: xp.concatenate([a, b]), fresh, old)
    return joined


def as_arrays(hyper: Hyper) -> Hyper:
    """Convert to float32 arrays, as which traced numbers come."""
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), hyper)


def swap_time(sequence: Sequence) -> Sequence:
    """Swap [T, B, ...] and [B, T, ...]; the carry has no time axis."""
    swapped = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), sequence._replace(carry=()))
    return swapped._replace(carry=sequence.carry)


def check_seeds(config: Config, seeds: list[int]) -> None:
    """Raise ConfigError for several seeds of an environment on the host, and for those that are no int32."""
    if max(seeds) >= 2**31:
        raise ConfigError(f"seed={config.seed} leaves no room for {len(seeds)} seeds below 2**31: lower seed")
    if len(seeds) > 1 and is_host(config):
        raise ConfigError(
            f"--seeds {len(seeds)}: {config.env} runs on the host, one seed at a time: give each its seed=N and --out"
        )


def check_fits(config: Config, learner: muesli.Learner, row: Sequence, free: int, num_seeds: int = 1) -> None:
    """Raise ConfigError if one part of a run alone needs more bytes than a device has free, before it is compiled.

    row: shapes of one stored sequence.   num_seeds: how many parameters the device holds; batches may come one by one.
    """
    train, bins, one = config.train, config.muesli.bins, tree_bytes(row)
    states = train.sequence_length * train.batch_sequences
    imagined = states * config.sc.rollout_ratio * config.sc.unroll if config.sc.update != "none" else 0
    needs = {
        "network.* or muesli.bins": num_seeds * tree_bytes(jax.eval_shape(learner.init, jax.random.key(0, impl=PRNG))),
        "train.num_envs or train.sequence_length": num_seeds * train.num_envs * one,
        "train.batch_sequences or train.sequence_length": train.batch_sequences * one,
        "train.batch_sequences or muesli.bins": states * (config.muesli.unroll + 1) * bins * FLOAT,
        "muesli.num_action_samples": states * config.muesli.num_action_samples * FLOAT,
        "sc.rollout_ratio or muesli.bins": imagined * bins * FLOAT,
        "selfplay_eval.games": config.selfplay_eval.games * one / train.sequence_length,
    }
    for settings, need in needs.items():
        memory.check(int(need), free, "the device", settings)


def tree_bytes(tree: Tree) -> int:
    """Return the bytes of all arrays, or shapes, of a tree."""
    # a typed key has no size in bytes of its own; its share is negligible
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))


def no_returns() -> np.ndarray:
    """Return the returns [LAST_EPISODES] of the last episodes, the newest last, before there are any: NaN."""
    return np.full(LAST_EPISODES, np.nan, np.float32)


def episode_score(returns: np.ndarray) -> np.ndarray:
    """Return the paper's score, float32 [1]: the mean of the returns that are known; NaN before the first."""
    known = returns[np.isfinite(returns)]
    return np.array([known.mean() if len(known) else np.nan], np.float32)
