"""A pool of host environments without an engine: small frames, known rewards, terminations and truncations."""

import numpy as np

from purejax_sc.envs.host import HostEnvs, HostStep, first_step, next_step
from purejax_sc.types import EnvSpec


class CountingEnvs:
    """Row b has episodes of `lengths[b]` steps. Even rows are truncated then, odd ones terminate.

    A frame is uint8 [4, 4, 1]: the steps of the episode at [0, 0], the number of the episode at [0, 1], the row at
    [0, 2], the action that led here at [0, 3] (0 at an episode's start). The reward is the count that the step reached
    plus 10 times the action. An agent step is 4 frames. Everything follows from the actions: there is no chance in it.
    """

    def __init__(self, lengths: tuple[int, ...] = (3, 2), num_actions: int = 3) -> None:
        self.spec = EnvSpec(num_actions, (4, 4, 1), np.dtype(np.uint8), two_player=False)
        self.num_envs = len(lengths)
        self.closed = False
        self._lengths = np.array(lengths)
        self._count = np.zeros(self.num_envs, int)
        self._episode = np.zeros(self.num_envs, int)
        self._step = first_step(self._draw(np.zeros(self.num_envs, int)))
        self._owed = True  # a step that has not been received

    def recv(self) -> HostStep:
        assert self._owed, "recv without send"
        self._owed = False
        return self._step

    def send(self, action: np.ndarray) -> None:
        assert not self._owed, "send without recv"
        assert action.shape == (self.num_envs,)
        assert ((action >= 0) & (action < self.spec.num_actions)).all()
        resets = self._step.ended
        action = np.where(resets, 0, action)
        self._episode += resets
        self._count = np.where(resets, 0, self._count + 1)
        over = self._count == self._lengths
        odd = np.arange(self.num_envs) % 2 == 1
        reward = self._count + 10 * action
        self._step = next_step(self._step, self._draw(action), reward, over & odd, over & ~odd, frames_per_step=4)
        self._owed = True

    def close(self) -> None:
        self.closed = True

    def _draw(self, action: np.ndarray) -> np.ndarray:
        frame = np.zeros((self.num_envs, 4, 4, 1), np.uint8)
        frame[:, 0, :, 0] = np.stack([self._count, self._episode, np.arange(self.num_envs), action], axis=1)
        return frame


def make_counting_envs(lengths: tuple[int, ...] = (3, 2)) -> HostEnvs:
    """Checked against the interface by mypy."""
    return CountingEnvs(lengths)
