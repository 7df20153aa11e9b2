"""Actions that were really tried beside the one that was played: the model learns from them, and nothing else does.

A policy that has learned takes few of the actions that a search looks at. Those of a branch are drawn uniformly from
the legal ones. One step of the model with such an action has to give the real reward; the value and the policy that the
target network's root heads give the state it led to, for no return is known from there; and what is seen there, if the
model has to show observations. Arrays have the action tried in front: N actions in T states of B sequences.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from purejax_sc.agent import losses, showing, transforms
from purejax_sc.agent.transforms import Counted, masked_logits, scale_gradient
from purejax_sc.config import MuesliConfig
from purejax_sc.types import Array, Branch, Model, Observation, Params


class BranchTargets(NamedTuple):
    """What the root heads say of the states that the actions led to. Constants.

    value: [N, T, B] raw, 0 where the episode ended.   policy: [N, T, B, A].
    """

    value: Array
    policy: Array


class Branched(NamedTuple):
    """Losses of one model step, means over all that was tried, before their weights: [] each.

    gap: mean |v - target|, raw.   reconstructed: share of the observations that are shown without a mistake; it and the
    loss of reconstruction are 0 if the model has to show none.
    """

    reward: Array
    value: Array
    policy: Array
    reconstruction: Array
    gap: Array
    reconstructed: Array


def action_first(branch: Branch) -> Branch:
    """[T, B, N, ...] -> [N, T, B, ...]."""
    moved: Branch = jax.tree.map(lambda x: jnp.moveaxis(x, 2, 0), branch)
    return moved


def make_targets(model: Model, target: Params, branch: Branch) -> BranchTargets:
    """Judge the states that a branch [N, T, B, ...] led to by the root heads of the target network."""
    shape = branch.action.shape
    frame, legal, action, reward = (_flat(x) for x in (branch.frame, branch.legal, branch.action, branch.reward))
    obs = Observation(frame, legal, action, reward, jnp.zeros(len(action), bool), jnp.ones(len(action), bool))
    e = model.encode(target.encoder, jax.tree.map(lambda x: x[None], obs), ())[0][0]
    value = jnp.reshape(model.decode(model.root_value(target.root_value, e)), shape)
    policy = jax.nn.softmax(masked_logits(model.root_policy(target.root_policy, e), legal))
    running = branch.discount != 0
    targets = BranchTargets(jnp.where(running, value, 0.0), jnp.reshape(policy, (*shape, -1)))
    return jax.tree.map(jax.lax.stop_gradient, targets)


def compare(
    cfg: MuesliConfig,
    model: Model,
    params: Params,
    e: Array,
    branch: Branch,
    targets: BranchTargets,
    valid: Counted,
    running: Counted,
) -> Branched:
    """One step of the model from the encodings e [M, ...] of T * B states, by every action [N, T, B] that was tried.

    valid, running: [N, T, B] states that were acted in, and those of them whose episode went on after the action.
    """
    shape, num_actions = branch.action.shape, branch.legal.shape[-1]
    z = scale_gradient(model.start(params.dynamics, e), cfg.dynamics_gradient)
    z = _flat(jnp.broadcast_to(z, (shape[0], *z.shape)), 2)
    one_hot = jax.nn.one_hot(_flat(branch.action), num_actions)
    z, out_reward = model.step(params.dynamics, params.reward, z, one_hot)
    out_value, logits = model.value(params.value, z), model.policy(params.policy, z)

    def mean(x: Array, entries: Counted) -> Array:
        return jnp.mean(jax.vmap(transforms.masked_mean)(jnp.reshape(x, shape), *entries))

    def categorical(out: Array, target: Array) -> Array:
        probs = transforms.to_categorical(_flat(target), cfg.bins, cfg.bins_max, cfg.value_transform)
        return losses.cross_entropy(out, probs)

    shown = jnp.zeros((2, len(z)))
    if cfg.reconstruct:
        frame = _flat(branch.frame)[..., : cfg.reconstruct]
        shown = jnp.stack(showing.compare(model, params.dynamics, z, frame, _flat(branch.discount) != 0))
    return Branched(
        reward=mean(categorical(out_reward, branch.reward), valid),
        value=mean(categorical(out_value, targets.value), valid),
        policy=mean(losses.cross_entropy(logits, _flat(targets.policy)), running),
        reconstruction=mean(shown[0], valid),
        gap=mean(jnp.abs(model.decode(out_value) - _flat(targets.value)), running),
        reconstructed=mean(shown[1], running),
    )


def _flat(x: Array, axes: int = 3) -> Array:
    """Merge the first axes."""
    return jnp.reshape(x, (-1, *x.shape[axes:]))
