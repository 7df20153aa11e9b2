"""Slow NumPy references for the tests: one entry at a time, straight from the papers' equations, in float64.

Arrays carry a leading time axis T and any trailing axes; index t is the step whose action is a_t, so `reward[t]` is
R_{t+1} and `discount[t]` is d_{t+1}.
"""

import itertools
from typing import NamedTuple

import numpy as np


def entries(shape):
    """Every index of the trailing axes."""
    return itertools.product(*(range(n) for n in shape))


def hyperbolic(x):
    """h(x) = sign(x) (sqrt(|x| + 1) - 1) + 0.001 x, as printed."""
    x = np.asarray(x, np.float64)
    return np.sign(x) * (np.sqrt(np.abs(x) + 1) - 1) + 1e-3 * x


def inverse_hyperbolic(x):
    """h^-1(x) as MuZero prints it."""
    root = (np.sqrt(1 + 4e-3 * (abs(x) + 1 + 1e-3)) - 1) / 2e-3
    return np.sign(x) * (root**2 - 1)


def lambda_returns(reward, discount, v_next, lambda_):
    """The weighted sum of all n-step returns: (1 - lambda) sum_n lambda^(n-1) G^(n), the longest takes the rest."""
    reward, discount, v_next = (np.asarray(x, np.float64) for x in (reward, discount, v_next))
    out = np.zeros_like(reward)
    for i in entries(reward.shape[1:]):
        r, d, v = (x[(slice(None), *i)] for x in (reward, discount, v_next))
        for t in range(len(r)):
            longest = len(r) - t
            for n in range(1, longest + 1):
                g, weight = 0.0, 1.0
                for j in range(t, t + n):
                    g += weight * r[j]
                    weight *= d[j]
                g += weight * v[t + n - 1]
                share = lambda_ ** (n - 1) * (1.0 if n == longest else 1 - lambda_)
                out[(t, *i)] += share * g
    return out


def retrace(reward, discount, v_next, q_next, rho_next, lambda_):
    """Munos et al. 2016: G_t = q_t + sum_s (prod of discount c) delta_s, with delta_s = r + d V_{s+1} - q_s.

    q_0 cancels out of the sum, so any number may stand for it.
    """
    reward, discount, v_next = (np.asarray(x, np.float64) for x in (reward, discount, v_next))
    out = np.zeros_like(reward)
    for i in entries(reward.shape[1:]):
        r, d, v = (x[(slice(None), *i)] for x in (reward, discount, v_next))
        q = np.concatenate([[7.0], np.asarray(q_next, np.float64)[(slice(None), *i)]])  # q[t] at s_t; the 7 cancels
        rho = np.concatenate([[1.0], np.asarray(rho_next, np.float64)[(slice(None), *i)]])
        for t in range(len(r)):
            total, trace = q[t], 1.0
            for s in range(t, len(r)):
                if s > t:
                    trace *= d[s - 1] * lambda_ * min(1.0, rho[s])
                total += trace * (r[s] + d[s] * v[s] - q[s])
            out[(t, *i)] = total
    return out


def vtrace(v, v_next, reward, discount, rho, lambda_):
    """Espeholt et al. 2018, Eq. 1: v_t + sum_s (prod_{i<s} discount c_i) rho_s (r_s + d_s v_{s+1} - v_s)."""
    v, v_next, reward, discount, rho = (np.asarray(x, np.float64) for x in (v, v_next, reward, discount, rho))
    out = v.copy()
    for i in entries(reward.shape[1:]):
        for t in range(len(reward)):
            trace = 1.0
            for s in range(t, len(reward)):
                at = (s, *i)
                clipped = min(1.0, rho[at])
                out[(t, *i)] += trace * clipped * (reward[at] + discount[at] * v_next[at] - v[at])
                trace *= discount[at] * lambda_ * clipped
    return out


