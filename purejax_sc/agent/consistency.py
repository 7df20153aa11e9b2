"""Self-consistency: updates that make a model and its values agree in imagination (Farquhar et al. 2021, section 3).

Every update is one choice of where gradients flow (`UPDATES`), applied to one rollout (`imagine`) and one set of
multi-step errors (`sc_errors`). A tabular `Model` takes the policy itself as the action, and returns expectations.
"""

from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from purejax_sc.agent import auxiliary, losses, returns, transforms
from purejax_sc.agent.transforms import ILLEGAL, Counted, flat, masked_logits, scale_gradient, with_uniform
from purejax_sc.types import Array, Gates, Key, Model, Params, Scalar, Sequence

# (k, policy logits [M, A] at z^k, key) -> (action vector [M, A], rho [M]): the imagination policy mu of step k + 1.
Mu = Callable[[int, Array, Key], tuple[Array, Array]]

UPDATES = {
    "residual": Gates(target=1.0, value=1.0, model=1.0),  # Eq. 4: both sides move
    "direct": Gates(target=0.0, value=1.0, model=1.0),  # Eq. 5: the target is fixed
    "reverse": Gates(target=1.0, value=0.0, model=0.0),  # Eq. 6: the prediction is fixed
    "dyna": Gates(target=0.0, value=1.0, model=0.0),  # direct, but only the value learns
    "model_only": Gates(target=0.0, value=0.0, model=1.0),  # direct, but only the model learns
}


class Rollout(NamedTuple):
    """K imagined steps. z: [K + 1, M, ...].   reward: [K, M] raw.   action: [K, M, A].   rho: [K, M], no gradient."""

    z: Array
    reward: Array
    action: Array
    rho: Array


def imagine(
    model: Model, params: Params, z_0: Array, logits_0: Array, mu: Mu, key: Key, unroll: int, gradient: float = 1.0
) -> Rollout:
    """Roll the model K steps under mu from z_0 [M, ...].

    Args:
      logits_0: [M, A] policy at the roots, from which mu picks the first action.
      gradient: scale of the gradient that passes back through each step's input, as in the grounded unroll.

    Gradients flow through states and rewards, never through the choice of actions or into the policy.
    """
    chex.assert_rank(logits_0, 2)
    chex.assert_equal_shape_prefix([z_0, logits_0], 1)
    zs, rewards, actions, rhos = [z_0], [], [], []
    logits = logits_0
    for k, key_step in enumerate(jax.random.split(key, unroll)):
        a, rho = mu(k, jax.lax.stop_gradient(logits), key_step)
        z, reward_out = model.step(params.dynamics, params.reward, scale_gradient(zs[-1], gradient), a)
        logits = auxiliary.masked_policy(model, params, z)
        zs.append(z)
        rewards.append(model.decode(reward_out))
        actions.append(a)
        rhos.append(jax.lax.stop_gradient(rho))
    return Rollout(jnp.stack(zs), jnp.stack(rewards), jnp.stack(actions), jnp.stack(rhos))


class ScErrors(NamedTuple):
    """Gated predictions and targets of a self-consistency loss: n terms, from k = 1 (0 with root).

    prediction: [n, M, ...] outputs of the value head at z^k.   target: [n, M] raw returns G_{k:K}.
    end: [M, ...] output of the value head at z^K.   scale: [n] worth at z^k of a unit of value at z^K.
    """

    prediction: Array
    target: Array
    end: Array
    scale: Array


