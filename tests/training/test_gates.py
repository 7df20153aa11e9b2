"""The updates of the paper as an axis: gates that are numbers train as those that are known when it is compiled."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.batches import batch_of, hyper_of, make
from helpers.configs import assert_close

from purejax_sc.agent.consistency import UPDATES
from purejax_sc.types import Gates, LearnerState, Params

NAMES = tuple(UPDATES)


def stacked(names: tuple[str, ...]) -> Gates:
    """The gates of some updates, each [len(names)]."""
    return Gates(*(jnp.array(x) for x in zip(*(UPDATES[name] for name in names), strict=True)))


def gradient(state: LearnerState) -> Params:
    """Adam's first moment after one update: a tenth of the gradient. The first step itself knows only its sign."""
    return state.opt_state[0].mu


@pytest.fixture(scope="module")
def swept():
    """One update of every row of the table, and of the baseline as a weight of 0, by one program."""
    config, _, learner, state = make()
    weights = jnp.array([config.hyper.sc_weight] * len(NAMES) + [0.0])
    gates = jax.tree.map(lambda x: jnp.append(x, 1.0), stacked(NAMES))
    axes = jax.tree.map(lambda _: None, hyper_of(config))._replace(sc_weight=0, gates=Gates(0, 0, 0))
    hypers = hyper_of(config)._replace(sc_weight=weights, gates=gates)
    update = jax.jit(jax.vmap(learner.update, (None, None, None, axes)))
    return gradient(update(state, batch_of(jax.random.key(3)), jax.random.key(4), hypers)[0])


@pytest.mark.parametrize("name", [*NAMES, "none"])
def test_row_i_of_a_sweep_of_updates_equals_the_single_run(swept, name):
    config, _, learner, state = make(sc={"update": name})
    single = jax.jit(learner.update)(state, batch_of(jax.random.key(3)), jax.random.key(4), hyper_of(config))[0]
    row = (*NAMES, "none").index(name)
    assert_close(jax.tree.map(lambda x: x[row], swept), gradient(single), rtol=1e-4, atol=1e-7)


def test_no_two_updates_have_one_gradient(swept):
    """So that the test above can fail."""
    rows = np.concatenate([np.reshape(x, (len(NAMES) + 1, -1)) for x in jax.tree.leaves(swept)], axis=1)
    assert all(np.abs(rows[i] - rows[j]).max() > 1e-4 for i in range(len(rows)) for j in range(i))
