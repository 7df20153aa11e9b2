"""The jitted driver of environments on the host: EnvPool's XLA interface, one device, one program per iteration.

    iterate   T x (choose an action -> send -> recv) -> replay on the device -> updates

Against `sebulba` it has no thread, no queue and no copy of frames through Python, but games and learner take turns.
Iterations are single calls, as convolutions are slower within a compiled loop on a CPU.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from purejax_sc import memory, networks
from purejax_sc.acting.frames import Memory, first_memory, make_act, observation
from purejax_sc.agent import muesli
from purejax_sc.config import Config, Hyper
from purejax_sc.envs.host import HostProgram, HostStep, first_step, next_step, stacked_spec
from purejax_sc.training import devices, replay
from purejax_sc.training.actors import ACTING
from purejax_sc.training.compiled import CURE, Program, tree_bytes
from purejax_sc.training.devices import SEED, Layout
from purejax_sc.training.host_rows import as_batch, row_shapes
from purejax_sc.training.iteration import (
    Nothing,
    TrainState,
    as_arrays,
    check_replay_fits,
    episode_score,
    learn,
    no_returns,
    replay_text,
)
from purejax_sc.training.replay import ReplayState
from purejax_sc.training.sizes import check_fits
from purejax_sc.types import Array, EnvSpec, Key, Observation, Params, Sequence, Tree

ProgramState = TrainState[Array, ReplayState | Nothing]


class Live(NamedTuple):
    """What no checkpoint holds: the games as they stand, and the actor in them.

    handle: of the games. step: what they show. obs: of single frames, made of it. key: of the actor.
    before: frames [S - 1, B, H, W, C] and first [S - 1, B] from before `obs`, for stacks of S.
    """

    handle: Any
    step: HostStep
    obs: Observation
    before: tuple[Array, Array]
    memory: Memory
    key: Key


class Driver:
    """What a run holds beside its states: compiled functions and the games."""

    def __init__(
        self, config: Config, spec: EnvSpec, make_games: Callable[[int, int], HostProgram], layout: Layout
    ) -> None:
        """The games start, and wait.

        Args:
          spec:       of the environments: obs_shape is that of one frame.
          make_games: (number of environments, seed) -> environments.
          layout:     of one device.

        Raises ConfigError: a network that does not fit, a replay that does not fit in memory, games that no compiled
        program can play.
        """
        seen = stacked_spec(spec, config.atari.stack)
        self._config, self._spec, self._layout = config, spec, layout
        self._model = networks.make_model(config, seen)
        self._learner = muesli.make_learner(config, self._model, seen)
        self._policy = partial(muesli.act, self._model)
        self._row = row_shapes(config, spec, self._model)
        self._hyper = as_arrays(config.hyper)
        self._live: Live | None = None
        free = memory.free_on(layout.mesh.devices.flat[0])
        check_fits(config, self._learner, self._row, free, "the device")
        check_replay_fits(config, self._replay_bytes, free, "the device")
        # a resumed run begins new episodes, of the same seeds
        self._games = make_games(config.train.num_envs, config.seed)

    @property
    def replay_text(self) -> str:
        """The size of the replay, for the user."""
        return replay_text(self._config, self._replay_bytes, "the device")

    def compile(self) -> Program:
        """Compile what plays the games, behind the interface of the program on the device.

        Raises ConfigError if that needs more memory than is free.
        """
        start = time.perf_counter()
        config = self._config
        shapes = devices.put_shapes(self._layout, jax.eval_shape(self._init), PartitionSpec(SEED))
        key = jax.random.fold_in(jax.random.key(config.seed), ACTING)
        self._start = jax.jit(self._first).lower(self._games.handle, key).compile()
        live = devices.put_shapes(self._layout, jax.eval_shape(self._first, self._games.handle, key), PartitionSpec())
        self._iterate = jax.jit(self._step, donate_argnums=(0, 1)).lower(shapes, live, self._hyper).compile()
        memory.check_program(self._iterate, self._layout.mesh.devices.flat[0], CURE)
        sizes = {
            "program_bytes": memory.program_bytes(self._iterate),
            "state_bytes": tree_bytes(shapes),
            "replay_bytes": self._replay_bytes,
        }
        seconds = time.perf_counter() - start
        return Program(jax.jit(self._init), self.chunk, shapes, seconds, sizes, self._games.close)

    def chunk(self, states: ProgramState, n: int) -> tuple[ProgramState, dict[str, np.ndarray]]:
        """n iterations, from the episodes that the last chunk left. The states are used up."""
        if self._live is None:
            key = jax.random.fold_in(jax.random.key(self._config.seed), ACTING)
            key = jax.random.fold_in(key, states.learner.updates[0])  # other actions after a resume
            self._live = self._start(self._games.handle, key)
        said = []
        for _ in range(n):
            states, self._live, metrics = self._iterate(states, self._live, self._hyper)
            said.append(metrics)
        values = {name: np.array([np.mean([float(x[name]) for x in said])], np.float32) for name in said[0]}
        return states, values | {"episode_score": episode_score(np.asarray(states.driver))}

    def _init(self) -> ProgramState:
        """States before any update, with one row."""
        key_learner, key = jax.random.split(jax.random.key(self._config.seed))
        ring = replay.init(self._row, self._config.replay_capacity_sequences) if self._config.replay_sequences else ()
        state = TrainState(self._learner.init(key_learner), jnp.asarray(no_returns()), (), ring, (), key)
        return jax.tree.map(lambda x: x[None], state)

    def _first(self, handle: Any, key: Key) -> Live:
        handle, played = self._games.recv(handle)
        step, num_envs = first_step(played.frame), self._config.train.num_envs
        obs = observation(step, jnp.zeros(num_envs, jnp.int32), self._spec.num_actions)
        # what comes before an episode is never looked at
        before = [jnp.repeat(x[None], self._config.atari.stack - 1, axis=0) for x in (obs.frame, obs.first)]
        memory = first_memory(self._config, self._spec, self._model, num_envs)
        return Live(handle, step, obs, (before[0], before[1]), memory, key)

    def _step(self, states: ProgramState, live: Live, hyper: Hyper) -> tuple[ProgramState, Live, dict[str, Array]]:
        """Act, store, learn once."""
        config, state = self._config, jax.tree.map(lambda x: x[0], states)
        key, key_learn = jax.random.split(state.key)
        live, rows, steps = self._act(state.learner.target, live, hyper)
        ring = replay.add(state.replay, rows) if config.replay_sequences else ()
        seen = partial(as_batch, num_frames=config.atari.stack)
        learner, metrics = learn(config, self._learner, state.learner, rows, ring, key_learn, hyper, seen)
        after = TrainState(learner, latest(state.driver, steps), (), ring, (), key)
        return jax.tree.map(lambda x: x[None], after), live, metrics | episodes(steps)

    def _act(self, params: Params, live: Live, hyper: Hyper) -> tuple[Live, Sequence, HostStep]:
        """T steps: the games after them, their rows, and their statistics [T, B]."""

        def pick(params: Params, obs: Observation, carry: Tree, key: Key) -> tuple[Array, Tree, Tree]:
            return self._policy(params, obs, carry, key, hyper)

        def step(live: Live, _: None) -> tuple[Live, Any]:
            action, logits, memory, key = make_act(pick)(params, live.memory, live.obs, live.key)
            handle, played = self._games.recv(self._games.send(live.handle, action))
            after = next_step(live.step, *played, frames_per_step=self._games.frames_per_step)
            obs = observation(after, action, self._spec.num_actions)
            known = (live.obs, action, logits, after._replace(frame=()))
            return Live(handle, after, obs, live.before, memory, key), known

        later, (seen, action, logits, after) = jax.lax.scan(step, live, length=self._config.train.sequence_length)
        seen = jax.tree.map(lambda x, last: jnp.concatenate([x, last[None]]), seen, later.obs)
        frame, first = (jnp.concatenate(x) for x in zip(live.before, (seen.frame, seen.first), strict=True))
        rows = Sequence(seen._replace(frame=frame, first=first), action, logits, after.reward, after.discount, ())
        rows = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), rows)._replace(carry=live.memory.carry)
        newest = slice(-self._config.atari.stack, -1)
        return later._replace(before=(frame[newest], first[newest])), rows, after

    @property
    def _replay_bytes(self) -> int:
        config = self._config
        return replay.num_bytes(self._row, config.replay_capacity_sequences) if config.replay_sequences else 0


def episodes(steps: HostStep) -> dict[str, Array]:
    """The sums that are logged, of steps [T, B]."""
    return {
        "episode_count": jnp.sum(steps.ended, dtype=jnp.float32),
        "episode_return_sum": jnp.sum(steps.episode_return, where=steps.ended),
        "episode_length_sum": jnp.sum(steps.episode_length, where=steps.ended, dtype=jnp.float32),
        "episode_frames_sum": jnp.sum(steps.episode_frames, where=steps.ended, dtype=jnp.float32),
    }


def latest(returns: Array, steps: HostStep) -> Array:
    """The returns of the last episodes after steps [T, B], the newest last and NaN before there were any."""
    ended = jnp.where(steps.ended, steps.episode_return, jnp.nan)
    known = jnp.concatenate([returns, ended.reshape(-1)])
    return known[jnp.argsort(jnp.isfinite(known), stable=True)][-len(returns) :]
