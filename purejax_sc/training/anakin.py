"""The on-device driver (Anakin): acting, replay and learning as one pure function.

`jax.jit(make_train(config))(key)` trains one agent; `jax.jit(jax.vmap(make_train(config)))(keys)` sweeps seeds, and a
`vmap` over the second argument sweeps hyper-parameters. Nothing here is a loss, a target or an optimiser.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from purejax_sc import memory
from purejax_sc.agent import consistency, muesli, transforms
from purejax_sc.agent.consistency import ScErrors
from purejax_sc.config import Config, ConfigError, Hyper, SelfplayEvalConfig, as_config, override
from purejax_sc.config.errors import advice
from purejax_sc.envs import as_env, base, episodes, make_env
from purejax_sc.envs.base import DriverState
from purejax_sc.envs.check import check_env
from purejax_sc.networks import make_model
from purejax_sc.training import replay
from purejax_sc.training.replay import ReplayState
from purejax_sc.training.train_state import (
    Nothing,
    TrainState,
    as_arrays,
    check_fits,
    learn,
    swap_time,
    tree_bytes,
)
from purejax_sc.types import PRNG, Array, Env, EpisodeStats, Key, Model, Params, Sequence, Tree

JUDGE = 1  # folded into the key of evaluation games, so that training draws the same without them
EARLIER = 0.1  # share of a run after which the agent of that time stays as the earlier opponent

DeviceState = TrainState[DriverState, ReplayState | Nothing]


class Trainer(NamedTuple):
    """init: (key) -> state.   iterate: (state, hyper) -> (state, metrics): act, store, learn once.

    metrics: float32 scalars; `episode_*_sum` over the episodes that ended while acting.
    judge: (state) -> (state, metrics): evaluation games, where self-play cannot tell. Learning does not depend on it.
    """

    init: Callable[[Key], DeviceState]
    iterate: Callable[[DeviceState, Hyper], tuple[DeviceState, dict[str, Array]]]
    judge: Callable[[DeviceState], tuple[DeviceState, dict[str, Array]]]


class Components(NamedTuple):
    """Components of a trainer. axis: name of the mesh axis along which devices share a run, if they do."""

    config: Config
    env: Env
    model: Model
    learner: muesli.Learner
    axis: str | None

    @property
    def judged(self) -> bool:
        """Is the agent evaluated in games against opponents at log points?"""
        return self.env.spec.two_player and self.config.selfplay_eval.games > 0

    def own(self, key: Key) -> Key:
        """A device's own randomness: environments, replay and imagination differ, parameters do not."""
        return key if self.axis is None else jax.random.fold_in(key, jax.lax.axis_index(self.axis))


def make_trainer(
    config: Config | str,
    env: Any = None,
    model: Model | None = None,
    num_seeds: int = 1,
    axis: str | None = None,
    sc_errors: Callable[..., ScErrors] = consistency.sc_errors,
) -> Trainer:
    """Build the parts and refuse what cannot run.

    Args:
      env:       replaces the one that `config.env` names: an `Env`, one of gymnax's, or a name.
      model:     replaces the network that `config.network` describes.
      num_seeds: how many the caller will train side by side in memory; only the checks of sizes ask.
      axis:      name of the mesh axis along which devices share a run. `config` is then one device's part of it.

    Raises ConfigError: unknown environment, a network that does not fit it, a run that does not fit in memory.
    """
    config, name = _with_env(config, env), "the environment"
    if env is None or isinstance(env, str):
        env, name = make_env(config), f"env={config.env!r}" if ":" in config.env else ""
    if name:  # the user's own
        env = as_env(env, name)
        check_env(env, name)
    if not env.spec.two_player and config.selfplay_eval != SelfplayEvalConfig():
        raise ConfigError(f"selfplay_eval.* has no effect with env={config.env!r}, which has one player: leave it out")
    model = model or make_model(config, env.spec)
    parts = Components(config, env, model, muesli.make_learner(config, model, env.spec, axis, sc_errors), axis)
    row, free = sequence_shapes(config, env, model), memory.free_on(jax.local_devices()[0])
    check_fits(config, parts.learner, row, free, num_seeds)
    if config.replay_sequences:
        ring = config.replay_capacity_sequences * tree_bytes(row)
        memory.check(num_seeds * ring, free, "the device", "replay.capacity")
    return Trainer(partial(_init, parts), partial(_iterate, parts), partial(_judge, parts))


