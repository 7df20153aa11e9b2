"""The on-device driver (Anakin): acting, replay and learning as one pure function.

`jax.jit(make_train(config))(key)` trains one agent; `jax.jit(jax.vmap(make_train(config)))(keys)` sweeps seeds, and a
`vmap` over the second argument sweeps hyper-parameters. Nothing here is a loss, a target or an optimiser.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from purejax_sc import networks
from purejax_sc.acting import episodes
from purejax_sc.acting.episodes import MAX_STEPS
from purejax_sc.acting.policy import act, acting_params
from purejax_sc.agent import muesli, transforms
from purejax_sc.config import Config, Hyper
from purejax_sc.envs import base, make_env
from purejax_sc.training import replay
from purejax_sc.training.iteration import TrainState, as_arrays, check_memory, learn, sequence_shapes, swap_time
from purejax_sc.types import (
    Array,
    Env,
    Key,
    Model,
    Params,
)

JUDGE = 1  # apart from the other uses of a key


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
        row = sequence_shapes(config, env, model)
        ring = replay.init(row, capacity) if config.replay_sequences else ()
        state = learner.init(key_learner)
        earlier = jax.tree.map(jnp.copy, state.params) if judged else ()  # a copy: the driver donates both
        return TrainState(state, driver, model.initial_carry(num_envs), ring, earlier, key_rest)

    def iterate(state: TrainState, hyper: Hyper) -> tuple[TrainState, dict[str, Array]]:
        key, key_act, key_learn, key_shared = jax.random.split(state.key, 4)
        params = acting_params(config, state.learner)
        driver, carry, fresh, episodes = act(env, model, params, state.driver, state.carry, own(key_act), hyper, config)
        rows = swap_time(fresh)
        ring = replay.add(state.replay, rows) if config.replay_sequences else ()
        new, metrics = learn(config, learner, state.learner, rows, ring, own(key_learn), hyper, swap_time)
        episodes = episodes if axis is None else jax.lax.psum(episodes, axis)
        driver = driver._replace(shared=env.refresh(own(key_shared), driver.shared, episodes))
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

    check_memory(config, env, model, num_seeds)
    return Trainer(init, iterate, judge)


def _result(config: Config, env: Env, model: Model, params: Params, opponent: Params | None, key: Key) -> Array:
    """Mean result, from -1 to 1, of games against other parameters, or against uniformly random moves."""
    sampled = episodes.make_choices(model, env.spec, config.hyper.discount)["sampled"]
    sides = [episodes.uniform() if x is None else episodes.agent(model, sampled, x) for x in (params, opponent)]
    return jnp.mean(episodes.play(env, tuple(sides), key, config.arena.games, MAX_STEPS).episode_return)


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