def follow_episodes(discount, valid, unroll):
    """What is known k steps after each root [T, B]: 'live', 'absorbed' or 'unknown', by walking from the root."""
    steps, batch = discount.shape
    known = np.full((unroll + 1, steps, batch), "unknown", dtype=object)
    for t in range(steps):
        for b in range(batch):
            state = "live" if valid[t, b] else "unknown"
            known[0, t, b] = state
            for k in range(1, unroll + 1):
                if state == "live":
                    here = t + k - 1
                    if discount[here, b] == 0:
                        state = "absorbed"
                    elif here + 1 >= steps or not valid[here + 1, b]:
                        state = "unknown"
                known[k, t, b] = state
    return known


def softmax(x):
    e = np.exp(np.asarray(x, np.float64) - np.max(x))
    return e / e.sum()


def softmaxes(logits):
    """`softmax` over the last axis [..., A]."""
    return np.apply_along_axis(softmax, -1, logits)


def cross_entropy(logits, probs):
    """-sum p log softmax(logits), where no probability at all times log 0 is 0."""
    log_pi = np.log(np.maximum(softmax(logits), 1e-300))
    return -float(probs @ log_pi)


def cmpo(prior, adv, clip):
    """Muesli Eq. 10 for one state: prior [A] times exp(clip(adv)), normalised."""
    weights = [p * np.exp(min(max(a, -clip), clip)) for p, a in zip(prior, adv, strict=True)]
    return np.array(weights) / sum(weights)


def cmpo_sampled(actions, adv, num_actions, clip):
    """Muesli Eq. 12 for one state: (1/N) sum_i (w_i / z_i) onehot(a_i), z_i = (1 + sum_{j != i} w_j) / N."""
    n = len(actions)
    w = [np.exp(min(max(a, -clip), clip)) for a in adv]
    out = np.zeros(num_actions)
    for i in range(n):
        z = (1.0 + sum(w[j] for j in range(n) if j != i)) / n
        out[actions[i]] += w[i] / z / n
    return out


def sc_targets(reward, v, rho, discount, lambda_):
    """G_{k:K} for k = 0 .. K-1 (muesli: section 3.1 of the paper). reward, rho [K, M] of steps 1 .. K; v [K + 1, M].

    G_k = v^k + sum_{j=k+1..K} discount^(j-k-1) (prod_{i=k+1..j-1} c_i) rho_j (r^j + discount v^j - v^{j-1}).
    """
    steps, rollouts = reward.shape
    out = np.zeros((steps, rollouts))
    for m in range(rollouts):
        for k in range(steps):
            total = v[k, m]
            for j in range(k + 1, steps + 1):
                weight = discount ** (j - k - 1)
                for i in range(k + 1, j):
                    weight *= lambda_ * min(1.0, rho[i - 1, m])
                error = reward[j - 1, m] + discount * v[j, m] - v[j - 1, m]
                total += weight * min(1.0, rho[j - 1, m]) * error
            out[k, m] = total
    return out


class Heads(NamedTuple):
    """What a network says of every state of a batch.

    logits: [T + 1, B, A], about -1e9 where an action is illegal.   v: [T + 1, B] raw.
    q:      [T + 1, B, A] raw, r^1 + gamma v^1 after one model step.
    """

    logits: np.ndarray
    v: np.ndarray
    q: np.ndarray


class MuesliTargets(NamedTuple):
    """policy: [T, B, A].   value, adv: [T, B].   nu: the moving mean of squared advantages."""

    policy: np.ndarray
    value: np.ndarray
    adv: np.ndarray
    nu: float


def muesli_prior(target, batch, hyper):
    """pi_prior [T + 1, B, A]: a little of the behaviour and of the uniform policy in the target policy."""
    pi = softmaxes(target.logits)
    behaviour = np.concatenate([softmaxes(batch.logits), pi[-1:]])
    uniform = batch.obs.legal / batch.obs.legal.sum(-1, keepdims=True)
    share, rest = hyper.prior_behaviour, 1 - hyper.prior_behaviour - hyper.prior_uniform
    return rest * pi + share * behaviour + hyper.prior_uniform * uniform


