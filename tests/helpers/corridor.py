"""A corridor, and models of it, right and wrong, for which every number is known."""

import jax
import jax.numpy as jnp

from helpers.table_models import STATES, table_model, tables
from purejax_sc.types import Env, EnvSpec, Step

SPEC = EnvSpec(3, (STATES,), jnp.dtype(jnp.float32), two_player=False)
END = 3
SUCCESSORS, REWARDS = [[0, 1], [1, 2], [2, END], [END]], [[0, 1], [0, 2], [0, 3]]
VALUES = [1.0, 2.0, 3.0, 0.0]  # of a network that is not asked whether they are true


def corridor() -> Env:
    """States 0, 1, 2: action 0 stays, action 1 goes on and pays 1, 2, 3, at last into the end; action 2 is illegal."""

    def show(state, reward, ended):
        legal, number = jnp.array([True, True, False]), jnp.float32
        return Step(
            jax.nn.one_hot(state, STATES), legal, number(reward), number(~ended), jnp.bool(False), jnp.int32(0), {}
        )

    def step(key, state, action):
        after = state + action
        return after, show(after, jnp.where(action == 1, state + 1, 0), after == END)

    return Env(SPEC, lambda key, shared: (jnp.int32(0), show(0, 0, jnp.bool(False))), step)


def model_and_params(**other):
    """A model that is right, but for what is said of its own tables. The root heads are VALUES and even logits."""
    right = tables(SUCCESSORS, REWARDS, VALUES)
    own = tables(other.get("successors", SUCCESSORS), other.get("rewards", REWARDS), other.get("values", VALUES))
    model = table_model()._replace(encode=lambda encoder, obs, carry: (obs.frame, carry))
    return model, own._replace(root_value=right.root_value)
