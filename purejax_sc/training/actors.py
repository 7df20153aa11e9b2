"""Actors of environments on the host: threads that play without end and hand blocks of sequences to the learner."""

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from purejax_sc.config import Config
from purejax_sc.envs.host import HostEnvs, HostStep
from purejax_sc.results.files import RunError
from purejax_sc.training.frames import Act, Memory, observation
from purejax_sc.types import EnvSpec, Key, Observation, Params, Sequence, Tree

ACTING = 1  # apart from the other uses of a key
_AT_ONE_TIME = ("legal", "prev_action", "prev_reward", "valid")  # of an Observation: what no stack needs
QUEUED = 2  # blocks, one per actor and iteration, that may wait for the learner
POLL_SECONDS = 0.2  # how soon a thread notices that another one has failed
CLOSE_SECONDS = 10  # for a thread to end, before it is left behind

MakeEnvs = Callable[[int, int], HostEnvs]  # (number of environments, seed)


class Block(NamedTuple):
    """Experience of an actor after T steps of its B environments.

    rows: Sequence of NumPy arrays, batch-major, in the form of `stacked`.   updates: of the parameters that acted.
    episodes: the float64 sums that are logged, by name.   returns: of the episodes that ended, in that order.
    waited: share of its time that the actor waited for room in the queue.
    """

    rows: Sequence
    episodes: dict[str, float]
    returns: list[float]
    updates: int
    waited: float


class Actors:
    """Threads that act without end, each in environments of its own, and hand over blocks in a bounded queue."""

    def __init__(self, config: Config, spec: EnvSpec, make_envs: MakeEnvs) -> None:
        self._config, self._spec, self._make_envs = config, spec, make_envs
        self._blocks: queue.Queue[Block] = queue.Queue(QUEUED)
        self._errors: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._published: tuple[Params, int]  # by `publish`

    def publish(self, params: Params, updates: int) -> None:
        """Act from the next block on by the parameters after so many updates."""
        self._published = params, updates

    def start(self, name: str, seed: int, act: Act, memory: Memory, key: Key) -> None:
        """Start an actor, once parameters are published. seed: of its environments."""
        thread = threading.Thread(target=self._run, args=(seed, act, memory, key), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    @property
    def has_block(self) -> bool:
        """Is there a block to take without waiting?"""
        return not self._blocks.empty()

    def take(self) -> Block:
        """Wait for the next block. Raises RunError if an actor has failed, with its error as the cause."""
        while True:
            if not self._errors.empty():
                error = self._errors.get()
                raise RunError(f"an environment thread failed: {type(error).__name__}: {error}") from error
            try:
                return self._blocks.get(timeout=POLL_SECONDS)
            except queue.Empty:
                continue

    def close(self) -> None:
        """Stop all threads, which close their environments. Closing twice does nothing."""
        self._stop.set()
        for thread in self._threads:
            thread.join(CLOSE_SECONDS)
        self._threads = []

    def _run(self, seed: int, act: Act, memory: Memory, key: Key) -> None:
        try:
            envs = self._make_envs(self._config.train.num_envs // self._config.host.actors, seed)
            try:
                self._act_without_end(envs, act, memory, key)
            finally:
                envs.close()
        except BaseException as error:  # for the learner's thread, whatever it is
            self._errors.put(error)

    def _act_without_end(self, envs: HostEnvs, act: Act, memory: Memory, key: Key) -> None:
        tape = _Tape(self._config.atari.stack, self._spec.num_actions, envs.recv())
        waited = 0.0
        while not self._stop.is_set():
            start = time.perf_counter()
            params, updates = self._published
            carry = jax.device_get(memory.carry)
            for _ in range(self._config.train.sequence_length):
                chosen, logits, memory, key = act(params, memory, tape.obs, key)
                action = np.asarray(chosen)
                envs.send(action)
                tape.add(action, np.asarray(logits), envs.recv())
            acting = time.perf_counter() - start
            block = tape.block(carry, updates, waited / (waited + acting))
            waited = self._hand_over(block)

    def _hand_over(self, block: Block) -> float:
        """Put a block in the queue, and return the seconds that took."""
        start = time.perf_counter()
        while not self._stop.is_set():
            try:
                self._blocks.put(block, timeout=POLL_SECONDS)
                break
            except queue.Full:
                continue
        return time.perf_counter() - start


class _Tape:
    """Recorder of observations and actions, from which it makes blocks."""

    def __init__(self, num_frames: int, num_actions: int, first: HostStep) -> None:
        self._num_frames, self._num_actions = num_frames, num_actions
        self._done: list[tuple[np.ndarray, ...]] = []
        self._ends: list[HostStep] = []
        # what comes before an episode is never looked at
        self._seen = [observation(first, np.zeros(len(first.first), np.int32), num_actions)] * num_frames

    @property
    def obs(self) -> Observation:
        """Latest observation, of single frames [B, ...]."""
        return self._seen[-1]

    def add(self, action: np.ndarray, logits: np.ndarray, after: HostStep) -> None:
        self._done.append((action, logits, after.reward, after.discount))
        self._ends.append(after._replace(frame=np.zeros(0)))  # only its statistics
        self._seen.append(observation(after, action, self._num_actions))

    def block(self, carry: Tree, updates: int, waited: float) -> Block:
        """Return the block of all since the last one. carry: before its first step."""
        seen = Observation(*_over_time(self._seen))
        now = {name: getattr(seen, name)[:, self._num_frames - 1 :] for name in _AT_ONE_TIME}
        action, logits, reward, discount = _over_time(self._done)
        rows = Sequence(seen._replace(**now), action, logits, reward, discount, carry)
        ends = [(step, row) for step in self._ends for row in np.flatnonzero(step.ended)]
        returns = [float(step.episode_return[row]) for step, row in ends]
        episodes = {
            "episode_count": float(len(ends)),
            "episode_return_sum": sum(returns),
            "episode_length_sum": float(sum(step.episode_length[row] for step, row in ends)),
            "episode_frames_sum": float(sum(step.episode_frames[row] for step, row in ends)),
        }
        self._seen, self._done, self._ends = self._seen[-self._num_frames :], [], []
        return Block(rows, episodes, returns, updates, waited)


def _over_time(steps: list[Any]) -> tuple[Any, ...]:
    """Stack tuples of arrays [B, ...], one per step, to a tuple of arrays [B, steps, ...]."""
    return tuple(np.stack(x, axis=1) for x in zip(*steps, strict=True))
