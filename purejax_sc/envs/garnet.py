"""Garnet: random tabular MDPs (section "Tabular Experiments" of the paper's appendix)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purejax_sc.config import Config
from purejax_sc.types import PRNG, Array, Env, EnvSpec, Key, Step, Tree

NUM_STATES, NUM_ACTIONS = 20, 4  # the paper's
MAX_STEPS = 100


def sample_garnet(key: Key, num_states: int = NUM_STATES, num_actions: int = NUM_ACTIONS) -> tuple[Array, Array]:
    """Draw a Garnet MDP with S states and A actions.

    Each state draws its number of successors uniformly from 1..S, then a uniform subset of that size, shared by
    its actions. The probabilities of each (s, a) are uniform weights on the successors, normalised.

    Returns:
      P: float32 [S, A, S] transition probabilities.   R: float32 [S, A] rewards from N(0, 1).
    """
    key_weight, key_count, key_subset, key_reward = jax.random.split(key, 4)
    shape = (num_states, num_actions, num_states)
    # Never exactly 0: the weight of an only successor is a divisor.
    weight = jax.random.uniform(key_weight, shape, minval=jnp.finfo(jnp.float32).tiny)
    count = jax.random.randint(key_count, (num_states, 1), 1, num_states + 1)
    rank = jnp.tile(jnp.arange(num_states), (num_states, 1))
    rank = jax.random.permutation(key_subset, rank, axis=1, independent=True)
    weight = jnp.where((rank < count)[:, None, :], weight, 0.0)
    P = weight / jnp.sum(weight, axis=-1, keepdims=True)
    R = jax.random.normal(key_reward, (num_states, num_actions))
    return P, R


class GarnetState(NamedTuple):
    """s: int32, the state of the MDP.   time: int32, steps since the reset."""

    s: Array
    time: Array


def names() -> tuple[str, ...]:
    return ("garnet",)


def make(config: Config) -> Env:
    """One Garnet MDP, fixed by `mdp_seed`, with one-hot observations."""
    return adapt(*sample_garnet(jax.random.key(config.env_options.mdp_seed, impl=PRNG)))


def adapt(P: Array, R: Array, max_steps: int = MAX_STEPS) -> Env:  # noqa: N803
    """Make an `Env` of P [S, A, S] and R [S, A]. It starts in a uniform state and is truncated after `max_steps`."""
    num_states, num_actions = R.shape
    spec = EnvSpec(num_actions, (num_states,), np.dtype(np.float32), two_player=False)

    def show(state: GarnetState, reward: Array | float) -> Step:
        return Step(
            obs=jax.nn.one_hot(state.s, num_states, dtype=jnp.float32),
            legal=jnp.ones(num_actions, bool),
            reward=jnp.asarray(reward, jnp.float32),
            discount=jnp.ones((), jnp.float32),
            truncated=state.time >= max_steps,
            player=jnp.zeros((), jnp.int32),
            metrics={},
        )

    def init(key: Key, shared: Tree) -> tuple[GarnetState, Step]:
        state = GarnetState(jax.random.randint(key, (), 0, num_states), jnp.zeros((), jnp.int32))
        return state, show(state, 0.0)

    def step(key: Key, state: GarnetState, action: Array) -> tuple[GarnetState, Step]:
        s = jax.random.categorical(key, jnp.log(P[state.s, action])).astype(jnp.int32)
        after = GarnetState(s, state.time + 1)
        return after, show(after, R[state.s, action])

    return Env(spec, init, step)