def _with_env(config: Config | str, env: Any) -> Config:
    config = as_config(config)
    return override(config, {"env": env}) if isinstance(env, str) else config


def _init(parts: Components, key: Key) -> DeviceState:
    config, model = parts.config, parts.model
    key_learner, key_env, key_rest = jax.random.split(key, 3)
    driver = base.init(parts.env, parts.own(key_env), config.train.num_envs)
    ring: ReplayState | Nothing = ()
    if config.replay_sequences:
        ring = replay.init(sequence_shapes(config, parts.env, model), config.replay_capacity_sequences)
    state = parts.learner.init(key_learner)
    earlier = jax.tree.map(jnp.copy, state.params) if parts.judged else ()  # a copy: the driver donates both
    return TrainState(state, driver, model.initial_carry(config.train.num_envs), ring, earlier, key_rest)


def _iterate(parts: Components, state: DeviceState, hyper: Hyper) -> tuple[DeviceState, dict[str, Array]]:
    config, env, model, learner, axis = parts
    key, key_act, key_learn, key_shared = jax.random.split(state.key, 4)
    key_act = parts.own(key_act)
    driver, carry, fresh, ended = generate_unroll(
        env, model, state.learner.target, state.driver, state.carry, key_act, hyper, config.train.sequence_length
    )
    rows = swap_time(fresh)
    ring = replay.add(state.replay, rows) if isinstance(state.replay, ReplayState) else ()
    new, metrics = learn(config, learner, state.learner, rows, ring, parts.own(key_learn), hyper)
    ended = transforms.device_sum(ended, axis)
    driver = driver._replace(shared=env.refresh(parts.own(key_shared), driver.shared))
    metrics |= {"episode_count": ended.count, "episode_length_sum": ended.length_sum}
    if not env.spec.two_player:  # the winner of self-play is the agent, and so is the loser
        metrics |= {"episode_return_sum": ended.return_sum}
    metrics |= {f"episode_{name}_sum": value for name, value in ended.metric_sums.items()}
    return TrainState(new, driver, carry, ring, state.earlier, key), metrics


def generate_unroll(
    env: Env,
    model: Model,
    params: Params,
    driver: base.DriverState,
    carry: Tree,
    key: Key,
    hyper: Hyper,
    num_steps: int,
) -> tuple[base.DriverState, Tree, Sequence, EpisodeStats]:
    """Act T steps in every environment. Returns the environments and the encoder's carry after them, the sequence
    [T, B, ...], and sums over ended episodes.
    """

    def step(state: tuple[base.DriverState, Tree], key: Key) -> tuple[tuple[base.DriverState, Tree], Any]:
        driver, carry = state
        key_action, key_env = jax.random.split(key)
        action, logits, carry = muesli.act(model, params, driver.obs, carry, key_action, hyper)
        after, reward, discount, episodes = base.step(env, key_env, driver, action)
        return (after, carry), (driver.obs, action, logits, reward, discount, episodes)

    keys = jax.random.split(key, num_steps)
    (after, carry_after), (obs, action, logits, reward, discount, episodes) = jax.lax.scan(step, (driver, carry), keys)
    obs = jax.tree.map(lambda x, last: jnp.concatenate([x, last[None]]), obs, after.obs)
    sequence = Sequence(obs, action, logits, reward, discount, carry)
    return after, carry_after, sequence, jax.tree.map(jnp.sum, episodes)


def _judge(parts: Components, state: DeviceState) -> tuple[DeviceState, dict[str, Array]]:
    """Play against random moves, and against what acted earlier in the run."""
    config = parts.config
    if not parts.judged:
        return state, {"episode_return": jnp.array(jnp.nan)} if parts.env.spec.two_player else {}
    params = state.learner.target
    until = round(EARLIER * config.num_updates)
    earlier = jax.tree.map(partial(jnp.where, state.learner.updates <= until), params, state.earlier)
    # the key goes on as if nothing had been drawn from it here
    key_random, key_earlier = jax.random.split(parts.own(jax.random.fold_in(state.key, JUDGE)))
    metrics = {
        "episode_return": _result(parts, params, None, key_random),
        "result_earlier": _result(parts, params, state.earlier, key_earlier),
    }
    return state._replace(earlier=earlier), transforms.device_mean(metrics, parts.axis)


