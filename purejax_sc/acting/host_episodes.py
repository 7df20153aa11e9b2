"""Whole episodes of an agent in environments on the host: what `arena` is for those on the device."""

from functools import partial
from typing import Any

import jax
import numpy as np

from purejax_sc.acting.episodes import Choose, Episodes
from purejax_sc.acting.frames import first_memory, make_act, observation
from purejax_sc.config import Config
from purejax_sc.envs.host import HostEnvs
from purejax_sc.types import Array, Key, Model, Observation, Params, Tree


def play(
    config: Config, envs: HostEnvs, model: Model, choose: Choose, params: Params, key: Key, max_steps: int
) -> tuple[Episodes, np.ndarray]:
    """Play the first episode of each of the envs's N environments, until all have ended or reach `max_steps`.

    Returns the episodes, as NumPy arrays, and every frame [steps + 1, *obs_shape] of the first environment's.
    """

    def pick(params: Params, obs: Observation, carry: Tree, key: Key) -> tuple[Array, Tree, Tree]:
        e, carry = model.encode(params.encoder, jax.tree.map(lambda x: x[None], obs), carry)
        return choose(params, e[0], obs.legal, key), (), carry

    act = partial(jax.jit(make_act(pick)), params)
    memory, step = first_memory(config, envs.spec, model, envs.num_envs), envs.recv()
    action, running = np.zeros(envs.num_envs, np.int32), np.ones(envs.num_envs, bool)
    returns, lengths, game_frames = np.zeros(envs.num_envs, np.float32), np.zeros(envs.num_envs, int), running * 0
    frames = [step.frame[0]]
    while (running & (lengths < max_steps)).any():
        chosen, _, memory, key = act(memory, observation(step, action, envs.spec.num_actions), key)
        action = np.asarray(chosen)
        envs.send(action)
        step = envs.recv()
        returns = np.where(running, step.episode_return, returns)
        lengths = np.where(running, step.episode_length, lengths)
        game_frames = np.where(running, step.episode_frames, game_frames)
        if running[0]:
            frames.append(step.frame[0])
        running = running & ~step.ended
    arrays: tuple[Any, ...] = (returns, lengths, running, {"frames": game_frames.astype(np.float32)})
    return Episodes(*arrays), np.stack(frames)
