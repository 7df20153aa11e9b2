"""The on-device driver (Anakin): acting, replay and learning as one pure function.

`jax.jit(make_train(config))(key)` trains one agent; `jax.jit(jax.vmap(make_train(config)))(keys)` sweeps seeds, and a
`vmap` over the second argument sweeps hyper-parameters. Nothing here is a loss, a target or an optimiser.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from purejax_sc import networks
from purejax_sc.acting import arena
from purejax_sc.agent import muesli, transforms
from purejax_sc.agent.transforms import masked_logits
from purejax_sc.config import Config, ConfigError, Hyper
from purejax_sc.envs import base, make_env
from purejax_sc.training import replay
from purejax_sc.types import (
    Array,
    Env,
    EpisodeStats,
    Key,
    LearnerState,
    Model,
    Observation,
    Params,
    Sequence,
    Transition,
    Tree,
)

JUDGE = 1  # apart from the other uses of a key
MAX_STEPS = 10_000  # of a game between players: more than any game lasts


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


class Trainer(NamedTuple):
    """init: (key) -> state.   iterate: (state, hyper) -> (state, metrics): act, store, learn once.

    metrics: dict of float32 scalars. `episode_*_sum` are sums over the episodes that ended while acting.
    judge: (state) -> (state, metrics), now and then: how well the agent plays, where self-play cannot tell. It changes
    nothing that learning depends on.
    """

    init: Callable[[Key], TrainState]
    iterate: Callable[[TrainState, Hyper], tuple[TrainState, dict[str, Array]]]
    judge: Callable[[TrainState], tuple[TrainState, dict[str, Array]]]


def make_trainer(config: Config, env: Env | None = None, num_seeds: int = 1, axis: str | None = None) -> Trainer:
    """Build the parts and refuse what cannot run. `env` replaces the one that `config.env` names.

    Args:
      num_seeds: how many the caller will train side by side in memory; only the check of the replay's size asks.
      axis: name of the mesh axis along which devices share a run. `config` is then one device's part of it.

    Raises ConfigError: unknown environment, a network that does not fit it, a replay that does not fit in memory.
    """
    env = env or make_env(config)
    model = networks.make_model(config, env.spec)
    learner = muesli.make_learner(config, model, env.spec, axis)
    num_envs, capacity = config.train.num_envs, config.replay_capacity_sequences
    judged = env.spec.two_player and config.arena.games > 0

    def own(key: Key) -> Key:
        """A device's own randomness: environments, replay and imagination differ, parameters do not."""
        return key if axis is None else jax.random.fold_in(key, jax.lax.axis_index(axis))

    def init(key: Key) -> TrainState:
        key_learner, key_env, key_rest = jax.random.split(key, 3)
        driver = base.init(env, own(key_env), num_envs)
        row = _sequence_shapes(config, env, model)
        ring = replay.init(row, capacity) if config.replay_sequences else ()
        state = learner.init(key_learner)
        earlier = jax.tree.map(jnp.copy, state.params) if judged else ()  # a copy: the driver donates both
        return TrainState(state, driver, model.initial_carry(num_envs), ring, earlier, key_rest)

    def iterate(state: TrainState, hyper: Hyper) -> tuple[TrainState, dict[str, Array]]:
        key, key_act, key_learn, key_pool = jax.random.split(state.key, 4)
        params = acting_params(config, state.learner)
        driver, carry, fresh, episodes = act(env, model, params, state.driver, state.carry, own(key_act), hyper, config)
        rows = _swap_time(fresh)
        ring = replay.add(state.replay, rows) if config.replay_sequences else ()
        new, metrics = learn(config, learner, state.learner, rows, ring, own(key_learn), hyper, _swap_time)
        episodes = episodes if axis is None else jax.lax.psum(episodes, axis)
        driver = driver._replace(pool=env.refresh(own(key_pool), driver.pool, episodes))
        metrics |= {"episode_count": episodes.count, "episode_length_sum": episodes.length_sum}
        if not env.spec.two_player:  # the winner of self-play is the agent, and so is the loser
            metrics |= {"episode_return_sum": episodes.return_sum}
        metrics |= {f"episode_{name}_sum": value for name, value in episodes.metric_sums.items()}
        return TrainState(new, driver, carry, ring, state.earlier, key), metrics

    def judge(state: TrainState) -> tuple[TrainState, dict[str, Array]]:
        if not judged:
            return state, {"episode_return": jnp.array(jnp.nan)} if env.spec.two_player else {}
        params = acting_params(config, state.learner)
        until = round(config.arena.earlier * config.num_updates)
        earlier = jax.tree.map(partial(jnp.where, state.learner.updates <= until), params, state.earlier)
        # the key goes on as if nothing had been drawn from it here
        key_random, key_earlier = jax.random.split(own(jax.random.fold_in(state.key, JUDGE)))
        result = partial(_result, config, env, model)
        metrics = {
            "episode_return": result(params, None, key_random),
            "result_earlier": result(params, state.earlier, key_earlier),
        }
        return state._replace(earlier=earlier), transforms.device_mean(metrics, axis)

    _check_memory(config, env, model, num_seeds)
    return Trainer(init, iterate, judge)


def acting_params(config: Config, learner: LearnerState) -> Params:
    """The parameters that act (L7)."""
    return learner.target if config.muesli.actor == "prior" else learner.params


