"""Runs for tests: stopped at a log point, and on a trainer that compiles at once."""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from purejax_sc import config
from purejax_sc.runs.fit import Session, train
from purejax_sc.training import anakin, replay
from purejax_sc.training.anakin import Trainer
from purejax_sc.training.compiled import Point
from purejax_sc.training.train_state import TrainState


class Watch:
    """Notes what is said in `said`, and calls `stop` at the log point of update `at`."""

    def __init__(self, at: int | None = None, stop: Callable[[], None] = lambda: signal.raise_signal(signal.SIGINT)):
        self.said: list[str] = []
        self._at, self._stop = at, stop

    def say(self, text: str) -> None:
        self.said.append(text)

    def __call__(self, point: Point) -> None:
        if point.update == self._at:
            self._stop()

    @property
    def session(self) -> Session:
        return Session(say=self.say, on_log=self)


def at_once() -> None:
    """Stop without the checkpoint that a request to stop is answered with."""
    raise KeyboardInterrupt


@contextmanager
def counting(bad_seed: int = -1, bad_after: int = 0) -> Iterator[None]:
    """Give runs a trainer that counts iterations, whose return is 10 * seed + count.

    No episode ends in the first two iterations. The replay holds the last eight counts, whose sum is `replayed`. The
    loss of `bad_seed` is NaN after `bad_after` iterations.
    """

    def init(key: Any) -> TrainState:
        seed = jax.random.key_data(key)[-1].astype(jnp.float32)
        ring = replay.init(jax.ShapeDtypeStruct((), jnp.float32), 8)
        return TrainState({"seed": seed, "count": jnp.float32(0)}, (), (), ring, (), key)

    def iterate(whole: TrainState, hyper: Any) -> tuple[TrainState, dict[str, Any]]:
        state: Any = whole.learner
        count = state["count"] + 1
        ring = replay.add(whole.replay, count[None])
        bad = (state["seed"] == bad_seed) & (count > bad_after)
        ended = jnp.where(count > 2, 2.0, 0.0)
        loss = jnp.where(bad, jnp.nan, hyper.learning_rate)
        metrics = {
            "episode_count": ended,
            "episode_return_sum": ended * (10 * state["seed"] + count),
            "episode_length_sum": ended * 7,
            "loss": loss,
            "loss_value": loss,
            "loss_reward": jnp.float32(1.0),
            "aux": loss,
            "replayed": jnp.sum(ring.data),
        }
        learner: Any = {"seed": state["seed"], "count": count}
        return whole._replace(learner=learner, replay=ring), metrics

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(anakin, "make_trainer", lambda *_, **__: Trainer(init, iterate, lambda state: (state, {})))
        yield


def count(
    out: Path, num_seeds: int = 2, overrides: Sequence[str] = (), watch: Watch | None = None, **options: Any
) -> dict[str, Any]:
    """A run of the counter: 16 iterations of one update in 4 log points."""
    options = (watch or Watch()).session._asdict() | options
    with counting():
        return train(config.load("smoke", overrides), out, num_seeds, **options)


def stop_counting(out: Path, at: int, **options: Any) -> None:
    """A run of the counter that is asked to stop at an update."""
    with pytest.raises(KeyboardInterrupt):
        count(out, watch=Watch(at), **options)
