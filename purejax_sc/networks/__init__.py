"""Neural networks: `make_model` turns a kind of network into the pure functions of `types.Model`.

A kind is one file with its options, modules and a `parts.Kind`, and a row of `config.sections.KINDS`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from purejax_sc.agent.transforms import from_logits
from purejax_sc.config import Config, ConfigError
from purejax_sc.config.sections import kind_of
from purejax_sc.networks.parts import LinearDecoder, Parts
from purejax_sc.types import Array, EnvSpec, Key, Model, Observation, Params, Tree

POLICY_INIT = nn.initializers.truncated_normal(1e-2)  # near-uniform at the start
# Rewards and values start at exactly 0: with atoms up to +-300, small random logits are worth a whole unit of reward.
SCALAR_INIT = nn.initializers.zeros
DECODER = "reconstruction"  # key of the decoder's parameters among those of the dynamics


def make_model(config: Config, spec: EnvSpec) -> Model:
    """Build the model that `config.network` describes, for an environment. Raises ConfigError on impossible sizes."""
    read = _make_input(config, spec)
    seen = spec._replace(obs_shape=jax.eval_shape(read, jax.ShapeDtypeStruct(spec.obs_shape, spec.obs_dtype)).shape)
    parts = kind_of(config.network.kind).make(config.network, seen)
    at_root, per_action = parts.policy_head or parts.head, 2 if config.muesli.predict_legal else 1
    scalar_head = parts.head(config.muesli.bins, SCALAR_INIT)  # heads hold no parameters: one for reward and values
    policy_head = (parts.model_policy or at_root)(per_action * spec.num_actions, POLICY_INIT)
    root_policy_head = at_root(spec.num_actions, POLICY_INIT)
    decoder = _make_decoder(parts, config, seen)
    # typed loosely: flax's `apply` may also return mutable collections
    encoder: Callable[..., Any] = parts.encoder.apply
    apply_dynamics: Callable[..., Any] = parts.dynamics.apply
    policy: Callable[..., Any] = policy_head.apply
    root_policy: Callable[..., Any] = root_policy_head.apply
    scalar: Callable[..., Any] = scalar_head.apply

    def encode(params: Tree, obs: Observation, carry: Tree) -> tuple[Array, Tree]:
        e, carry = encoder(params, obs._replace(frame=read(obs.frame)), carry)
        return e.astype(jnp.float32), carry

    def transition(params: Tree, *inputs: Array, **method: str) -> Array:
        z: Array = apply_dynamics(params, *inputs, **method)
        return z.astype(jnp.float32)

    def step(dynamics: Tree, reward: Tree, z: Array, a: Array) -> tuple[Array, Array]:
        z_next = transition(dynamics, z, a)
        return z_next, scalar(reward, parts.read(z_next))

    def policy_and_legal(params: Tree, z: Array) -> tuple[Array, Array]:
        logits, legal = jnp.split(policy(params, parts.read(z)), 2, axis=-1)
        return logits, legal

    return Model(
        init=partial(_init, parts, (scalar_head, policy_head, root_policy_head), decoder, seen),
        initial_carry=parts.initial_carry,
        encode=encode,
        start=partial(transition, method="start"),
        step=step,
        value=lambda params, z: scalar(params, parts.read(z)),
        policy=lambda params, z: policy(params, parts.read(z))[:, : spec.num_actions],
        root_value=scalar,
        root_policy=root_policy,
        decode=partial(from_logits, atoms=config.muesli.atoms),
        reconstruct=decoder and (lambda params, z: decoder.apply({"params": params[DECODER]}, parts.read(z))),
        visible=(lambda frame: read(frame)[..., : config.muesli.reconstruct_planes]) if decoder else None,
        rules=policy_and_legal if config.muesli.predict_legal else None,
    )


def _make_input(config: Config, spec: EnvSpec) -> Callable[[Array], Array]:
    """Build the function that crops frames [..., *obs_shape] and selects planes. Raises ConfigError."""
    planes, crop, (*image, most) = config.network.input_planes, config.network.crop, spec.obs_shape or (0,)
    if planes is not None and (not planes or len(set(planes)) < len(planes) or max(planes) >= most):
        raise ConfigError(
            f"network.input_planes={list(planes)}: name planes of the {most} that observations of {config.env} have,"
            " each once, counted from 0, or leave it out"
        )
    if crop and (len(image) != 2 or min(image) <= 2 * crop):
        raise ConfigError(
            f"network.crop={crop} leaves nothing of an observation of {config.env}, which has the shape"
            f" {list(spec.obs_shape)}: set network.crop=0"
        )

    def read(frame: Array) -> Array:
        seen = frame[..., crop:-crop, crop:-crop, :] if crop else frame
        return seen if planes is None else jnp.take(seen, jnp.array(planes), axis=-1)

    return read


def _make_decoder(parts: Parts, config: Config, spec: EnvSpec) -> nn.Module | None:
    """Build the decoder of the first planes of the input; None without reconstruction. Raises ConfigError."""
    planes, (*points, most) = config.muesli.reconstruct_planes, spec.obs_shape or (0,)
    if not planes:
        return None
    if spec.obs_dtype.kind != "b":
        raise ConfigError(
            f"muesli.reconstruct_planes={planes} needs observations of bits, but those of {config.env} are"
            f" {spec.obs_dtype}: set muesli.reconstruct_planes=0"
        )
    if planes > most:
        raise ConfigError(
            f"muesli.reconstruct_planes={planes} is more than the {most} planes that are read of the observations of"
            f" {config.env}: set muesli.reconstruct_planes={most} or less"
        )
    return parts.decoder(planes) if parts.decoder else LinearDecoder((*points, planes))


def _init(
    parts: Parts, heads: tuple[nn.Module, nn.Module, nn.Module], decoder: nn.Module | None, spec: EnvSpec, key: Key
) -> Params:
    """Initialise every part from its own key. heads: of numbers, of the model's policy, of the root's."""
    scalar, policy, root_policy = heads
    key_encoder, key_dynamics, key_reward, key_value, key_root_value, key_policy, key_root_policy = jax.random.split(
        key, len(Params._fields)
    )
    (e, _), encoder = parts.encoder.init_with_output(key_encoder, _dummy_observation(spec), parts.initial_carry(1))
    e, a = e[0], jnp.zeros((1, spec.num_actions))
    # Run both methods of the dynamics: `start` may have parameters too.
    z, dynamics = parts.dynamics.init_with_output(key_dynamics, e, a, method=lambda m, e, a: m(m.start(e), a))
    if decoder:  # a separate key: the other parameters do not depend on the decoder
        key_decoder = jax.random.fold_in(key, len(Params._fields))
        dynamics = {**dynamics, DECODER: decoder.init(key_decoder, parts.read(z))["params"]}
    return Params(
        encoder=encoder,
        dynamics=dynamics,
        reward=scalar.init(key_reward, parts.read(z)),
        value=scalar.init(key_value, parts.read(z)),
        root_value=scalar.init(key_root_value, e),
        policy=policy.init(key_policy, parts.read(z)),
        root_policy=root_policy.init(key_root_policy, e),
    )


def _dummy_observation(spec: EnvSpec) -> Observation:
    """Return an observation [1, 1, ...] of the right shapes and types."""
    return Observation(
        frame=jnp.zeros((1, 1, *spec.obs_shape), spec.obs_dtype),
        legal=jnp.ones((1, 1, spec.num_actions), bool),
        prev_action=jnp.zeros((1, 1), jnp.int32),
        prev_reward=jnp.zeros((1, 1)),
        first=jnp.ones((1, 1), bool),
        valid=jnp.ones((1, 1), bool),
    )
