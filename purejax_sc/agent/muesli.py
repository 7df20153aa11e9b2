"""Muesli with self-consistency: the learner, in the order of the paper's Algorithm 1.

    act            actions by the target network's policy
    make_targets   target network: one-step q, Retrace or V-trace, moving moment, CMPO       no gradient
    grounded_loss  the model along K real actions: six losses, one weighted sum              Eq. 2
    sc_loss        the model in imagination under mu: v(z^k) against G_{k:K}                 Eq. 4 to 7
    update         gradient, mean over devices, Adam, clip, learning rate; the target network follows

Arrays are time-major: T transitions of B sequences, M = T * B roots. Wherever a network is called the roots are one
flat batch axis. Hessel et al. 2021 is "Muesli"; Farquhar et al. 2021 is "the paper". Labels such as L4 are the readings
of docs/algorithm.md: where the papers leave a choice, the comment beside a label names the one that is made.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import chex
import distrax
import jax
import jax.numpy as jnp
import optax

from purejax_sc.agent import auxiliary, consistency, losses, returns, transforms
from purejax_sc.agent.losses import UnrollMasks, shift
from purejax_sc.agent.transforms import Counted, flat, masked_logits, masked_mean, mean_over, steps_of
from purejax_sc.config import Config, ConfigError, Hyper, MuesliConfig
from purejax_sc.types import (
    Array,
    EnvSpec,
    Key,
    LearnerState,
    Model,
    Moment,
    Observation,
    Params,
    Scalar,
    Sequence,
    Tree,
)

Metrics = dict[str, Array]

DYNAMICS_GRADIENT = 0.5  # L9: scale of the gradient at the start of each model step, as in MuZero
MOMENT_EPSILON = 1e-12  # epsilon_var of Muesli, table 5
UPDATE_CLIP = 1.0  # bound of each entry of Adam's update, before the learning rate (Muesli, appendix)


class Learner(NamedTuple):
    """init: (key) -> state.   update: (state, batch, key, hyper) -> (state, metrics)."""

    init: Callable[[Key], LearnerState]
    update: Callable[[LearnerState, Sequence, Key, Hyper], tuple[LearnerState, Metrics]]


class Masks(NamedTuple):
    """Entries that the losses are means over, each with its count (`transforms.Counted`).

    valid: [T, B] roots.
    live:  [K + 1, T, B] states k model steps after a root that the data acts in: value, reward and policy are known.
    known: [K + 1, T, B] those and the states beyond the end of an episode, whose reward and value are known.
    """

    valid: Counted
    live: Counted
    known: Counted


class Targets(NamedTuple):
    """Constant targets. policy: [T, B, A] pi_CMPO by action.   value: [T, B] raw.   adv: [T, B] (G - v) / sigma."""

    policy: Array
    value: Array
    adv: Array


class Unrolled(NamedTuple):
    """Outputs of K model steps from M roots, one step after the other.

    reward: [K * M, bins] of the steps from k = 0 .. K - 1.   value: [K * M, bins], policy: [K * M, A] at k = 1 .. K.
    legal:  [K * M, A] logits that an action is legal at k = 1 .. K; None if the model does not predict it.
    z:      [(K + 1) * M, ...] model states at k = 0 .. K.
    """

    reward: Array
    value: Array
    policy: Array
    legal: Array | None
    z: Array


# Acting


def act(
    model: Model, params: Params, obs: Observation, carry: Tree, key: Key, hyper: Hyper
) -> tuple[Array, Array, Tree]:
    """Sample actions from the policy, with a share `hyper.acting_epsilon` of uniform ones.

    Args:
      params: those of the target network, which acts (L7).
      obs:    [B, ...].   carry: recurrent state of the encoder before it.

    Returns:
      Actions int32 [B], the logits [B, A] they were drawn by, and the carry after the observation.
    """
    e, carry = model.encode(params.encoder, jax.tree.map(lambda x: x[None], obs), carry)
    logits = masked_logits(model.root_policy(params.root_policy, e[0]), obs.legal)

    def explored(logits: Array) -> Array:
        mu = transforms.with_uniform(jax.nn.softmax(logits), obs.legal, hyper.acting_epsilon)
        return masked_logits(jnp.log(mu), obs.legal)

    # Under a condition: mixing in a share of 0 would round the policy.
    logits = jax.lax.cond(hyper.acting_epsilon > 0, explored, lambda logits: logits, logits)
    return distrax.Categorical(logits=logits).sample(seed=key), logits, carry


# Targets


def make_targets(
    cfg: MuesliConfig,
    model: Model,
    state: LearnerState,
    batch: Sequence,
    masks: Masks,
    hyper: Hyper,
    gamma: Scalar,
    key: Key,
    axis: str | None = None,
) -> tuple[Targets, Moment, Metrics]:
    """Compute all targets of the grounded losses from the target network (Muesli sections 3 and 4).

    Args:
      gamma: discount of one model step; negative in self-play, where the player to move changes at every step.
      axis:  mesh axis along which devices share the batch, see `make_learner`.

    Returns:
      The targets, the second moment of the advantages with this batch, metrics.
    """
    losses.check_batch(batch)
    target, time_batch, valid = state.target, batch.obs.valid.shape, batch.obs.valid[:-1]
    e = flat(model.encode(target.encoder, batch.obs, batch.carry)[0])  # of all T + 1 states
    v = jnp.reshape(model.decode(model.root_value(target.root_value, e)), time_batch)
    logits = jnp.reshape(model.root_policy(target.root_policy, e), (*time_batch, -1))
    log_prior = _log_prior(jax.nn.log_softmax(masked_logits(logits, batch.obs.legal)), batch, hyper)
    q_taken, q, actions = _action_values(cfg.num_action_samples, model, target, e, log_prior, batch.action, gamma, key)

    # Returns of the prior (L6) from data of the behaviour policy.
    rho = jnp.where(valid, transforms.importance_ratio(log_prior[:-1], batch.logits, batch.action), 0.0)
    discount_t = hyper.discount * batch.discount
    v_q = jnp.sum(jnp.exp(jax.nn.log_softmax(log_prior)) * q, axis=-1) if actions is None else jnp.mean(q, axis=0)
    if cfg.returns == "retrace":
        g = returns.retrace(batch.reward, discount_t, v_q[1:], q_taken[1:], rho[1:], hyper.lambda_)
        value = v_q[:-1] + jnp.minimum(1.0, rho) * (g - q_taken)  # L4: from the return of the action to the state's
    else:
        value = returns.vtrace(v[:-1], v[1:], batch.reward, discount_t, rho, hyper.lambda_)
        v_next = jnp.concatenate([hyper.lambda_ * value[1:] + (1 - hyper.lambda_) * v[1:-1], v[-1:]])
        g = batch.reward + discount_t * v_next

    adv = g - v[:-1]  # N3: the baseline is the target network's value
    square = transforms.device_mean(masked_mean(adv**2, *masks.valid), axis)
    moment = transforms.update_moment(state.moment, square, hyper.moment_decay)
    sigma = jnp.sqrt(transforms.moment_mean(moment) + MOMENT_EPSILON)
    unit = sigma * hyper.cmpo_temperature
    if actions is None:
        adv_q = (q - v[..., None]) / unit
        policy = losses.cmpo_policy(log_prior, adv_q, hyper.cmpo_clip)
        clipped = jnp.mean(jnp.abs(adv_q[:-1]) > hyper.cmpo_clip, axis=-1)
    else:
        adv_q = (q - v[None]) / unit
        policy = losses.cmpo_sampled(actions, adv_q, log_prior.shape[-1], hyper.cmpo_clip)
        clipped = jnp.mean(jnp.abs(adv_q[:, :-1]) > hyper.cmpo_clip, axis=0)
    means = {"rho": rho, "value_target": value, "adv_clipped": clipped}
    means["value_clipped"] = (jnp.abs(transforms.signed_hyperbolic(value)) > cfg.atoms[-1]).astype(value.dtype)
    metrics = {"sigma": sigma} | {name: masked_mean(x, *masks.valid) for name, x in means.items()}
    return jax.tree.map(jax.lax.stop_gradient, (Targets(policy[:-1], value, adv / sigma), moment, metrics))


def _log_prior(log_target: Array, batch: Sequence, hyper: Hyper) -> Array:
    """log pi_prior [T + 1, B, A]: target, behaviour (at T the target again) and uniform policy mixed."""
    legal = batch.obs.legal
    behaviour = jax.nn.softmax(jnp.concatenate([batch.logits, log_target[-1:]]))
    uniform = legal.astype(behaviour.dtype) / transforms.count_legal(legal, behaviour.dtype)
    rest = 1.0 - hyper.prior_behaviour - hyper.prior_uniform
    mixture = rest * jnp.exp(log_target) + hyper.prior_behaviour * behaviour + hyper.prior_uniform * uniform
    return masked_logits(jnp.log(mixture), legal)


def _action_values(
    num_samples: int, model: Model, target: Params, e: Array, log_prior: Array, action: Array, gamma: Scalar, key: Key
) -> tuple[Array, Array, Array | None]:
    """Compute q(s, a) = r^1 + gamma v^1 by one model step from every state e [(T + 1) B, ...] (Muesli Eq. 14).

    Returns:
      q of the actions taken [T, B]; then q of every action [T + 1, B, A] and None, or with num_samples = N > 0 draws
      from the prior, q of these [N, T + 1, B] and the actions int [N, T + 1, B].
    """
    num_actions, time_batch = log_prior.shape[-1], log_prior.shape[:-1]
    z = model.start(target.dynamics, e)

    def q_of(a: Array) -> Array:
        z_1, reward = model.step(target.dynamics, target.reward, z, a)
        return model.decode(reward) + gamma * model.decode(model.value(target.value, z_1))

    prior = distrax.Categorical(logits=log_prior)
    actions = prior.sample(seed=key, sample_shape=num_samples) if num_samples else None
    if actions is None or num_actions <= num_samples + 1:  # all actions cost no more than the samples
        every = jnp.broadcast_to(jnp.eye(num_actions)[:, None], (num_actions, e.shape[0], num_actions))
        table = jnp.moveaxis(jnp.reshape(jax.vmap(q_of)(every), (num_actions, *time_batch)), 0, -1)
        q_taken = transforms.at_action(table[:-1], action)
        return q_taken, table if actions is None else jax.vmap(partial(transforms.at_action, table))(actions), actions
    tried = jnp.concatenate([actions, jnp.concatenate([action, actions[0, -1:]])[None]])
    one_hot = jax.nn.one_hot(jnp.reshape(tried, (num_samples + 1, -1)), num_actions)
    q = jnp.reshape(jax.vmap(q_of)(one_hot), (num_samples + 1, *time_batch))
    return q[-1, :-1], q[:-1], actions


# The model along the data


def grounded_loss(
    cfg: MuesliConfig,
    model: Model,
    params: Params,
    batch: Sequence,
    targets: Targets,
    masks: Masks,
    hyper: Hyper,
    gamma: Scalar,
) -> tuple[Array, Array, Array, Metrics]:
    """Compute the Muesli loss: policy and value at the root; reward, value and policy over K model steps (Eq. 2).

    Returns:
      The loss [], encodings e [M, ...] and masked policy logits [T, B, A] of the roots, metrics.
    """
    losses.check_batch(batch)
    obs = jax.tree.map(lambda x: x[:-1], batch.obs)
    e = flat(model.encode(params.encoder, obs, batch.carry)[0])
    logits = jnp.reshape(model.root_policy(params.root_policy, e), (*batch.action.shape, -1))
    logits = masked_logits(logits, obs.legal)
    out_v0 = model.root_value(params.root_value, e)
    out = unroll(cfg, model, params, e, batch.action, logits.shape[-1])
    v_target, r_target, pi_target = _unroll_targets(cfg, batch, targets, masks, logits, gamma)

    def categorical(out: Array, target: Array) -> Array:
        return losses.cross_entropy(out, transforms.to_categorical(flat(target), cfg.atoms))

    # One number per root [M], or per model step and root [K * M], until the means below.
    rho = transforms.importance_ratio(jax.nn.log_softmax(logits), batch.logits, batch.action)
    pg = losses.policy_gradient(logits, batch.action, jnp.minimum(1.0, rho), targets.adv)  # L14
    cmpo = losses.cross_entropy(logits, targets.policy)
    value = categorical(out_v0, v_target[0])
    model_value = categorical(out.value, flat(v_target[1:]))
    reward = categorical(out.reward, flat(r_target))
    model_policy = losses.cross_entropy(out.policy, flat(flat(pi_target)))

    loss_pg, loss_cmpo, loss_value = (mean_over(x, masks.valid) for x in (pg, cmpo, value))
    loss_model_value = mean_over(model_value, steps_of(masks.known, 1, None))  # [K]
    loss_reward = mean_over(reward, steps_of(masks.known, 0, -1))
    loss_model_policy = mean_over(model_policy, steps_of(masks.live, 1, None))
    per_step = 1 / cfg.unroll  # L2: the root's loss, and the mean of those of the model steps
    loss = (
        hyper.pg_weight * loss_pg  # L1: the weight is that of the policy gradient alone
        + hyper.cmpo_weight * loss_cmpo
        + hyper.model_policy_weight * jnp.mean(loss_model_policy)
        + hyper.value_weight * loss_value
        + hyper.model_value_weight * per_step * jnp.sum(loss_model_value)
        + hyper.reward_weight * per_step * jnp.sum(loss_reward)
    )
    per_k = {"loss_model_policy": loss_model_policy, "loss_model_value": loss_model_value, "loss_reward": loss_reward}
    metrics = {"loss_pg": loss_pg, "loss_cmpo": loss_cmpo, "loss_value": loss_value}
    metrics |= {name: jnp.mean(x) for name, x in per_k.items()} | _policy_metrics(logits, targets.policy, masks)
    metrics |= _value_metrics(model, out_v0, out.value, v_target, masks)
    if cfg.reconstruct_planes or cfg.predict_legal:
        asked = masks.live if cfg.terminal_value == "outcome" else masks.known
        extra, shown = auxiliary.auxiliary_loss(model, params, out.z, out.legal, batch, masks.live, asked)
        loss, metrics = loss + hyper.aux_weight * extra, metrics | shown
    return loss, e, logits, metrics


def unroll(cfg: MuesliConfig, model: Model, params: Params, e: Array, action: Array, num_actions: int) -> Unrolled:
    """Roll the model K steps from every root e [M, ...] along the actions [T, B] of the data (the model in Eq. 2)."""
    # Past the end of a sequence the shifted actions wrap around: random padding under the masks.
    one_hot = jax.nn.one_hot(action, num_actions)
    z = model.start(params.dynamics, e)
    zs, rewards = [z], []
    for k in range(cfg.unroll):
        a = flat(shift(one_hot, k))
        z, out = model.step(params.dynamics, params.reward, transforms.scale_gradient(z, DYNAMICS_GRADIENT), a)
        zs.append(z)
        rewards.append(out)
    z_all, z_later = jnp.concatenate(zs), jnp.concatenate(zs[1:])
    # Distillation (the aux_* configurations) must not shape the representation: the latents are fixed there.
    z_policy = transforms.scale_gradient(z_later, 0 if cfg.model_policy == "distill" else 1)
    out_pi, legal = auxiliary.policy_and_legality(model, params, z_policy)
    return Unrolled(jnp.concatenate(rewards), model.value(params.value, z_later), out_pi, legal, z_all)


def _unroll_targets(
    cfg: MuesliConfig, batch: Sequence, targets: Targets, masks: Masks, logits: Array, gamma: Scalar
) -> tuple[Array, Array, Array]:
    """Shift the targets along the model steps: value [K + 1, T, B], reward [K, T, B], policy [K, T, B, A]."""
    live, known = masks.live.mask, masks.known.mask
    reward, ends = auxiliary.follow_ends(batch.reward, UnrollMasks(live, known & ~live), gamma, cfg.terminal_value)
    value = jnp.stack([shift(targets.value, k) for k in range(cfg.unroll + 1)])  # N9: returns of the states reached
    policy = jax.lax.stop_gradient(jax.nn.softmax(logits)) if cfg.model_policy == "distill" else targets.policy
    policies = jnp.stack([shift(policy, k) for k in range(1, cfg.unroll + 1)])
    return jnp.where(live, value, ends), reward, policies


# The model in imagination


def sc_loss(
    config: Config,
    model: Model,
    params: Params,
    e: Array,
    logits: Array,
    batch: Sequence,
    masks: Masks,
    hyper: Hyper,
    gamma: Scalar,
    key: Key,
    axis: str | None = None,
    sc_errors: Callable[..., consistency.ScErrors] = consistency.sc_errors,
) -> tuple[Array, Metrics]:
    """Compute L_sc: rollouts from the states of the batch, v(z^k) against G_{k:K}, gradients by the gates (Eq. 7).

    Args:
      e:      [M, ...] encodings of the roots. Gradients reach the encoder (L11).   logits: [T, B, A] masked, theirs.
    """
    cfg = config.sc
    chex.assert_equal_shape([logits, batch.logits])
    key_roots, key_noise, key_rollout = jax.random.split(key, 3)
    policy, epsilon = cfg.policy, hyper.rollout_epsilon
    e, logits, usable, starts = consistency.choose_starts(
        policy, cfg.unroll, cfg.rollout_ratio, e, logits, batch, masks.valid, epsilon, key_roots, axis
    )
    if cfg.noise_on == "encoding":  # N7
        e = consistency.perturb(key_noise, e, hyper.latent_noise)
        logits = masked_logits(model.root_policy(params.root_policy, e), starts.legal)
    z_0, mu = model.start(params.dynamics, e), policy.make(starts)
    rollout = consistency.imagine(model, params, z_0, logits, mu, key_rollout, cfg.unroll, DYNAMICS_GRADIENT)
    # Gates of the table are Python numbers, which cut the backward pass where they are 0; traced gates only scale it.
    gates = cfg.gates if hyper.gates is None else hyper.gates
    errors = sc_errors(model, params, rollout, gamma, gates, include_last=cfg.include_last)
    mean = jax.vmap(lambda x: masked_mean(x, *usable))  # [n, M] -> [n]
    distance = consistency.sc_distance(cfg.loss, model, errors, config.muesli.atoms)
    loss = jnp.mean(mean(distance))  # L3: over k
    td = mean(jnp.abs(jax.vmap(model.decode)(errors.prediction) - errors.target))
    return loss, {"loss_sc": loss} | {f"sc_error_{k + 1}": td[k] for k in range(td.shape[0])}


# The update


def make_learner(
    config: Config,
    model: Model,
    spec: EnvSpec,
    axis: str | None = None,
    sc_errors: Callable[..., consistency.ScErrors] = consistency.sc_errors,
) -> Learner:
    """Build the one learner that every driver calls. It knows nothing of environments or replay.

    Args:
      axis: mesh axis along which devices share the batch. Parameters move by the mean gradient, as on one device.
      sc_errors: what L_sc compares with what: the place for a target of your own.

    Raises ConfigError for an auxiliary task that the model lacks.
    """
    if config.muesli.reconstruct_planes and (model.reconstruct is None or model.visible is None):
        raise ConfigError("muesli.reconstruct_planes needs a model with `reconstruct` and `visible`: set it to 0")
    if config.muesli.predict_legal and model.rules is None:
        raise ConfigError("muesli.predict_legal=true needs a model with `rules`: set it to false")
    cfg, uses_sc = config.muesli, config.sc.update != "none"
    optimiser = optax.chain(optax.scale_by_adam(), optax.clip(UPDATE_CLIP))

    def init(key: Key) -> LearnerState:
        params = model.init(key)
        target = jax.tree.map(jnp.copy, params)  # a copy: the driver donates both
        return LearnerState(params, target, optimiser.init(params), transforms.init_moment(), jnp.zeros((), jnp.int32))

    def update(state: LearnerState, batch: Sequence, key: Key, hyper: Hyper) -> tuple[LearnerState, Metrics]:
        key_targets, key_sc = jax.random.split(key)
        gamma, masks = (-hyper.discount if spec.two_player else hyper.discount), count_masks(cfg, batch, axis)
        targets, moment, target_metrics = make_targets(cfg, model, state, batch, masks, hyper, gamma, key_targets, axis)

        def loss_fn(params: Params, sc_params: Params) -> tuple[Array, Metrics]:
            loss, e, logits, metrics = grounded_loss(cfg, model, params, batch, targets, masks, hyper, gamma)
            if not uses_sc:
                return loss, metrics
            sc, sc_metrics = sc_loss(
                config, model, sc_params, e, logits, batch, masks, hyper, gamma, key_sc, axis, sc_errors
            )
            return loss + hyper.sc_weight * sc, metrics | sc_metrics  # Eq. 3

        # Two gradients of one loss; the encoding that both parts share belongs to the first. They are added under a
        # condition: a bare addition is compiled into the first, whose rounding a weight of 0 would then change.
        value_and_grads = jax.value_and_grad(loss_fn, (0, 1), has_aux=True)
        (loss, metrics), (grads, sc_grads) = value_and_grads(state.params, state.params)
        if uses_sc:
            grads = jax.lax.cond(hyper.sc_weight > 0, partial(jax.tree.map, jnp.add), lambda x, _: x, grads, sc_grads)
        grads, loss, metrics, target_metrics = transforms.device_mean((grads, loss, metrics, target_metrics), axis)
        with jax.numpy_dtype_promotion("standard"):  # Adam raises a float to the power of its integer count
            steps, opt_state = optimiser.update(grads, state.opt_state)
        rate = hyper.learning_rate * jnp.maximum(0.0, 1.0 - state.updates / config.num_updates)
        params = jax.tree.map(lambda p, step: p - rate * step, state.params, steps)
        target = optax.incremental_update(params, state.target, hyper.target_rate)
        metrics = {"loss": loss} | metrics | target_metrics
        metrics |= {"grad_norm": optax.tree.norm(grads), "learning_rate": rate}
        return LearnerState(params, target, opt_state, moment, state.updates + 1), metrics

    return Learner(init, update)


def count_masks(cfg: MuesliConfig, batch: Sequence, axis: str | None = None) -> Masks:
    """Make the masks of a batch, counted over the devices that share it."""
    masks = losses.unroll_masks(batch.discount, batch.obs.valid[:-1], cfg.unroll)
    return Masks(*transforms.count_masks((masks.live[0], masks.live, masks.live | masks.absorbed), axis))


# Metrics


def _policy_metrics(logits: Array, pi_cmpo: Array, masks: Masks) -> Metrics:
    """Entropy of the policy, and KL of the (normalised) CMPO policy from it."""
    log_pi = jax.nn.log_softmax(logits)
    entropy = -jnp.sum(jnp.exp(log_pi) * log_pi, axis=-1)
    probs = pi_cmpo / jnp.sum(pi_cmpo, axis=-1, keepdims=True)
    kl = jnp.sum(probs * (jnp.log(jnp.maximum(probs, 1e-30)) - log_pi), axis=-1)
    return {"entropy": mean_over(entropy, masks.valid), "kl_cmpo": mean_over(kl, masks.valid)}


def _value_metrics(model: Model, out_v0: Array, out_v: Array, v_target: Array, masks: Masks) -> Metrics:
    """Errors of the values in raw units, by k: a degenerate self-consistent model shows here.

    value_error_k: mean |v^k - V_{t+k}|.   root_gap_k: mean |v^k - v^0 of the real state k steps on|, inside episodes.
    """
    v = jnp.reshape(model.decode(jnp.concatenate([out_v0, out_v])), v_target.shape)
    error = mean_over(jnp.abs(v - v_target), masks.known)
    there = jnp.stack([shift(v[0], k) for k in range(1, v.shape[0])])
    gap = mean_over(jnp.abs(v[1:] - there), steps_of(masks.live, 1, None))
    metrics = {f"value_error_{k}": error[k] for k in range(error.shape[0])}
    return metrics | {f"root_gap_{k + 1}": gap[k] for k in range(gap.shape[0])}
