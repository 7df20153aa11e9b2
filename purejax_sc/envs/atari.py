"""Atari 2600 games on the host, played by EnvPool (Arcade Learning Environment) by the paper's protocol.

An episode begins with one no-op, without which EnvPool cannot start.
"""

from importlib import import_module
from typing import Any

import numpy as np

from purejax_sc.config import Config
from purejax_sc.envs.atari_games import SCORES
from purejax_sc.envs.host import HostEnvs, HostStep, first_step, next_step
from purejax_sc.types import EnvSpec

JOYSTICK = 18  # all actions of the Arcade Learning Environment: nothing, fire, eight directions, these with fire
# Skiing knows no fire: its full action set is nothing and eight directions. Actions with fire act as those without.
_WITHOUT_FIRE = np.array([0, 0, *range(1, 9), *range(1, 9)])

# The paper's protocol. It takes the maximum over the last 4 frames of a step; EnvPool's own is that over 2.
REPEAT = 4  # frames per agent step
STICKY = 0.25  # probability that a frame repeats the action of the one before
MAX_FRAMES = 108_000  # half an hour, then an episode is truncated


def names() -> tuple[str, ...]:
    """Return the 57 games of the literature, in EnvPool's spelling."""
    return tuple(f"atari/{game}" for game in SCORES)


def make_spec(config: Config) -> EnvSpec:
    """Return the spec of one frame. Raises ModuleNotFoundError where EnvPool is needed and not installed."""
    options = config.atari
    shape = (options.size, options.size, 1 if options.gray else 3)
    num_actions = JOYSTICK if options.full_actions else _count_actions(config.env.removeprefix("atari/"))
    return EnvSpec(num_actions, shape, np.dtype(np.uint8), two_player=False)


def check_installed(config: Config) -> None:
    """Raise ModuleNotFoundError where EnvPool is not installed."""
    import_module("envpool")


def make_envs(config: Config, num_envs: int, seed: int) -> HostEnvs:
    """Start games, independent of those with other seeds. Raises ModuleNotFoundError without EnvPool."""
    import envpool

    options = config.atari
    pool = envpool.make(
        f"{config.env.removeprefix('atari/')}-v5",
        env_type="gymnasium",
        num_envs=num_envs,
        seed=_seeds(num_envs, seed).tolist(),
        num_threads=0,  # as many as there are cores or games, whichever is less
        max_episode_steps=MAX_FRAMES // REPEAT,
        frame_skip=REPEAT,
        img_height=options.size,
        img_width=options.size,
        gray_scale=options.gray,
        stack_num=1,
        repeat_action_probability=STICKY,
        full_action_space=options.full_actions,
        noop_max=1,  # one no-op, as 0 crashes it
        use_fire_reset=False,
        episodic_life=False,
        zero_discount_on_life_loss=False,
        reward_clip=False,
    )
    return AtariEnvs(make_spec(config), pool, num_envs, _action_table(config))


class AtariEnvs:
    """A `HostEnvs` of EnvPool's games. A row whose episode has ended resets at its next action, whatever that is."""

    def __init__(self, spec: EnvSpec, pool: Any, num_envs: int, action_table: np.ndarray) -> None:
        self.spec = spec
        self.num_envs = num_envs
        self._pool = pool
        self._rows = np.arange(num_envs, dtype=np.int32)
        self._action_table = action_table
        self._shown: HostStep | None = None

    def recv(self) -> HostStep:
        if self._shown is None:
            self._pool.async_reset()
            self._shown = first_step(_channels_last(self._pool.recv()[0]))
            return self._shown
        obs, reward, _, truncated, info = self._pool.recv()
        assert np.array_equal(info["env_id"], self._rows)
        terminated = info["terminated"].astype(bool)  # EnvPool's own is False where the game is over at the cap
        self._shown = next_step(self._shown, _channels_last(obs), reward, terminated, truncated, REPEAT)
        return self._shown

    def send(self, action: np.ndarray) -> None:
        """Act in every game: integer [B]. Raises ValueError for other actions than the spec's: EnvPool would hang."""
        action = np.asarray(action)
        if action.shape != (self.num_envs,) or action.min() < 0 or action.max() >= self.spec.num_actions:
            raise ValueError(f"actions must be {self.num_envs} numbers from 0 to {self.spec.num_actions - 1}: {action}")
        self._pool.send(self._action_table[action], self._rows)

    def close(self) -> None:
        self._pool.close()


def _channels_last(obs: np.ndarray) -> np.ndarray:
    """Copy [n, C, H, W] to [n, H, W, C] channel by channel: NumPy copies a transposed view several times slower."""
    return np.stack([obs[:, channel] for channel in range(obs.shape[1])], axis=-1)


def _count_actions(game: str) -> int:
    """Return the number of actions that the game uses."""
    import envpool

    return int(envpool.make_spec(f"{game}-v5", full_action_space=False).action_space.n)


def _seeds(num_envs: int, seed: int) -> np.ndarray:
    """Return the seeds of single games, int32 [num_envs]."""
    return (np.random.SeedSequence(seed).generate_state(num_envs) % np.uint32(2**31 - 1)).astype(np.int32)


def _action_table(config: Config) -> np.ndarray:
    """Return EnvPool's number of each of our actions."""
    if config.env == "atari/Skiing" and config.atari.full_actions:
        return _WITHOUT_FIRE.astype(np.int32)
    return np.arange(JOYSTICK, dtype=np.int32)
