"""Random batches for a small learner, and the learner."""

import functools

import jax
import jax.numpy as jnp

from helpers.configs import small
from purejax_sc.agent import muesli, transforms
from purejax_sc.networks import make_model
from purejax_sc.types import EnvSpec, Moment, Observation, Sequence

T, B, A = 6, 4, 3
SPEC = EnvSpec(num_actions=A, obs_shape=(5,), obs_dtype=jnp.dtype(jnp.float32), two_player=False)


@functools.partial(jax.jit, static_argnums=1)
def batch_of(key, spec=SPEC):
    """Random sequences with a termination in column 1, a truncation in column 2 and an illegal action in column 3."""
    keys = jax.random.split(key, 5)
    legal = jnp.ones((T + 1, B, A), bool).at[:, 3, 2].set(False)
    valid = jnp.ones((T + 1, B), bool).at[3, 2].set(False)
    discount = jnp.ones((T, B)).at[2, 1].set(0.0).at[3, 2].set(0.0)
    reward = jax.random.normal(keys[0], (T, B)).at[3, 2].set(0.0)
    logits = transforms.masked_logits(jax.random.normal(keys[1], (T, B, A)), legal[:-1])
    action = jax.random.categorical(keys[2], logits)
    first = jnp.zeros((T + 1, B), bool).at[0].set(True).at[3, 1].set(True).at[4, 2].set(True)
    zeros = jnp.zeros((T + 1, B))
    frame = jax.random.normal(keys[3], (T + 1, B, *spec.obs_shape))
    obs = Observation(frame, legal, zeros.astype(jnp.int32), zeros, first, valid)
    return Sequence(obs, action, logits, reward, -discount if spec.two_player else discount, ())


def make(spec=SPEC, **sections):
    """config, model, learner and a state whose target differs from the online network and whose heads are awake."""
    config = small(**{"train": {"sequence_length": T}, **sections})
    model = make_model(config, spec)
    return (
        config,
        model,
        muesli.make_learner(config, model, spec),
        awake_state(config.network, config.muesli.bins, spec),
    )


@functools.cache
def awake_state(network, bins, spec):
    """The learner state of `make`: the same for all options that leave the network alone."""
    config = small(muesli={"bins": bins}).model_copy(update={"network": network})
    learner = muesli.make_learner(config, make_model(config, spec), spec)

    def awake(key):
        state = learner.init(key)
        leaves, structure = jax.tree.flatten(state.params)
        noise = [0.3 * jax.random.normal(jax.random.key(i), x.shape) for i, x in enumerate(leaves)]
        online = structure.unflatten([x + y for x, y in zip(leaves, noise, strict=True)])
        target = jax.tree.map(lambda x: 0.9 * x + 0.01, online)
        return state._replace(params=online, target=target, moment=Moment(jnp.float32(0.5), jnp.float32(0.9)))

    return jax.jit(awake)(jax.random.key(0))


def hyper_of(config, **values):
    return jax.tree.map(jnp.float32, config.hyper._replace(**values))