def muesli_targets(cfg, hyper, batch, target, moment, actions):
    """Targets of Hessel et al., one state and one action at a time.

    Args:
      cfg, hyper: the options, and plain numbers.
      target: Heads of the target network.
      moment: before the update.
      actions: int [N, T + 1, B] draws of the prior, for the sampled estimators.
    """
    prior = muesli_prior(target, batch, hyper)  # also the policy of the returns (L6)
    v_q = np.zeros(target.v.shape)
    for at in entries(v_q.shape):
        if cfg.num_action_samples:
            v_q[at] = np.mean(target.q[at][actions[(slice(None), *at)]])
        else:
            v_q[at] = prior[at] @ target.q[at]
    rho, q_taken = np.zeros(batch.reward.shape), np.zeros(batch.reward.shape)
    for at in entries(rho.shape):
        a = batch.action[at]
        q_taken[at] = target.q[at][a]
        rho[at] = prior[at][a] / softmax(batch.logits[at])[a] if batch.obs.valid[at] else 0.0

    v, discount, lambda_ = target.v, hyper.discount * batch.discount, hyper.lambda_
    if cfg.returns == "retrace":
        g = retrace(batch.reward, discount, v_q[1:], q_taken[1:], rho[1:], lambda_)
        value = v_q[:-1] + np.minimum(1, rho) * (g - q_taken)  # L4
    else:
        value = vtrace(v[:-1], v[1:], batch.reward, discount, rho, lambda_)
        g = batch.reward + discount * v[1:]
        g[:-1] += discount[:-1] * lambda_ * (value[1:] - v[1:-1])

    adv = g - v[:-1]  # N3
    square = np.mean(adv[batch.obs.valid[:-1]] ** 2)
    nu = hyper.moment_decay * moment.nu + (1 - hyper.moment_decay) * square
    sigma = np.sqrt(nu / (1 - hyper.moment_decay * moment.decay_product) + 1e-12)
    policy = np.zeros(batch.logits.shape)
    for at in entries(rho.shape):
        z = (target.q[at] - v[at]) / (sigma * hyper.cmpo_temperature)
        if cfg.num_action_samples:
            drawn = actions[(slice(None), *at)]
            policy[at] = cmpo_sampled(drawn, z[drawn], len(z), hyper.cmpo_clip)
        else:
            policy[at] = cmpo(prior[at], z, hyper.cmpo_clip)
    return MuesliTargets(policy, value, adv / sigma, nu)


class Unrolled(NamedTuple):
    """What the model says after k = 1 .. K real actions. reward, value: [K, T, B, bins].   policy: [K, T, B, A]."""

    reward: np.ndarray
    value: np.ndarray
    policy: np.ndarray


