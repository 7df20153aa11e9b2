"""Models written down as tables: latents are one-hot states."""

import jax.numpy as jnp
import numpy as np

from purejax_sc.types import Model, Params

STATES = 6  # of every table, so that few programs serve all tests


def table_model() -> Model:
    """A model whose latents are one-hot states [M, S], and whose parts are tables: see `tables`."""

    def step(successor, reward, z, a):
        return jnp.einsum("ms,ma,sat->mt", z, a, successor), jnp.einsum("ms,ma,sa->m", z, a, reward)

    def read(table, z):
        return z @ table

    return Model(
        init=lambda key: None,
        initial_carry=lambda n: (),
        encode=lambda encoder, obs, carry: (obs, carry),
        start=lambda successor, e: e,
        step=step,
        value=read,
        policy=read,
        root_value=read,
        root_policy=read,
        decode=lambda out: out,
    )


def with_rules(model: Model, legal) -> Model:
    """The model, which says of every state the logits [A] that an action is legal, or of each its own [M, A]."""

    def rules(policy, z):
        logits = model.policy(policy, z)
        return logits, jnp.broadcast_to(legal, logits.shape)

    return model._replace(rules=rules)


def tables(successors, rewards=(), values=(), logits=(), actions=3) -> Params:
    """Tables of S states and A actions. successors: [S, A] states; rewards: [S, A]; values: [S]; logits: [S, A].

    What is left out is 0, and actions that a row leaves out do the same as its last.
    """
    successors = filled(successors, (STATES, actions)).astype(int)
    rewards, logits = filled(rewards, (STATES, actions)), filled(logits, (STATES, actions))
    values = filled(values, (STATES,))
    return Params((), jnp.array(np.eye(STATES, dtype=np.float32)[successors]), rewards, values, values, logits, logits)


def filled(rows, shape) -> np.ndarray:
    table = np.zeros(shape, np.float32)
    for i, row in enumerate(rows):
        table[i] = row if np.ndim(row) == 0 else [*row, *[row[-1]] * (shape[1] - len(row))]
    return table
