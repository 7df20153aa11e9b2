"""Muesli with self-consistency: the learner, in the order of the paper's Algorithm 1.

    targets   target network: one-step look-ahead q, Retrace or V-trace, moving moment, CMPO       no gradient
    unroll    K real actions through the model: reward, value and policy losses
    imagine   rollouts of the model under mu, and the self-consistency loss
    optimise  Adam, the update clipped, a decaying learning rate; the target network follows

Arrays are time-major: T transitions of B sequences. `M = T * B` roots are one flat batch wherever a network is called.
Hessel et al. 2021 is "Muesli"; Farquhar et al. 2021 is "the paper"; labels such as L4 refer to the readings
chosen in docs/algorithm.md.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax

from purejax_sc.agent import consistency, losses, returns, rules, transforms
from purejax_sc.agent.transforms import Counted, masked_logits, masked_mean, scale_gradient
from purejax_sc.config import Config, ConfigError, Hyper, MuesliConfig
from purejax_sc.types import Array, EnvSpec, Key, LearnerState, Model, Moment, Params, Scalar, Sequence

Metrics = dict[str, Array]

DYNAMICS_GRADIENT = 0.5  # L9: scale of the gradient at the start of each model step, as in MuZero
UPDATE_CLIP = 1.0  # bound of each entry of Adam's update, before the learning rate (Muesli, appendix)


class Learner(NamedTuple):
    """init: (key) -> state.   update: (state, batch, key, hyper) -> (state, metrics)."""

    init: Callable[[Key], LearnerState]
    update: Callable[[LearnerState, Sequence, Key, Hyper], tuple[LearnerState, Metrics]]


class Targets(NamedTuple):
    """What the grounded losses regress to. Constants.

    policy: [T, B, A] CMPO weights by action.
    value: [T, B] raw.   adv: [T, B] (G - v) / sigma.
    """

    policy: Array
    value: Array
    adv: Array


class Entries(NamedTuple):
    """What the losses are means over.

    valid: [T, B] the roots.   live, known: [K + 1, T, B] the states k model steps after a root of which the data tells
    all, or all but the policy (`losses.UnrollMasks`: known is live or absorbed).
    """

    valid: Counted
    live: Counted
    known: Counted


class Inputs(NamedTuple):
    """What every part of an update reads.

    batch:   T transitions of B sequences.   entries: what its losses are means over.
    hyper:   the numbers that may be traced.   axis: see `make_learner`.
    gamma:   discount of one model step; negative in self-play, where the mover changes at every step.
    """

    batch: Sequence
    entries: Entries
    hyper: Hyper
    gamma: Scalar
    axis: str | None = None


class Roots(NamedTuple):
    """The real states of a batch. e: [M, ...] encodings; logits: [T, B, A], masked."""

    e: Array
    logits: Array


def make_learner(config: Config, model: Model, spec: EnvSpec, axis: str | None = None) -> Learner:
    """The one learner that every driver calls. It knows nothing of environments or replay.

    axis: name of the mesh axis along which devices hold parts of the batch. The parameters then move by the mean of
    their gradients, as if one device held it all.

    Raises ConfigError for what the model cannot show.
    """
    if config.muesli.reconstruct and (model.reconstruct is None or model.visible is None):
        raise ConfigError(
            "muesli.reconstruct needs a model with `reconstruct` and `visible` (types.Model): set it to 0"
        )
    if config.muesli.legal and model.rules is None:
        raise ConfigError("muesli.legal=true needs a model with `rules` (types.Model): set it to false")
    optimiser = optax.chain(optax.scale_by_adam(), optax.clip(UPDATE_CLIP))

    def init(key: Key) -> LearnerState:
        params = model.init(key)
        target = jax.tree.map(jnp.copy, params)  # a copy: the driver donates both
        return LearnerState(params, target, optimiser.init(params), transforms.init_moment(), jnp.zeros((), jnp.int32))

    def update(state: LearnerState, batch: Sequence, key: Key, hyper: Hyper) -> tuple[LearnerState, Metrics]:
        key_targets, key_sc = jax.random.split(key)
        gamma = -hyper.discount if spec.two_player else hyper.discount
        inputs = Inputs(batch, count_entries(config.muesli, batch, axis), hyper, gamma, axis)
        targets, moment, target_metrics = make_targets(config.muesli, model, state, inputs, key_targets)

        def loss(params: Params, sc_params: Params) -> tuple[Array, Metrics]:
            terms, roots, metrics = grounded_terms(config.muesli, model, params, targets, inputs)
            grounded = sum(terms.values(), start=jnp.zeros(()))
            if config.sc.update == "none":
                return grounded, metrics
            sc, sc_metrics = sc_loss(config, model, sc_params, roots, inputs, key_sc)
            return grounded + hyper.sc_weight * sc, metrics | sc_metrics

        # Two gradients of one loss; the encoding that both parts share belongs to the first. They are added under a
        # condition: a bare addition is compiled into the first, whose rounding a weight of 0 would then change.
        loss_and_grads = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)
        (total, metrics), (grads, sc_grads) = loss_and_grads(state.params, state.params)
        if config.sc.update != "none":
            add = partial(jax.tree.map, jnp.add)
            grads = jax.lax.cond(hyper.sc_weight > 0, add, lambda grounded, _: grounded, grads, sc_grads)
        grads, total, metrics, target_metrics = transforms.device_mean((grads, total, metrics, target_metrics), axis)
        with jax.numpy_dtype_promotion("standard"):  # Adam raises a float to the power of its integer count
            steps, opt_state = optimiser.update(grads, state.opt_state)
        rate = hyper.learning_rate * jnp.maximum(0.0, 1.0 - state.updates / config.num_updates)
        params = jax.tree.map(lambda p, step: p - rate * step, state.params, steps)
        target = optax.incremental_update(params, state.target, hyper.target_rate)
        metrics = (
            {"loss": total} | metrics | target_metrics | {"grad_norm": optax.tree.norm(grads), "learning_rate": rate}
        )
        return LearnerState(params, target, opt_state, moment, state.updates + 1), metrics

    return Learner(init, update)


def count_entries(cfg: MuesliConfig, batch: Sequence, axis: str | None = None) -> Entries:
    """The entries of a batch, counted over the devices that share it."""
    masks = losses.unroll_masks(batch.discount, batch.obs.valid[:-1], cfg.unroll)
    entries: Entries = transforms.count_masks((masks.live[0], masks.live, masks.live | masks.absorbed), axis)
    return Entries(*entries)


# Targets


def make_targets(
    cfg: MuesliConfig, model: Model, state: LearnerState, inputs: Inputs, key: Key
) -> tuple[Targets, Moment, Metrics]:
    """Everything the grounded losses aim at, from the target network (Muesli sections 3 and 4)."""
    batch, entries, hyper = inputs.batch, inputs.entries, inputs.hyper
    check_batch(batch)
    target, legal, valid = state.target, batch.obs.legal, batch.obs.valid
    e, v_prior, logits_target = _root(model, target, batch)
    log_prior = _log_prior(logits_target, batch.logits, legal, hyper)
    q = _action_values(cfg, model, target, e, log_prior, batch.action, inputs.gamma, key)

    # Returns are those of the prior, which also acts but for its mixture with the uniform policy (L6, L7).
    rho = jnp.where(valid[:-1], _ratio(log_prior[:-1], batch.logits, batch.action), 0.0)
    v_q = _expected_q(cfg, q, log_prior)
    discount_t = hyper.discount * batch.discount
    if cfg.returns == "retrace":
        g = returns.retrace(batch.reward, discount_t, v_q[1:], q.taken[1:], rho[1:], hyper.lambda_)
        value = v_q[:-1] + jnp.minimum(1.0, rho) * (g - q.taken)  # L4: of the state, from the return of its action
    else:
        value = returns.vtrace(v_prior[:-1], v_prior[1:], batch.reward, discount_t, rho, hyper.lambda_)
        v_next = jnp.concatenate([hyper.lambda_ * value[1:] + (1 - hyper.lambda_) * v_prior[1:-1], v_prior[-1:]])
        g = batch.reward + discount_t * v_next

    adv = g - v_prior[:-1]  # N3: the baseline is the target network's value
    square = transforms.device_mean(masked_mean(adv**2, *entries.valid), inputs.axis)
    moment = transforms.update_moment(state.moment, square, hyper.moment_decay)
    sigma = transforms.moment_scale(moment)
    policy, clipped = _cmpo(cfg, q, v_prior, sigma * hyper.cmpo_temperature, log_prior, hyper.cmpo_clip)
    metrics = {
        "sigma": sigma,
        "rho": masked_mean(rho, *entries.valid),
        "value_target": masked_mean(value, *entries.valid),
        "adv_clipped": masked_mean(clipped, *entries.valid),
    }
    targets = Targets(policy[:-1], value, adv / sigma)
    return jax.tree.map(jax.lax.stop_gradient, (targets, moment, metrics))


def _root(model: Model, params: Params, batch: Sequence) -> tuple[Array, Array, Array]:
    """e [(T + 1) B, ...], v [T + 1, B] and masked log-probabilities [T + 1, B, A] of a network at every state."""
    time_batch = batch.obs.valid.shape
    e = flat(model.encode(params.encoder, batch.obs, batch.carry)[0])
    v = jnp.reshape(model.decode(model.root_value(params.root_value, e)), time_batch)
    logits = jnp.reshape(model.root_policy(params.root_policy, e), (*time_batch, -1))
    return e, v, jax.nn.log_softmax(masked_logits(logits, batch.obs.legal))


def _log_prior(logits_target: Array, logits_mu: Array, legal: Array, hyper: Hyper) -> Array:
    """log pi_prior [T + 1, B, A]: the target policy with a little of the behaviour and the uniform policy.

    The last state has not been acted in: the target policy stands in for the behaviour there.
    """
    behaviour = jax.nn.softmax(jnp.concatenate([logits_mu, logits_target[-1:]]))
    uniform = legal.astype(behaviour.dtype) / transforms.count_legal(legal, behaviour.dtype)
    rest = 1.0 - hyper.prior_behaviour - hyper.prior_uniform
    mixture = rest * jnp.exp(logits_target) + hyper.prior_behaviour * behaviour + hyper.prior_uniform * uniform
    return masked_logits(jnp.log(mixture), legal)


class ActionValues(NamedTuple):
    """One-step look-ahead q(s, a) = r^1 + gamma v^1 of the target network (Muesli Eq. 14).

    taken:   [T, B] of the actions of the data.
    table:   [T + 1, B, A] of every action, or None where only samples were asked for.
    actions, sampled: [N, T + 1, B] draws from the prior and their q, or None if nothing is estimated by sampling.
    """

    taken: Array
    table: Any
    actions: Any
    sampled: Any


def _action_values(
    cfg: MuesliConfig, model: Model, target: Params, e: Array, log_prior: Array, action: Array, gamma: Scalar, key: Key
) -> ActionValues:
    """Look one model step ahead from every state e [(T + 1) B, ...], as many actions as the estimators need."""
    num_actions, time_batch = log_prior.shape[-1], log_prior.shape[:-1]
    z = model.start(target.dynamics, e)

    def q_of(a: Array) -> Array:
        z_1, reward = model.step(target.dynamics, target.reward, z, a)
        return model.decode(reward) + gamma * model.decode(model.value(target.value, z_1))

    actions: Any = None
    sampled: Any = None
    if cfg.num_action_samples:
        actions = jax.random.categorical(key, log_prior, shape=(cfg.num_action_samples, *time_batch))
    if num_actions <= cfg.num_action_samples + 1 or not cfg.num_action_samples:
        # All actions cost no more than the samples: the samples are then read from the table.
        every = jnp.broadcast_to(jnp.eye(num_actions)[:, None], (num_actions, e.shape[0], num_actions))
        table = jnp.moveaxis(jnp.reshape(jax.vmap(q_of)(every), (num_actions, *time_batch)), 0, -1)
        if actions is not None:
            sampled = jnp.moveaxis(jnp.take_along_axis(table, jnp.moveaxis(actions, 0, -1), axis=-1), -1, 0)
        return ActionValues(_pick(table[:-1], action), table, actions, sampled)
    asked = jnp.concatenate([actions, jnp.concatenate([action, actions[0, -1:]])[None]])
    one_hot = jax.nn.one_hot(jnp.reshape(asked, (len(asked), -1)), num_actions)
    q = jnp.reshape(jax.vmap(q_of)(one_hot), (len(asked), *time_batch))
    return ActionValues(q[-1, :-1], None, actions, q[:-1])


def _expected_q(cfg: MuesliConfig, q: ActionValues, log_prior: Array) -> Array:
    """E_{A ~ prior}[q(s, A)] [T + 1, B], over all actions or by samples of the prior."""
    if not cfg.num_action_samples:
        return jnp.sum(jnp.exp(log_prior) * q.table, axis=-1)
    return jnp.sum(q.sampled, axis=0) / cfg.num_action_samples


def _cmpo(
    cfg: MuesliConfig, q: ActionValues, v_prior: Array, unit: Array, log_prior: Array, clip: Scalar
) -> tuple[Array, Array]:
    """CMPO weights [T + 1, B, A], and the share [T, B] of advantages, in this unit, that the clip cut."""
    if not cfg.num_action_samples:
        adv = (q.table - v_prior[..., None]) / unit
        return losses.cmpo_policy(log_prior, adv, clip), jnp.mean(jnp.abs(adv[:-1]) > clip, axis=-1)
    adv = (q.sampled - v_prior[None]) / unit
    weights = losses.cmpo_sampled(q.actions, adv, log_prior.shape[-1], clip)
    return weights, jnp.mean(jnp.abs(adv[:, :-1]) > clip, axis=0)


# Grounded losses


class Unrolled(NamedTuple):
    """Outputs of K model steps from M roots, the steps one after the other.

    reward: of the steps k = 0 .. K - 1 [K * M, bins].   value [K * M, bins], policy [K * M, A]: at k = 1 .. K.
    legal: [K * M, A] logits that an action is legal at k = 1 .. K; None of a model that does not say.
    z: [(K + 1) * M, ...] the states of the model at k = 0 .. K.
    """

    reward: Array
    value: Array
    policy: Array
    legal: Array | None
    z: Array


class UnrollTargets(NamedTuple):
    """What the model is trained to say. Constants.

    value: [K + 1, T, B] raw.   reward: [K, T, B] raw.   policy: [K, T, B, A], of k = 1 .. K.
    """

    value: Array
    reward: Array
    policy: Array


class Grounded(NamedTuple):
    """Losses before their weights. pg, cmpo, value: [] of the root.   reward_k, value_k, policy_k: [K] of the model."""

    pg: Array
    cmpo: Array
    value: Array
    reward_k: Array
    value_k: Array
    policy_k: Array


def grounded_terms(
    cfg: MuesliConfig, model: Model, params: Params, targets: Targets, inputs: Inputs
) -> tuple[dict[str, Array], Roots, Metrics]:
    """Policy gradient, CMPO and value at the root; reward, value and policy over K model steps: the weighted terms of
    paper Eq. 2, whose sum is the loss."""
    batch, hyper = inputs.batch, inputs.hyper
    check_batch(batch)
    obs = jax.tree.map(lambda x: x[:-1], batch.obs)
    e = flat(model.encode(params.encoder, obs, batch.carry)[0])
    logits = jnp.reshape(model.root_policy(params.root_policy, e), (*batch.action.shape, -1))
    logits = masked_logits(logits, obs.legal)
    out_v0 = model.root_value(params.root_value, e)
    out = _unroll(cfg, model, params, e, batch.action, logits.shape[-1])
    wanted = _unroll_targets(cfg, inputs, targets, logits)
    grounded = _grounded_losses(cfg, logits, out_v0, out, targets, wanted, inputs)
    terms = _weighted(cfg, hyper, grounded)
    metrics = _loss_metrics(grounded, logits, targets, inputs)
    metrics |= _value_metrics(model, out_v0, out.value, wanted.value, inputs.entries)
    if cfg.reconstruct:
        loss, shown = _reconstruction(cfg, model, params, out.z, inputs)
        terms["reconstruction"] = hyper.reconstruction_weight * loss
        metrics |= {"loss_reconstruction": loss} | shown
    if cfg.legal:
        loss, told = _legality(cfg, out, inputs)
        terms["legal"] = hyper.reconstruction_weight * loss
        metrics |= {"loss_legal": loss} | told
    return terms, Roots(e, logits), metrics


def _grounded_losses(
    cfg: MuesliConfig,
    logits: Array,
    out_v0: Array,
    out: Unrolled,
    targets: Targets,
    wanted: UnrollTargets,
    inputs: Inputs,
) -> Grounded:
    """Means over the batch. logits: [T, B, A] and out_v0: [M, bins] of the root; out: of the model."""
    batch, entries = inputs.batch, inputs.entries

    def categorical(out: Array, target: Array) -> Array:
        probs = transforms.to_categorical(flat(target), cfg.bins, cfg.bins_max)
        return losses.cross_entropy(out, probs)

    def per_step(loss: Array, entries: Counted) -> Array:
        """Mean over the entries of every model step: [K * M] -> [K]."""
        return jax.vmap(masked_mean)(jnp.reshape(loss, entries.mask.shape), *entries)

    def mean(loss: Array) -> Array:
        return masked_mean(loss, *entries.valid)

    rho = _ratio(jax.nn.log_softmax(logits), batch.logits, batch.action)
    weight = jnp.minimum(1.0, rho)  # L14: clipped at 1
    return Grounded(
        pg=mean(losses.policy_gradient(logits, batch.action, weight, targets.adv)),
        cmpo=mean(losses.cross_entropy(logits, targets.policy)),
        value=mean(jnp.reshape(categorical(out_v0, wanted.value[0]), batch.action.shape)),
        reward_k=per_step(categorical(out.reward, flat(wanted.reward)), _steps(entries.known, 0, -1)),
        value_k=per_step(categorical(out.value, flat(wanted.value[1:])), _steps(entries.known, 1, None)),
        policy_k=per_step(losses.cross_entropy(out.policy, flat(flat(wanted.policy))), _steps(entries.live, 1, None)),
    )


def _loss_metrics(x: Grounded, logits: Array, targets: Targets, inputs: Inputs) -> Metrics:
    log_pi = jax.nn.log_softmax(logits)
    entropy = -jnp.sum(jnp.exp(log_pi) * log_pi, axis=-1)
    return {
        "loss_pg": x.pg,
        "loss_cmpo": x.cmpo,
        "loss_model_policy": jnp.mean(x.policy_k),
        "loss_value": x.value,
        "loss_model_value": jnp.mean(x.value_k),
        "loss_reward": jnp.mean(x.reward_k),
        "entropy": masked_mean(entropy, *inputs.entries.valid),
        "kl_cmpo": masked_mean(_kl(targets.policy, log_pi), *inputs.entries.valid),
    }


def _unroll(cfg: MuesliConfig, model: Model, params: Params, e: Array, action: Array, num_actions: int) -> Unrolled:
    """K model steps from every root e [M, ...] along the actions [T, B] of the data (the model of paper Eq. 2)."""
    # Past the end of a sequence the shifted actions wrap around: random padding under the masks.
    one_hot = jax.nn.one_hot(action, num_actions)
    z = model.start(params.dynamics, e)
    zs, rewards = [z], []
    for k in range(cfg.unroll):
        a = flat(losses.shift(one_hot, k))
        z, out = model.step(params.dynamics, params.reward, scale_gradient(z, DYNAMICS_GRADIENT), a)
        zs.append(z)
        rewards.append(out)
    z_all, z_later = jnp.concatenate(zs), jnp.concatenate(zs[1:])
    # Distillation (the auxiliary-only agents) must not shape the representation: the latents are fixed there.
    z_policy = scale_gradient(z_later, 0 if cfg.model_policy == "distill" else 1)
    out_pi, legal = rules.policy_and_rules(model, params, z_policy)
    return Unrolled(jnp.concatenate(rewards), model.value(params.value, z_later), out_pi, legal, z_all)


def _unroll_targets(cfg: MuesliConfig, inputs: Inputs, targets: Targets, logits: Array) -> UnrollTargets:
    """The targets of the K steps after every root. Around the ends of episodes they are those of `follow_ends`."""
    k_max, (live, _), (known, _) = cfg.unroll, inputs.entries.live, inputs.entries.known
    ends = losses.follow_ends(inputs.batch.reward, losses.UnrollMasks(live, known & ~live), inputs.gamma, cfg.absorbing)
    values = [losses.shift(targets.value, k) for k in range(k_max + 1)]  # N9: the returns of the states reached
    distilled = jax.lax.stop_gradient(jax.nn.softmax(logits)) if cfg.model_policy == "distill" else targets.policy
    policies = [losses.shift(distilled, k) for k in range(1, k_max + 1)]
    return UnrollTargets(jnp.where(live, jnp.stack(values), ends.value), ends.reward, jnp.stack(policies))


def _reconstruction(cfg: MuesliConfig, model: Model, params: Params, z: Array, inputs: Inputs) -> tuple[Array, Metrics]:
    """How far the states z [(K + 1) * M, ...] are from showing the observations k steps on (N10): the cross-entropy of
    their bits, summed over an observation and a mean over k.

    Beyond the end of an episode they have to show nothing, or, where values go on there (N11), may show anything.

    reconstructed_k: share of the observations that are shown without a mistake.
    """
    assert model.reconstruct is not None  # `make_learner` has looked
    assert model.visible is not None
    frame, (_, live, known) = model.visible(inputs.batch.obs.frame[:-1]), inputs.entries
    frames = jnp.stack([losses.shift(frame, k) for k in range(cfg.unroll + 1)])  # [K + 1, T, B, ..., planes]
    points = tuple(range(live.mask.ndim, frames.ndim))
    bits = frames & jnp.expand_dims(live.mask, points)
    logits = jnp.reshape(model.reconstruct(params.dynamics, z), bits.shape)
    loss = jnp.sum(losses.binary_cross_entropy(logits, bits), axis=points)
    right = jnp.all((logits > 0) == bits, axis=points).astype(loss.dtype)
    mean = jax.vmap(masked_mean)
    shown, asked = mean(right, *live), live if cfg.absorbing == "outcome" else known
    return jnp.mean(mean(loss, *asked)), {f"reconstructed_{k}": shown[k] for k in range(cfg.unroll + 1)}


def _legality(cfg: MuesliConfig, out: Unrolled, inputs: Inputs) -> tuple[Array, Metrics]:
    """How far the states of the model are from saying which actions are legal k = 1 .. K steps on (N12): the
    cross-entropy, summed over the actions of a state and a mean over k. Beyond an end they may say anything.

    legal_k: share of the states of which all legal actions are told, and no others.
    """
    assert out.legal is not None  # `make_learner` has looked
    depths, live = range(1, cfg.unroll + 1), _steps(inputs.entries.live, 1, None)
    legal = jnp.stack([losses.shift(inputs.batch.obs.legal[:-1], k) for k in depths])  # [K, T, B, A]
    logits = jnp.reshape(out.legal, legal.shape)
    loss = jnp.sum(losses.binary_cross_entropy(logits, legal), axis=-1)
    right = jnp.all((logits > 0) == legal, axis=-1).astype(loss.dtype)
    mean = jax.vmap(masked_mean)
    told = mean(right, *live)
    return jnp.mean(mean(loss, *live)), {f"legal_{k}": told[k - 1] for k in depths}


def _steps(entries: Counted, first: int, end: int | None) -> Counted:
    return Counted(entries.mask[first:end], entries.size[first:end])


def _weighted(cfg: MuesliConfig, hyper: Hyper, x: Grounded) -> dict[str, Array]:
    """The losses with their weights (paper Eq. 2)."""
    scale_k = 1 / cfg.unroll  # L2: the root's losses and the mean of the model's
    return {
        "pg": hyper.pg_weight * x.pg,  # L1: its weight multiplies no other policy loss
        "cmpo": hyper.cmpo_weight * x.cmpo,
        "model_policy": hyper.model_policy_weight * jnp.mean(x.policy_k),
        "value": hyper.value_weight * x.value,
        "model_value": hyper.model_value_weight * scale_k * jnp.sum(x.value_k),
        "reward": hyper.reward_weight * scale_k * jnp.sum(x.reward_k),
    }


def _value_metrics(model: Model, out_v0: Array, out_v: Array, v_target: Array, entries: Entries) -> Metrics:
    """How far the values are off, in raw units, by k: a degenerate self-consistent model shows here.

    value_error_k: mean |v^k - V_{t+k}|.   root_gap_k: mean |v^k - v^0 of the real state k steps on|, two predictions of
    the same network, without the noise of returns and without the zeros beyond the ends of episodes.
    """
    v = jnp.reshape(model.decode(jnp.concatenate([out_v0, out_v])), v_target.shape)
    error = jax.vmap(masked_mean)(jnp.abs(v - v_target), *entries.known)
    there = jnp.stack([losses.shift(v[0], k) for k in range(1, v.shape[0])])
    gap = jax.vmap(masked_mean)(jnp.abs(v[1:] - there), *_steps(entries.live, 1, None))
    metrics = {f"value_error_{k}": error[k] for k in range(error.shape[0])}
    return metrics | {f"root_gap_{k + 1}": gap[k] for k in range(gap.shape[0])}


# Self-consistency


def sc_loss(
    config: Config, model: Model, params: Params, roots: Roots, inputs: Inputs, key: Key
) -> tuple[Array, Metrics]:
    """L_sc: rollouts from the states of the batch, v(z^k) against G_{k:K}, gradients by the gate table (Eq. 8)."""
    check_batch(inputs.batch)
    chex.assert_equal_shape([roots.logits, inputs.batch.logits])
    cfg, hyper = config.sc, inputs.hyper
    key_roots, key_noise, key_rollout = jax.random.split(key, 3)
    e, logits, live, starts = _choose_starts(config, roots, inputs, key_roots)
    if cfg.noise_on == "encoding":  # N7
        e = consistency.perturb(key_noise, e, hyper.latent_noise)
        logits = masked_logits(model.root_policy(params.root_policy, e), starts.legal)
    z_0 = model.start(params.dynamics, e)
    mu = cfg.control.make(starts)
    rollout = consistency.imagine(model, params, z_0, logits, mu, key_rollout, cfg.unroll, DYNAMICS_GRADIENT)
    # Gates of the table are Python numbers, which cut the backward pass where they are 0; traced ones are numbers.
    gates = cfg.gates if hyper.gates is None else hyper.gates
    errors = consistency.sc_errors(model, params, rollout, inputs.gamma, gates, include_last=cfg.include_last)
    mean = jax.vmap(lambda x: masked_mean(x, *live))
    per_term = mean(_sc_distance(config, model, errors))
    total = jnp.mean(per_term)  # L3: over k
    v = jax.vmap(model.decode)(errors.prediction)
    td = mean(jnp.abs(v - errors.target))
    return total, {"loss_sc": total} | {f"sc_error_{k + 1}": td[k] for k in range(td.shape[0])}


def _choose_starts(
    config: Config, roots: Roots, inputs: Inputs, key: Key
) -> tuple[Array, Array, Counted, consistency.StartStates]:
    """The M states that rollouts start from: e [M, ...], policy logits [M, A], those that count [M],
    what is known."""
    cfg, replays, batch, valid = config.sc, config.sc.control.replays, inputs.batch, inputs.entries.valid
    e, logits = roots.e, flat(roots.logits)  # L11: the gradient goes on into the encoder
    live, legal = flat(valid.mask), flat(batch.obs.legal[:-1])
    actions, logits_mu = flat(batch.action)[None], None
    if replays:
        actions = jnp.stack([flat(losses.shift(batch.action, k)) for k in range(cfg.unroll)])
        logits_mu = jnp.stack([flat(losses.shift(batch.logits, k)) for k in range(cfg.unroll)])
        # the K actions must stay inside their episode and sequence
        live = flat(losses.unroll_masks(batch.discount, batch.obs.valid[:-1], cfg.unroll - 1).live[-1])
    if cfg.rollout_ratio != 1:
        index = consistency.choose_roots(key, e.shape[0], cfg.rollout_ratio)
        e, logits, live, legal = (x[index] for x in (e, logits, live, legal))
        actions, logits_mu = jax.tree.map(lambda x: x[:, index], (actions, logits_mu))
    starts = consistency.StartStates(legal, actions, logits_mu, inputs.hyper.epsilon)
    everywhere = not replays and cfg.rollout_ratio == 1
    counted = Counted(live, valid.size) if everywhere else _count(live, inputs.axis)
    return e, logits, counted, starts


def _count(mask: Array, axis: str | None) -> Counted:
    """A mask [M], counted over the devices that share the rollouts."""
    return Counted(mask, transforms.count_masks(mask[None], axis).size)


def _sc_distance(config: Config, model: Model, errors: consistency.ScErrors) -> Array:
    """l_v(G, v) per term and rollout [n, M] (L12). Gates are already in its arguments.

    distributional: KL from the model's own distribution of values at z^K, moved so that its mean is G.
    cross_entropy: the number G against all of the prediction. It has a gradient also where the means agree: it narrows
    the prediction.
    """
    cfg, out, g = config.muesli, errors.prediction, errors.target
    if config.sc.loss == "cross_entropy":
        return losses.cross_entropy(out, transforms.to_categorical(g, cfg.bins, cfg.bins_max))
    # V-trace moves the mean; the spread is that of the end, discounted, whatever mu is
    scale = jnp.broadcast_to(errors.scale[:, None], g.shape)
    shift = g - scale * jnp.broadcast_to(model.decode(errors.end), g.shape)
    probs = jnp.broadcast_to(jax.nn.softmax(errors.end), out.shape)
    return losses.divergence(out, transforms.shift_categorical(probs, shift, scale, cfg.bins_max))


# Small helpers


def check_batch(batch: Sequence) -> None:
    """Shapes and types of a batch, see `types.Sequence`: T transitions of B sequences, and A actions."""
    chex.assert_rank([batch.action, batch.logits], [2, 3])
    (time, num), actions = batch.action.shape, batch.logits.shape[-1]
    chex.assert_shape([batch.reward, batch.discount], (time, num))
    chex.assert_shape([batch.logits, batch.obs.legal], [(time, num, actions), (time + 1, num, actions)])
    chex.assert_shape([batch.obs.prev_action, batch.obs.prev_reward, batch.obs.first, batch.obs.valid], (time + 1, num))
    chex.assert_equal_shape_prefix([batch.obs.frame, batch.obs.valid], 2)
    chex.assert_type([batch.action, batch.logits, batch.reward, batch.discount], [int, float, float, float])
    chex.assert_type([batch.obs.legal, batch.obs.first, batch.obs.valid], bool)


def flat(x: Any) -> Any:
    """Merge the first two axes: [T, B, ...] -> [M, ...]."""
    return jnp.reshape(x, (-1, *x.shape[2:]))


def _pick(table: Array, action: Array) -> Array:
    """table[..., a] for every action: [..., A], int [...] -> [...]."""
    return jnp.take_along_axis(table, action[..., None], axis=-1)[..., 0]


def _ratio(logits: Array, logits_mu: Array, action: Array) -> Array:
    """pi(a|s) / mu(a|s) [T, B] from logits [T, B, A]."""
    return jnp.exp(_pick(jax.nn.log_softmax(logits), action) - _pick(jax.nn.log_softmax(logits_mu), action))


def _kl(weights: Array, log_pi: Array) -> Array:
    """KL of the (normalised) policy target from pi, for the log."""
    probs = weights / jnp.sum(weights, axis=-1, keepdims=True)
    return jnp.sum(probs * (jnp.log(jnp.maximum(probs, 1e-30)) - log_pi), axis=-1)