def sc_errors(
    model: Model,
    params: Params,
    rollout: Rollout,
    discount: Scalar,
    gates: Gates,
    lambda_: Scalar = 1.0,
    root: Array | None = None,
    include_last: bool = False,
) -> ScErrors:
    """Pair v(z^k) with the bootstrapped return G_{k:K} of the rollout's own rewards and values (paper Eq. 7).

    G_{k:K} is V-trace over steps k + 1 .. K with ratios `rollout.rho`; on-policy it is the lambda-return, and with
    lambda = 1 the (K - k)-step return. The ratio of the first action enters only the k = 0 target.

    Args:
      discount: of one model step; negative in self-play.
      lambda_:  1 for the deep agent, 0 for the one-step errors of the tabular study.
      root:     None starts at k = 1. An encoding e [M, ...] adds k = 0, predicted by the root value head.
      include_last: adds k = K, whose target is v(z^K) itself.
    """
    chex.assert_equal_shape([rollout.reward, rollout.rho])
    chex.assert_equal_shape_prefix([rollout.z[1:], rollout.reward], 2)
    gated = params._replace(
        value=scale_gradient(params.value, gates.value), root_value=scale_gradient(params.root_value, gates.value)
    )
    num_compared = rollout.z.shape[0] - (1 if include_last else 2)  # of the states k = 1, 2, ...
    compared = scale_gradient(rollout.z, gates.model)[1 : num_compared + 1]
    # State by state, so that the compiler sees that both lists have the same forward pass.
    prediction = [model.value(gated.value, z) for z in compared]
    outputs = [model.value(params.value, z) for z in rollout.z[1:]]
    values = [model.decode(out) for out in outputs]
    if root is not None:
        prediction = [model.root_value(gated.root_value, scale_gradient(root, gates.model)), *prediction]
        values = [model.decode(model.root_value(params.root_value, root)), *values]
    v, first = jnp.stack(values), 1 if root is None else 0
    target = returns.vtrace(
        v[:-1], v[1:], rollout.reward[first:], discount * jnp.ones_like(v[1:]), rollout.rho[first:], lambda_
    )
    if include_last:
        target = jnp.concatenate([target, v[-1:]])
    scale = jnp.stack([jnp.asarray(discount, v.dtype) ** n for n in range(len(target))][::-1])
    if not include_last:
        scale = discount * scale
    target, end = scale_gradient((target, outputs[-1]), gates.target)
    return ScErrors(jnp.stack(prediction), target, end, scale)


def sc_distance(loss: str, model: Model, errors: ScErrors, atoms: np.ndarray) -> Array:
    """Compute l_v(G, v) per term and rollout [n, M] (L12). Gates are already in the arguments.

    cross_entropy:  G as a number (the paper's words). Its gradient narrows the prediction where the means agree.
    distributional: KL from the distribution of values at z^K, moved to the mean G. Vanishes, with its gradient, where
                    the distributions agree.
    """
    out, g = errors.prediction, errors.target
    if loss == "cross_entropy":
        return losses.cross_entropy(out, transforms.to_categorical(g, atoms))
    # V-trace moves the mean. The spread is that of the end, discounted, for every mu.
    scale = jnp.broadcast_to(errors.scale[:, None], g.shape)
    moved = g - scale * jnp.broadcast_to(model.decode(errors.end), g.shape)
    probs = jnp.broadcast_to(jax.nn.softmax(errors.end), out.shape)
    return losses.divergence(out, transforms.shift_categorical(probs, moved, scale, atoms))


# Search control: the imagination policies of section 4.2.


class StartStates(NamedTuple):
    """The M real states from which rollouts start. legal: bool [M, A].   epsilon: share of uniform actions.

    actions: int [K, M] taken there next, only the first [1, M] unless the rollout policy replays them.
    logits_mu: [K, M, A] of the policy that took them, None unless the rollout policy replays them.
    """

    legal: Array
    actions: Array
    logits_mu: Array | None
    epsilon: Scalar


class RolloutPolicy(NamedTuple):
    """Imagination policy. replays: take the K real actions that followed; rollouts start where an episode has them."""

    make: Callable[[StartStates], Mu]
    replays: bool = False


def mu_epsilon(epsilon: Scalar, legal: Array) -> Mu:
    """Build mu: a uniform action with probability epsilon, else pi; rho = pi / mu. Epsilon 0 is mu = pi with rho = 1.

    legal: bool [M, A] of the roots. In later states, actions that the model predicts to be illegal are masked (N12).
    """
    chex.assert_rank(legal, 2)
    chex.assert_type(legal, bool)

    def mu(k: int, logits: Array, key: Key) -> tuple[Array, Array]:
        allowed = legal if k == 0 else logits > ILLEGAL
        pi = jax.nn.softmax(masked_logits(logits, allowed))
        return _draw(key, with_uniform(pi, allowed, epsilon), pi)

    return mu


def mu_avoid_first(action: Array, legal: Array) -> Mu:
    """Build mu: pi without the first real action (int [M]), then pi. Needs no correction: rho = 1.

    A real action that was the only legal one is taken again.
    """
    chex.assert_rank([action, legal], [1, 2])
    chex.assert_type([action, legal], [int, bool])

    def mu(k: int, logits: Array, key: Key) -> tuple[Array, Array]:
        pi = jax.nn.softmax(logits)
        if k == 0:
            others = legal & ~jax.nn.one_hot(action, logits.shape[-1], dtype=bool)
            allowed = jnp.where(jnp.any(others, axis=-1, keepdims=True), others, legal)
            pi = jax.nn.softmax(masked_logits(logits, allowed))
        return _draw(key, pi, pi)

    return mu


