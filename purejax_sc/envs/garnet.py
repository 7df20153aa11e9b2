"""Garnet: random tabular MDPs (section "Tabular Experiments" of the paper's appendix)."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from gymnax.environments import environment, spaces

from purejax_sc import memory
from purejax_sc.config import Config, EnvOptions
from purejax_sc.envs.base import check_options
from purejax_sc.envs.gymnax import adapt
from purejax_sc.types import Array, Env, Key

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


@struct.dataclass
class GarnetState(environment.EnvState):
    """s: int32, the state of the MDP. time: int32, steps since the reset."""

    s: Array


@struct.dataclass(kw_only=True)
class GarnetParams(environment.EnvParams):
    """P: [S, A, S] and R: [S, A], see `sample_garnet`. `vmap` over them runs many MDPs at once."""

    P: Array
    R: Array
    max_steps_in_episode: int = MAX_STEPS


class Garnet(environment.Environment[GarnetState, GarnetParams]):
    """A continuing MDP: it starts in a uniform state, never terminates, and is cut by the time limit."""

    def __init__(self, num_states: int = NUM_STATES, num_actions: int = NUM_ACTIONS):
        super().__init__()
        self.num_states = num_states
        self._num_actions = num_actions

    @property
    def num_actions(self) -> int:
        return self._num_actions

    @property
    def default_params(self) -> GarnetParams:
        P, R = sample_garnet(jax.random.key(0), self.num_states, self.num_actions)
        return GarnetParams(P=P, R=R)

    def step_env(
        self, key: Key, state: GarnetState, action: Array, params: GarnetParams
    ) -> tuple[Array, GarnetState, Array, Array, dict[str, Any]]:
        s = jax.random.categorical(key, jnp.log(params.P[state.s, action])).astype(jnp.int32)
        reward = params.R[state.s, action]
        state = GarnetState(s=s, time=state.time + 1)
        return s, state, reward, self.is_terminated(state, params), {}

    def reset_env(self, key: Key, params: GarnetParams) -> tuple[Array, GarnetState]:
        s = jax.random.randint(key, (), 0, self.num_states)
        return s, GarnetState(s=s, time=jnp.zeros((), jnp.int32))

    def get_obs(self, state: GarnetState, params: GarnetParams | None = None, key: Key | None = None) -> Array:
        return state.s

    def is_terminated(self, state: GarnetState, params: GarnetParams) -> Array:
        return jnp.zeros((), bool)

    def action_space(self, params: GarnetParams | None = None) -> spaces.Discrete:
        return spaces.Discrete(self.num_actions)

    def observation_space(self, params: GarnetParams | None = None) -> spaces.Discrete:
        return spaces.Discrete(self.num_states)


def names() -> tuple[str, ...]:
    return ("garnet",)


def make(config: Config) -> Env:
    """Raises LookupError for another name, and ConfigError."""
    if config.env not in names():
        raise LookupError(config.env)
    return make_garnet(config.env_options)


def make_garnet(options: EnvOptions) -> Env:
    """One Garnet MDP, fixed by `options.mdp_seed`, with one-hot observations. Raises ConfigError."""
    check_options("garnet", options, ("states", "actions", "mdp_seed"))
    num_states, num_actions = options.states or NUM_STATES, options.actions or NUM_ACTIONS
    cure = f"env_options.states={num_states} or env_options.actions={num_actions}"
    memory.check(4 * num_states**2 * num_actions, memory.free_on_host(), "this machine", cure)
    P, R = sample_garnet(jax.random.key(options.mdp_seed or 0), num_states, num_actions)
    params = GarnetParams(P=P, R=R, max_steps_in_episode=MAX_STEPS)
    return adapt(Garnet(num_states, num_actions), params)
