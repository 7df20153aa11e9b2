"""Environments on the host, such as Atari's emulator: what a driver sees of a batch of them.

Both kinds of end show their final observation, and every game has the same stream. Row by row, with x an observation:

    end after x2:    x0 first   x1         x2              x3 not valid, ended              y0 first
                     reward 0   reward     reward          reward                           reward 0
                     d = 0      d = 1      d = 1           d = 0 terminated, 1 truncated    d = 0

`reward` and `discount` follow the action sent before. The action sent for an observation that is not valid is ignored:
the environment resets instead. Unlike in `base`, terminated rows do not reset at once.
"""

from typing import NamedTuple, Protocol

import numpy as np

from purejax_sc.types import EnvSpec


class HostStep(NamedTuple):
    """Outputs of B environments, as NumPy arrays that the receiver may keep.

    frame:          [B, *obs_shape] in the spec's dtype; one frame, not a stack.
    reward:         float32 [B], raw, of the step that led here; 0 at an episode's first observation.
    discount:       float32 [B]: 1, but 0 where the game has terminated and at an episode's first observation.
    first:          bool [B], this is the first observation of an episode.
    valid:          bool [B], False on the final observation of an episode.
    episode_return: float32 [B], undiscounted and unclipped, of the running episode or of the one that just ended.
    episode_length: int32 [B], its agent steps.
    episode_frames: int32 [B], its frames, a step counting as many as it asks for even if the game ends within it.
    """

    frame: np.ndarray
    reward: np.ndarray
    discount: np.ndarray
    first: np.ndarray
    valid: np.ndarray
    episode_return: np.ndarray
    episode_length: np.ndarray
    episode_frames: np.ndarray

    @property
    def ended(self) -> np.ndarray:
        return ~self.valid


class HostEnvs(Protocol):
    """`num_envs` = B environments that step together: `recv`, `send`, `recv`, `send` and so on, then `close`.

    `send` may return before the environments have stepped. They belong to one thread at a time.
    """

    spec: EnvSpec  # obs_shape is that of one frame
    num_envs: int

    def recv(self) -> HostStep:
        """The observations to act on. Waits for them."""

    def send(self, action: np.ndarray) -> None:
        """Act in every environment: integer [B]."""

    def close(self) -> None:
        """Give back threads and memory; closing twice does nothing."""


def first_step(frame: np.ndarray) -> HostStep:
    """All rows at the start of an episode, with frames [B, *obs_shape]."""
    num_envs = len(frame)
    return HostStep(
        frame=frame,
        reward=np.zeros(num_envs, np.float32),
        discount=np.zeros(num_envs, np.float32),
        first=np.ones(num_envs, bool),
        valid=np.ones(num_envs, bool),
        episode_return=np.zeros(num_envs, np.float32),
        episode_length=np.zeros(num_envs, np.int32),
        episode_frames=np.zeros(num_envs, np.int32),
    )


def next_step(
    previous: HostStep,
    frame: np.ndarray,
    reward: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    frames_per_step: int = 1,
) -> HostStep:
    """Return the observations after `previous`, for rows that stepped and rows that reset after an episode.

    Args:
      frame:      [B, *obs_shape], of a new episode where the last one had ended.
      reward:     number [B]; ignored where the last episode had ended, as are the next two.
      terminated: bool [B].   truncated: bool [B]; termination counts where both hold.
      frames_per_step: emulator frames that an agent step asks for.
    """
    first = previous.ended
    reward = np.where(first, 0, reward).astype(np.float32)
    terminated = terminated & ~first
    ended = terminated | (truncated & ~first)
    length = np.where(first, 0, previous.episode_length + 1).astype(np.int32)
    return HostStep(
        frame=frame,
        reward=reward,
        discount=np.where(first | terminated, 0, 1).astype(np.float32),
        first=first,
        valid=~ended,
        episode_return=np.where(first, 0, previous.episode_return + reward).astype(np.float32),
        episode_length=length,
        episode_frames=length * np.int32(frames_per_step),
    )


def stacked_spec(spec: EnvSpec, num_frames: int) -> EnvSpec:
    """The environments as a network sees them, frames in stacks. spec: obs_shape [H, W, C] is that of one frame."""
    *size, channels = spec.obs_shape
    return spec._replace(obs_shape=(*size, num_frames * channels))