def mu_original(actions: Array, logits_mu: Array | None) -> Mu:
    """Build mu: the real actions, int [K, M], drawn from logits_mu [K, M, A]; rho = pi / mu, or 1 without logits."""
    chex.assert_rank(actions, 2)
    chex.assert_type(actions, int)
    if logits_mu is not None:
        chex.assert_shape(logits_mu, (*actions.shape, None))

    def mu(k: int, logits: Array, key: Key) -> tuple[Array, Array]:
        del key
        a = jax.nn.one_hot(actions[k], logits.shape[-1])
        if logits_mu is None:
            return a, jnp.ones(len(a))
        log_rho = jnp.sum(a * (jax.nn.log_softmax(logits) - jax.nn.log_softmax(logits_mu[k])), axis=-1)
        return a, jnp.exp(log_rho)

    return mu


def _draw(key: Key, probs: Array, pi: Array) -> tuple[Array, Array]:
    """Sample from probs [M, A]. Return one-hot actions and pi / probs of each."""
    a = jax.nn.one_hot(jax.random.categorical(key, jnp.log(probs)), probs.shape[-1])
    return a, jnp.sum(a * pi, axis=-1) / jnp.sum(a * probs, axis=-1)


def choose_start_indices(key: Key, num_states: int, ratio: float) -> Array:
    """Choose the indices [round(ratio * num_states)] of the states that rollouts start from (section 4.3, scaling):
    every state floor(ratio) times, and a random subset for the rest.
    """
    assert ratio > 0, ratio
    whole, total = int(ratio), max(1, round(ratio * num_states))
    rest = total - whole * num_states
    every = jnp.tile(jnp.arange(num_states), whole)
    if not rest:
        return every
    return jnp.concatenate([every, jax.random.choice(key, num_states, (rest,), replace=False)])


def choose_starts(
    policy: RolloutPolicy,
    unroll: int,
    ratio: float,
    e: Array,
    logits: Array,
    batch: Sequence,
    valid: Counted,
    epsilon: Scalar,
    key: Key,
    axis: str | None = None,
) -> tuple[Array, Array, Counted, StartStates]:
    """Choose the M states that rollouts start from, `ratio` of those of the batch.

    Args:
      e:      [T * B, ...] encodings of the batch.
      logits: [T, B, A] policy logits of the batch.   valid: [T, B] its roots.

    Returns:
      e [M, ...], policy logits [M, A], the mask [M] of starts that count, and the facts that `policy` needs.
    """
    logits, usable, legal = flat(logits), flat(valid.mask), flat(batch.obs.legal[:-1])
    actions, logits_mu = flat(batch.action)[None], None
    if policy.replays:
        actions, logits_mu = (
            jnp.stack([flat(losses.shift(x, k)) for k in range(unroll)]) for x in (batch.action, batch.logits)
        )
        # The K actions must stay inside their episode and sequence.
        usable = flat(losses.unroll_masks(batch.discount, batch.obs.valid[:-1], unroll - 1).live[-1])
    if ratio != 1:
        index = choose_start_indices(key, e.shape[0], ratio)
        e, logits, usable, legal = (x[index] for x in (e, logits, usable, legal))
        actions, logits_mu = jax.tree.map(lambda x: x[:, index], (actions, logits_mu))
    starts = StartStates(legal, actions, logits_mu, epsilon)
    if policy.replays or ratio != 1:
        return e, logits, Counted(usable, transforms.count_masks(usable[None], axis).size), starts
    return e, logits, Counted(usable, valid.size), starts


def perturb(key: Key, latent: Array, x: Scalar) -> Array:
    """Return latent * U(1 - x, 1 + x), drawn for each element (section 4.2, latent noise)."""
    chex.assert_type(latent, float)
    return latent * jax.random.uniform(key, latent.shape, latent.dtype, 1.0 - x, 1.0 + x)


ROLLOUT_POLICIES = {
    "pi": RolloutPolicy(lambda starts: mu_epsilon(0.0, starts.legal)),
    "epsilon": RolloutPolicy(lambda starts: mu_epsilon(starts.epsilon, starts.legal)),
    "avoid_first": RolloutPolicy(lambda starts: mu_avoid_first(starts.actions[0], starts.legal)),
    "original": RolloutPolicy(lambda starts: mu_original(starts.actions, starts.logits_mu), replays=True),
}