def _result(config: Config, env: Env, model: Model, params: Params, opponent: Params | None, key: Key) -> Array:
    """Mean result, from -1 to 1, of games against other parameters, or against uniformly random moves."""
    sampled = arena.make_choices(model, env.spec, config.hyper.discount)["sampled"]
    sides = [arena.uniform() if x is None else arena.agent(model, sampled, x) for x in (params, opponent)]
    return jnp.mean(arena.play(env, tuple(sides), key, config.arena.games, MAX_STEPS).episode_return)


def make_train(config: Config, env: Env | None = None) -> Callable[..., tuple[TrainState, dict[str, Array]]]:
    """train(key, hyper=None) -> (state, metrics [num_iterations]): a whole run, one pure function.

    `hyper` overrides `config.hyper`; its fields may be traced. Raises ConfigError as `make_trainer`.
    """
    trainer = make_trainer(config, env)

    def train(key: Key, hyper: Hyper | None = None) -> tuple[TrainState, dict[str, Array]]:
        hyper = as_arrays(config.hyper if hyper is None else hyper)
        return jax.lax.scan(
            lambda state, _: trainer.iterate(state, hyper), trainer.init(key), length=config.num_iterations
        )

    return train


def make_chunk(trainer: Trainer) -> Callable[[TrainState, Hyper, Array], tuple[TrainState, dict[str, Array]]]:
    """chunk(state, hyper, n) -> (state, metrics averaged over n iterations, and the judge's), for a host that looks in
    between.

    n is traced: one compiled program serves chunks of every length.
    """

    def chunk(state: TrainState, hyper: Hyper, n: Array) -> tuple[TrainState, dict[str, Array]]:
        hyper = as_arrays(hyper)
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(trainer.iterate, state, hyper)[1])

        def body(_: Array, carry: tuple[TrainState, dict[str, Array]]) -> tuple[TrainState, dict[str, Array]]:
            state, totals = carry
            state, metrics = trainer.iterate(state, hyper)
            return state, jax.tree.map(jnp.add, totals, metrics)

        state, totals = jax.lax.fori_loop(0, n, body, (state, zeros))
        state, judged = trainer.judge(state)
        return state, jax.tree.map(lambda x: x / n, totals) | judged

    return chunk


def as_arrays(hyper: Hyper) -> Hyper:
    """float32 arrays, so that a number given by config and the same number traced take the same path."""
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), hyper)


def act(
    env: Env,
    model: Model,
    params: Params,
    driver: base.DriverState,
    carry: Tree,
    key: Key,
    hyper: Hyper,
    config: Config,
) -> tuple[base.DriverState, Tree, Sequence, EpisodeStats]:
    """Act T steps in every environment: the driver and carry after them, the sequence, the episodes that ended."""

    def step(state: tuple[base.DriverState, Tree], key: Key) -> tuple[tuple[base.DriverState, Tree], Any]:
        driver, carry = state
        key_action, key_env = jax.random.split(key)
        action, logits, carry = choose(model, params, driver.obs, carry, key_action, hyper)
        after, reward, discount, episodes = base.step(env, key_env, driver, action)
        return (after, carry), (Transition(driver.obs, action, logits, reward, discount), episodes)

    keys = jax.random.split(key, config.train.sequence_length)
    (after, carry_after), (steps, episodes) = jax.lax.scan(step, (driver, carry), keys)
    obs = jax.tree.map(lambda x, last: jnp.concatenate([x, last[None]]), steps.obs, after.obs)
    sequence = Sequence(obs, steps.action, steps.logits, steps.reward, steps.discount, carry)
    return after, carry_after, sequence, jax.tree.map(jnp.sum, episodes)


def choose(
    model: Model, params: Params, obs: Observation, carry: Tree, key: Key, hyper: Hyper
) -> tuple[Array, Array, Tree]:
    """Draw an action in every row of obs [B, ...]: int32 [B], the logits [B, A] it was drawn by, the carry after it."""
    e, carry = model.encode(params.encoder, jax.tree.map(lambda x: x[None], obs), carry)
    logits = masked_logits(model.root_policy(params.root_policy, e[0]), obs.legal)

    def explored(logits: Array) -> Array:
        mu = transforms.with_uniform(jax.nn.softmax(logits), obs.legal, hyper.explore)
        return masked_logits(jnp.log(mu), obs.legal)

    # under a condition: mixed in with a share of 0, the policy would be rounded
    logits = jax.lax.cond(hyper.explore > 0, explored, lambda logits: logits, logits)
    return jax.random.categorical(key, logits), logits, carry


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


def _swap_time(sequence: Sequence) -> Sequence:
    """[T, B, ...] <-> [B, T, ...]; the carry has no time axis."""
    swapped = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), sequence._replace(carry=()))
    return swapped._replace(carry=sequence.carry)


def _sequence_shapes(config: Config, env: Env, model: Model) -> Sequence:
    """Shapes and dtypes of one stored row: a sequence without its batch axis."""

    def make(key: Key) -> Sequence:
        key_params, key_env, key_act = jax.random.split(key, 3)
        driver, carry = base.init(env, key_env, 1), model.initial_carry(1)
        return _swap_time(act(env, model, model.init(key_params), driver, carry, key_act, config.hyper, config)[2])

    shapes = jax.eval_shape(make, jax.random.key(0))
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), shapes)


def replay_bytes(config: Config, env: Env, model: Model) -> int:
    """Memory of the replay of one seed."""
    if not config.replay_sequences:
        return 0
    return replay.num_bytes(_sequence_shapes(config, env, model), config.replay_capacity_sequences)


def _check_memory(config: Config, env: Env, model: Model, num_seeds: int) -> None:
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
