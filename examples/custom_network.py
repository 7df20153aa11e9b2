"""Train a network of your own. Here the model of the environment is a GRU.

A `Model` is a tuple of pure functions, each of which takes the parameters of its own part only.
"""

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from purejax_sc import Config, EnvSpec, Model, Params, load, make_train
from purejax_sc.agent.transforms import from_logits
from purejax_sc.envs import make_env

WIDTH = 64


def make_model(config: Config, spec: EnvSpec) -> Model:
    """Build the encoder, the dynamics and the heads, with `config.muesli.bins` atoms for rewards and values."""

    def flat(frame: jax.Array) -> jax.Array:
        return frame.reshape(frame.shape[0], -1).astype(jnp.float32)

    encoder = nn.Sequential([flat, nn.Dense(WIDTH), nn.LayerNorm(), nn.relu, nn.Dense(WIDTH), jnp.tanh])
    dynamics, policy = nn.GRUCell(WIDTH), nn.Dense(spec.num_actions)
    scalar = nn.Dense(config.muesli.bins, kernel_init=nn.initializers.zeros)  # logits of a reward or a value

    def init(key: jax.Array) -> Params:
        z, a, frame = jnp.zeros((1, WIDTH)), jnp.zeros((1, spec.num_actions)), jnp.zeros((1, *spec.obs_shape))
        modules = Params(encoder, dynamics, scalar, scalar, scalar, policy, policy)
        inputs = Params((frame,), (z, a), (z,), (z,), (z,), (z,), (z,))
        keys = Params(*jax.random.split(key, len(modules)))
        return Params(*(module.init(k, *x) for module, k, x in zip(modules, keys, inputs, strict=True)))

    def encode(params: Any, obs: Any, carry: Any) -> Any:  # obs.frame: [T, B, ...]; there is no memory to carry
        e = encoder.apply(params, jax.lax.collapse(obs.frame, 0, 2))
        return e.reshape(*obs.frame.shape[:2], WIDTH), carry

    def step(params: Any, reward: Any, z: Any, a: Any) -> Any:  # z: [M, WIDTH], one-hot actions a: [M, A]
        z = dynamics.apply(params, z, a)[0]
        return z, scalar.apply(reward, z)

    heads = {"value": scalar.apply, "root_value": scalar.apply, "policy": policy.apply, "root_policy": policy.apply}
    decode = partial(from_logits, atoms=config.muesli.atoms)  # logits to numbers
    return Model(init, lambda batch_size: (), encode, lambda params, e: e, step, decode=decode, **heads)


if __name__ == "__main__":
    config = load("catch", ["train.env_steps=16_000", "sc.update=direct"])
    env = make_env(config)
    _, metrics = jax.jit(make_train(config, env=env, model=make_model(config, env.spec)))(jax.random.key(0))
    print("mean return:", metrics["episode_return_sum"][-20:].sum() / metrics["episode_count"][-20:].sum())