def atoms_of(cfg):
    """The atoms [bins] in transformed units (N8)."""
    if cfg.spacing == "even":
        return np.linspace(-cfg.value_max, cfg.value_max, cfg.bins)
    growth = (1 + cfg.value_max / 0.01) ** (2 / (cfg.bins - 1))
    upper = [0.01 * (growth**i - 1) for i in range(1, (cfg.bins + 1) // 2)]  # of an odd number
    return np.array([-x for x in reversed(upper)] + [0.0, *upper])


def two_hot(cfg, x):
    """The raw number x as probabilities [bins] of its two neighbours."""
    atoms, out = atoms_of(cfg), np.zeros(cfg.bins)
    x = np.clip(hyperbolic(x), atoms[0], atoms[-1])
    right = min(int(np.searchsorted(atoms, x, side="right")), cfg.bins - 1)
    out[right] = (x - atoms[right - 1]) / (atoms[right] - atoms[right - 1])
    out[right - 1] = 1 - out[right]
    return out


def categorical_loss(cfg, out, x):
    """Cross-entropy of logits [bins] to the two-hot form of the raw number x."""
    return -two_hot(cfg, x) @ np.log(softmax(out))


def grounded_loss(cfg, hyper, batch, targets, root_logits, root_value, unrolled):
    """Paper Eq. 2 with the masks of episode ends, one root and one model step at a time.

    root_logits [T, B, A], root_value [T, B, bins]: of the online network, illegal actions at about -1e9.
    """
    known = follow_episodes(batch.discount, batch.obs.valid[:-1], cfg.unroll)
    pg, cmpo_0, v_0 = [], [], []
    v_k, r_k, pi_k = ([[] for _ in range(cfg.unroll)] for _ in range(3))
    for at in entries(batch.reward.shape):
        if known[(0, *at)] == "unknown":
            continue
        pi, a = softmax(root_logits[at]), batch.action[at]
        rho = pi[a] / softmax(batch.logits[at])[a]
        pg.append(-min(1.0, rho) * targets.adv[at] * np.log(pi[a]))  # L14
        cmpo_0.append(cross_entropy(root_logits[at], targets.policy[at]))
        v_0.append(categorical_loss(cfg, root_value[at], targets.value[at]))
        beyond = 0.0
        for k in range(1, cfg.unroll + 1):
            before, after = known[(k - 1, *at)], known[(k, *at)]
            reward, value, policy = (out[(k - 1, *at)] for out in unrolled)
            real = batch.reward[at[0] + k - 1, at[1]] if before == "live" else 0.0
            if cfg.terminal_value == "outcome" and after == "absorbed":  # N11
                real, beyond = 0.0, (real if before == "live" else beyond) / hyper.discount
            if before != "unknown":
                r_k[k - 1].append(categorical_loss(cfg, reward, real))
            if after == "absorbed":
                v_k[k - 1].append(categorical_loss(cfg, value, beyond))
            if after == "live":
                there = (at[0] + k, at[1])
                v_k[k - 1].append(categorical_loss(cfg, value, targets.value[there]))  # N9
                aim = softmax(root_logits[there]) if cfg.model_policy == "distill" else targets.policy[there]
                pi_k[k - 1].append(cross_entropy(policy, aim))
    mean_v, mean_r, mean_pi = ([np.mean(x) for x in terms] for terms in (v_k, r_k, pi_k))
    return (
        hyper.pg_weight * np.mean(pg)  # L1: the weight of the policy gradient alone
        + hyper.cmpo_weight * np.mean(cmpo_0)
        + hyper.model_policy_weight * np.mean(mean_pi)
        + hyper.value_weight * np.mean(v_0)
        + hyper.model_value_weight * np.mean(mean_v)  # L2: means over the model's steps
        + hyper.reward_weight * np.mean(mean_r)
    )


def projected(cfg, probs, shift, scale):
    """The distribution [bins] of shift + scale X, X on the atoms with probabilities [bins], one atom at a time."""
    return sum(
        p * two_hot(cfg, shift + scale * inverse_hyperbolic(atom)) for atom, p in zip(atoms_of(cfg), probs, strict=True)
    )


def sc_loss(cfg, muesli, live, target, outputs, end, end_value, scale):
    """L_sc (paper Eq. 7) of targets [n, M] and of what is compared with them, logits [n, M, bins].

    live: bool [M], the rollouts that count.   end [M, bins], end_value [M]: of the last state.   scale: [n] of a value
    there.   cfg, muesli: the options.
    """

    def distance(k, m):
        g, out = target[k, m], outputs[k, m]
        if cfg.loss == "distributional":
            p = projected(muesli, softmax(end[m]), g - scale[k] * end_value[m], scale[k])
            return sum(x * (np.log(x) - np.log(y)) for x, y in zip(p, softmax(out), strict=True) if x > 0)
        return categorical_loss(muesli, out, g)  # L12

    return np.mean([distance(k, m) for k in range(len(target)) for m in np.flatnonzero(live)])  # L3
