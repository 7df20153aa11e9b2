"""What the shipped configurations promise, as learning curves of several seeds. Minutes long: pytest -m slow."""

import numpy as np
import pytest

from purejax_sc import program
from purejax_sc.config import load
from purejax_sc.devices import make_layout

SEEDS = 5

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def mean_returns(name: str, overrides: list[str], windows: list[tuple[int, int]]) -> list[float]:
    """Mean return [windows] over the seeds and over the episodes that end in each window (first, last] of env steps."""
    config = load(name, overrides)
    layout = make_layout(SEEDS)
    trainer = program.make_local_trainer(config, layout)
    compiled = program.compile_program(trainer, config, range(SEEDS), [config.hyper] * SEEDS, layout)
    states, done, returns = compiled.init(), 0, []
    for until in (step for window in windows for step in window):
        n = until // config.steps_per_iteration - done
        states, metrics = compiled.chunk(states, n)
        done += n
        returns.append(float(np.mean(metrics["episode_return_sum"][:SEEDS] / metrics["episode_count"][:SEEDS])))
    return returns[1::2]


@pytest.mark.parametrize("update", ["none", "direct"])
def test_catch_is_learned_in_64_000_steps(update):
    assert mean_returns("catch", [f"sc.update={update}"], [(60_000, 64_000)])[0] >= 0.95


@pytest.mark.parametrize("update", ["none", "direct"])
def test_cartpole_is_learned_in_100_000_steps(update):
    early, late = mean_returns("cartpole", [f"sc.update={update}"], [(7_000, 9_000), (95_000, 100_000)])
    assert early >= 163
    assert late >= 450


@pytest.mark.parametrize("update", ["none", "direct"])
def test_breakout_is_learned_in_1_000_000_steps(update):
    assert mean_returns("minatar_breakout", [f"sc.update={update}"], [(900_000, 1_000_000)])[0] >= 32