def _result(parts: Components, params: Params, opponent: Params | Nothing | None, key: Key) -> Array:
    """Mean result, from -1 to 1, of games against other parameters, or against uniformly random moves."""
    env, model = parts.env, parts.model

    def sample(params: Params, e: Array, legal: Array, key: Key) -> Array:
        return jax.random.categorical(key, transforms.masked_logits(model.root_policy(params.root_policy, e), legal))

    def side(of: Params | Nothing | None) -> episodes.Player:
        return episodes.policy_player(model, sample, of) if isinstance(of, Params) else episodes.uniform()

    played = episodes.play(
        env, (side(params), side(opponent)), key, parts.config.selfplay_eval.games, episodes.MAX_STEPS
    )
    return jnp.mean(played.episode_return)


def make_train(
    config: Config | str,
    env: Any = None,
    model: Model | None = None,
    sc_errors: Callable[..., ScErrors] = consistency.sc_errors,
) -> Callable[..., tuple[DeviceState, dict[str, Array]]]:
    """train(key, hyper=None) -> (state, metrics [num_iterations]): a whole run, one pure function.

    `hyper`, a `Hyper` or a dict of some of its fields, overrides `config.hyper`; its numbers may be traced. env, model,
    sc_errors: your own instead of the library's (`examples/`). Arguments and ConfigError as of `make_trainer`.
    """
    config = _with_env(config, env)
    trainer = make_trainer(config, env, model, sc_errors=sc_errors)

    def train(key: Key, hyper: Hyper | Mapping[str, Any] | None = None) -> tuple[DeviceState, dict[str, Array]]:
        if not isinstance(hyper, Hyper):
            hyper = hyper or {}
            for name in hyper.keys() - set(Hyper._fields):
                raise ConfigError(f"unknown key {'hyper.' + name!r}: {advice(name, Hyper._fields, 'hyper.')}")
            hyper = config.hyper._replace(**hyper)
        hyper = as_arrays(hyper)
        return jax.lax.scan(
            lambda state, _: trainer.iterate(state, hyper), trainer.init(key), length=config.num_iterations
        )

    return train


def make_chunk(trainer: Trainer) -> Callable[[DeviceState, Hyper, Array], tuple[DeviceState, dict[str, Array]]]:
    """chunk(state, hyper, n) -> (state, metrics averaged over n iterations, and the judge's). n is traced."""

    # traced once for the shapes and for the loop, which takes seconds
    iterate = jax.jit(trainer.iterate, inline=True)

    def chunk(state: DeviceState, hyper: Hyper, n: Array) -> tuple[DeviceState, dict[str, Array]]:
        hyper = as_arrays(hyper)
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(iterate, state, hyper)[1])

        def body(_: Array, carry: tuple[DeviceState, dict[str, Array]]) -> tuple[DeviceState, dict[str, Array]]:
            state, totals = carry
            state, metrics = iterate(state, hyper)
            return state, jax.tree.map(jnp.add, totals, metrics)

        state, totals = jax.lax.fori_loop(0, n, body, (state, zeros))
        state, judged = trainer.judge(state)
        return state, jax.tree.map(lambda x: x / n.astype(x.dtype), totals) | judged

    return chunk


def sequence_shapes(config: Config, env: Env, model: Model) -> Sequence:
    """Shapes and dtypes of one stored row: a sequence without its batch axis."""

    def make(key: Key) -> Sequence:
        key_params, key_env, key_act = jax.random.split(key, 3)
        driver, carry = base.init(env, key_env, 1), model.initial_carry(1)
        params = model.init(key_params)
        return swap_time(
            generate_unroll(env, model, params, driver, carry, key_act, config.hyper, config.train.sequence_length)[2]
        )

    shapes = jax.eval_shape(make, jax.random.key(0, impl=PRNG))
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), shapes)
