"""A check of an environment of the user's own, before anything is compiled for it."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purejax_sc.config import ConfigError
from purejax_sc.envs import base
from purejax_sc.types import PRNG, Array, Env, EnvSpec, Key, Step, Tree

ROWS, STEPS = 8, 64  # of random play
SCALARS = {"reward": "float32", "discount": "float32", "truncated": "bool", "player": "int32"}


def check_env(env: Env, name: str = "the environment") -> None:
    """Raise ConfigError, naming function and field, if an environment does not keep to `types.Env`.

    Checks shapes and dtypes, then discounts, legal actions, ends and finite numbers in a few random episodes.
    """
    _check_spec(env.spec, name)
    key, action = jax.random.key(0, impl=PRNG), jax.ShapeDtypeStruct((), jnp.int32)
    shared = called(partial(jax.eval_shape, env.make_shared), f"{name}: make_shared")(key)
    shown = called(partial(jax.eval_shape, env.init), f"{name}: init")(key, shared)
    before, first = _check_step(shown, env.spec, f"{name}: init")
    shown = called(partial(jax.eval_shape, env.step), f"{name}: step")(key, before, action)
    after, step = _check_step(shown, env.spec, f"{name}: step")
    for part, old, new in (("the state", before, after), ("metrics", first.metrics, step.metrics)):
        if _described(old) != _described(new):
            raise ConfigError(f"{name}: step: {part} is {_described(new)}: let it be {_described(old)}, as after init")
    _check_play(env, name)


def _check_spec(spec: EnvSpec, name: str) -> None:
    sizes = spec.obs_shape if isinstance(spec.obs_shape, tuple) else (None,)
    rules = {
        "num_actions": (isinstance(spec.num_actions, int) and spec.num_actions > 1, "a whole number from 2"),
        "obs_shape": (all(isinstance(size, int) for size in sizes), "a tuple of whole numbers"),
        "obs_dtype": (spec.obs_dtype in (bool, np.uint8, np.float32), "the dtype of bool, uint8 or float32"),
        "two_player": (isinstance(spec.two_player, bool), "True or False"),
        "value_bounds": (
            spec.value_bounds is None or spec.value_bounds[0] < spec.value_bounds[1],
            "(low, high) or None",
        ),
    }
    for field, (holds, rule) in rules.items():
        if not holds:
            raise ConfigError(f"{name}: spec.{field} is {getattr(spec, field)!r}: let it be {rule}")


def called(function: Callable[..., Any], where: str) -> Callable[..., Any]:
    """Wrap a function of the user's: what it raises becomes a ConfigError, caused by its own traceback alone."""

    def call(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except ConfigError:
            raise
        except Exception as error:
            own = error.__traceback__ and error.__traceback__.tb_next
            raise ConfigError(f"{where} raised {type(error).__name__}: {error}") from error.with_traceback(own)

    return call


def _check_step(result: Any, spec: EnvSpec, where: str) -> tuple[Tree, Step]:
    """Return what `init` or `step` returned, as shapes."""
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Step)):
        raise ConfigError(f"{where} returned {type(result).__name__}: let it return (state, purejax_sc.Step)")
    step = result[1]
    wanted = {"obs": f"{np.dtype(spec.obs_dtype)}{list(spec.obs_shape)}", "legal": f"bool[{spec.num_actions}]"}
    wanted |= {field: f"{dtype}[]" for field, dtype in SCALARS.items()}
    for field, rule in wanted.items():
        found = _described(getattr(step, field))
        if found != rule:
            raise ConfigError(f"{where}: {field} is {found}: let it be {rule}")
    numbers = {_described(x) for x in jax.tree.leaves(step.metrics)}
    if not isinstance(step.metrics, dict) or not numbers <= {"float32[]"}:
        raise ConfigError(f"{where}: metrics is {_described(step.metrics)}: let it be a dict of float32[]")
    for metric in step.metrics:  # a column of metrics.csv beside episode_return and episode_length
        if metric in ("return", "length") or not re.fullmatch(r"[\w .-]+", metric):
            raise ConfigError(f"{where}: a metric cannot be called {metric!r}: give it another name, such as 'wins'")
    return result


def _check_play(env: Env, name: str) -> None:
    played = jax.jit(partial(_play, env))(jax.random.key(0, impl=PRNG))
    if isinstance(played[1], jax.core.Tracer):  # an environment whose numbers are traced, as in a sweep over MDPs
        return
    steps, began = jax.device_get(played)
    goes_on, players = (-1.0, (0, 1)) if env.spec.two_player else (1.0, (0,))
    on, ended = steps.discount == goes_on, steps.discount == 0
    faults = {
        f"discount is not {goes_on} where an episode begins": began & ~on,
        f"discount is neither {goes_on}, nor 0 as at an end": ~on & ~ended,
        f"player is not {' or '.join(map(str, players))}": ~np.isin(steps.player, players),
        "truncated is True where the discount is 0": ended & steps.truncated,
        "truncated is True where an episode begins": began & steps.truncated,
        "legal is False for every action": on & ~steps.truncated & ~steps.legal.any(axis=-1),
        "reward is not finite": ~np.isfinite(steps.reward),
        "obs is not finite": ~np.isfinite(steps.obs).reshape(*began.shape, -1).all(axis=-1),
    }
    for fault, where in faults.items():
        if where.any():
            raise ConfigError(f"{name}: {'init' if began[where].any() else 'step'}: {fault}")


def _play(env: Env, key: Key) -> tuple[Step, Array]:
    """Play at random. Returns the steps [STEPS + 1, ROWS, ...], and bool [STEPS + 1, ROWS]: an episode begins there."""
    key_shared, key_first, key_play = jax.random.split(key, 3)
    shared = env.make_shared(key_shared)

    def begin(key: Key) -> tuple[Tree, Step]:
        return jax.vmap(env.init, (0, None))(jax.random.split(key, ROWS), shared)

    def advance(now: tuple[Tree, Step], key: Key) -> tuple[tuple[Tree, Step], tuple[Step, Array]]:
        key_action, key_step, key_begin = jax.random.split(key, 3)
        state, step = now
        ended = (step.discount == 0) | step.truncated
        action = jax.random.categorical(key_action, jnp.where(step.legal, 0.0, -jnp.inf))
        after = jax.vmap(env.step)(jax.random.split(key_step, ROWS), state, action.astype(jnp.int32))
        now = base.choose_rows(ended, begin(key_begin), after)
        return now, (now[1], ended)

    first = begin(key_first)
    played = jax.lax.scan(advance, first, jax.random.split(key_play, STEPS))[1]
    return jax.tree.map(lambda x, rest: jnp.concatenate([x[None], rest]), (first[1], jnp.ones(ROWS, bool)), played)


def _described(tree: Tree) -> str:
    """Describe arrays, shapes or Python numbers: float32[3], or a tree of these."""
    return str(jax.tree.map(lambda x: _Plain(f"{jnp.result_type(x)}{list(jnp.shape(x))}"), tree))


class _Plain(str):
    """Text that shows no quotes in a container."""

    __repr__ = str.__str__
