"""The learner against a slow reference that loops over steps, sequences, actions and model steps; and its options."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.batches import SPEC, A, B, T, batch_of, hyper_of, make
from helpers.configs import assert_close

from purejax_sc.agent import muesli, transforms
from purejax_sc.config import Hyper
from purejax_sc.types import Params


def targets_of(config, model, state, batch, gamma=None, key=None, **values):
    hyper = hyper_of(config, **values)
    gamma = hyper.discount if gamma is None else gamma
    key = jax.random.key(1) if key is None else key
    return muesli.make_targets(config.muesli, model, state, batch, gamma, key, hyper)


def reference_targets(config, model, state, batch, hyper, gamma):
    """Targets of Hessel et al., one state and one action at a time."""
    params, cfg = state.target, config.muesli
    e = muesli.flat(model.encode(params.encoder, batch.obs, ())[0])
    v = np.asarray(model.decode(model.root_value(params.root_value, e)), np.float64).reshape(T + 1, B)
    root = np.reshape(model.root_policy(params.root_policy, e), (T + 1, B, A))
    q = np.zeros((T + 1, B, A))
    for a in range(A):
        z_1, r = model.step(params.dynamics, params.reward, e, jax.nn.one_hot(jnp.full(len(e), a), A))
        q[..., a] = np.reshape(model.decode(r) + gamma * model.decode(model.value(params.value, z_1)), (T + 1, B))

    def softmax(x):
        x = np.exp(np.asarray(x, np.float64) - np.max(x))
        return x / x.sum()

    prior = np.zeros((T + 1, B, A))
    for t in range(T + 1):
        for b in range(B):
            legal = np.asarray(batch.obs.legal[t, b])
            pi = np.where(legal, softmax(np.where(legal, root[t, b], -1e9)), 0)
            mu = softmax(batch.logits[t, b]) if t < T else pi
            w_b, w_u = float(hyper.prior_behaviour), float(hyper.prior_uniform)
            prior[t, b] = (1 - w_b - w_u) * pi + w_b * mu + w_u * legal / legal.sum()

    discount, lambda_ = float(hyper.discount) * np.asarray(batch.discount), float(hyper.lambda_)
    g, value = np.zeros((T, B)), np.zeros((T, B))
    for b in range(B):
        for t in reversed(range(T)):
            r, d = float(batch.reward[t, b]), discount[t, b]
            if cfg.returns == "retrace":
                ahead = prior[t + 1, b] @ q[t + 1, b]
                if t + 1 < T and batch.obs.valid[t + 1, b]:
                    a = int(batch.action[t + 1, b])
                    c = lambda_ * min(1.0, prior[t + 1, b, a] / softmax(batch.logits[t + 1, b])[a])
                    ahead += c * (g[t + 1, b] - q[t + 1, b, a])
                g[t, b] = r + d * ahead
            else:
                ahead = lambda_ * value[t + 1, b] + (1 - lambda_) * v[t + 1, b] if t + 1 < T else v[t + 1, b]
                g[t, b] = r + d * ahead
            a = int(batch.action[t, b])
            rho = min(1.0, prior[t, b, a] / softmax(batch.logits[t, b])[a]) if batch.obs.valid[t, b] else 0.0
            if cfg.returns == "retrace":
                value[t, b] = prior[t, b] @ q[t, b] + rho * (g[t, b] - q[t, b, a])
            else:
                after = value[t + 1, b] if t + 1 < T else v[t + 1, b]
                trace = d * lambda_ * rho * (after - v[t + 1, b])
                value[t, b] = v[t, b] + rho * (r + d * v[t + 1, b] - v[t, b]) + trace

    valid = np.asarray(batch.obs.valid[:-1])
    nu = 0.99 * 0.5 + 0.01 * np.mean((g - v[:-1])[valid] ** 2)
    sigma = np.sqrt(nu / (1 - 0.99 * 0.9) + 1e-12)
    policy = prior[:-1] * np.exp(np.clip((q - v[..., None])[:-1] / sigma, -1, 1))
    return policy / policy.sum(-1, keepdims=True), value, (g - v[:-1]) / sigma, nu


@pytest.mark.parametrize("returns", ["retrace", "vtrace"])
@pytest.mark.parametrize("two_player", [False, True])
def test_targets_equal_the_slow_reference(returns, two_player):
    spec = SPEC._replace(two_player=two_player)
    config, model, _, state = make(spec, muesli={"returns": returns, "cmpo": "exact", "expectation": "exact"})
    batch, hyper = batch_of(jax.random.key(3), spec), hyper_of(config)
    gamma = -0.995 if two_player else 0.995
    targets, moment, _ = targets_of(config, model, state, batch, gamma=gamma)
    policy, value, adv, nu = reference_targets(config, model, state, batch, hyper, gamma)
    valid = np.asarray(batch.obs.valid[:-1])
    np.testing.assert_allclose(targets.policy[valid], policy[valid], rtol=2e-4, atol=1e-6)
    np.testing.assert_allclose(targets.value[valid], value[valid], rtol=2e-4, atol=1e-5)
    np.testing.assert_allclose(targets.adv[valid], adv[valid], rtol=2e-4, atol=1e-5)
    np.testing.assert_allclose(moment.nu, nu, rtol=1e-4)


def test_sampled_targets_agree_with_exact_ones_on_average():
    exact_config, model, _, state = make(muesli={"cmpo": "exact", "expectation": "exact"})
    batch = batch_of(jax.random.key(3))
    exact, _, _ = targets_of(exact_config, model, state, batch)
    config, *_ = make(muesli={"cmpo": "sampled", "expectation": "sampled", "samples": 64})

    keys = jax.random.split(jax.random.key(9), 200)
    sampled = jax.vmap(lambda key: targets_of(config, model, state, batch, key=key)[0])(keys)
    valid = np.asarray(batch.obs.valid[:-1])
    # The value target is linear in the sampled mean, so unbiased: 5 standard errors of 200 draws, plus rounding.
    error = np.abs(np.mean(sampled.value, 0) - exact.value)[valid]
    assert np.all(error < 5 * np.std(np.asarray(sampled.value), 0)[valid] / np.sqrt(200) + 1e-3)
    np.testing.assert_allclose(np.mean(sampled.policy, 0)[valid], exact.policy[valid], atol=0.03)
    assert np.std(np.asarray(sampled.value), 0).max() > 0.01


def test_looking_at_samples_only_reads_the_same_numbers_as_the_table():
    batch = batch_of(jax.random.key(3))
    config, model, _, state = make(muesli={"cmpo": "sampled", "expectation": "sampled", "samples": 2})
    table_first = targets_of(config, model, state, batch)[0]  # A = 3 <= samples + 1: from the table
    one, *_ = make(muesli={"cmpo": "sampled", "expectation": "sampled", "samples": 1})
    assert one.muesli.samples + 1 < A  # by sampled look-ahead
    e, _, logits = muesli._root(model, state.target, batch)
    look = muesli._action_values(one.muesli, model, state.target, e, logits, batch.action, 0.9, jax.random.key(0))
    exact, *_ = make(muesli={"cmpo": "exact", "expectation": "exact"})
    table = muesli._action_values(exact.muesli, model, state.target, e, logits, batch.action, 0.9, jax.random.key(0))
    np.testing.assert_allclose(look.taken, table.taken, rtol=1e-4, atol=1e-5)
    picked = np.take_along_axis(np.asarray(table.table), np.moveaxis(np.asarray(look.actions), 0, -1), -1)
    np.testing.assert_allclose(look.sampled, np.moveaxis(picked, -1, 0), rtol=1e-4, atol=1e-5)
    assert table_first.policy.shape == (T, B, A)


def reference_loss(config, model, params, batch, targets, hyper):
    """Paper Eq. 2 with the masks of episode ends, one root and one model step at a time."""
    cfg = config.muesli
    batch = jax.tree.map(np.asarray, batch)
    e = muesli.flat(model.encode(params.encoder, batch.obs, ())[0])
    root_policy = np.reshape(model.root_policy(params.root_policy, e), (T + 1, B, A))
    root_value = np.reshape(model.root_value(params.root_value, e), (T + 1, B, -1))
    z, model_out = e, []
    for k in range(cfg.unroll):  # action t + k from every root t, wrapping around as padding
        action = np.concatenate([np.roll(batch.action, -k, axis=0), batch.action[:1]]).reshape(-1)
        z, r = model.step(params.dynamics, params.reward, z, jax.nn.one_hot(action, A))
        outs = (r, model.value(params.value, z), model.policy(params.policy, z))
        model_out.append([np.reshape(out, (T + 1, B, -1)) for out in outs])
    atoms = np.linspace(-cfg.bins_max, cfg.bins_max, cfg.bins)

    def log_softmax(x):
        x = np.asarray(x, np.float64)
        return x - np.max(x) - np.log(np.sum(np.exp(x - np.max(x))))

    def categorical(out, x):
        h = np.clip(np.sign(x) * (np.sqrt(abs(x) + 1) - 1) + 1e-3 * x, -cfg.bins_max, cfg.bins_max)
        weights = np.maximum(0, 1 - np.abs(h - atoms) / (atoms[1] - atoms[0]))
        return -weights @ log_softmax(out)

    pg, cmpo, v_0 = [], [], []
    per_k = {name: [[] for _ in range(cfg.unroll)] for name in ("v", "r", "pi")}
    for t in range(T):
        for b in range(B):
            if not batch.obs.valid[t, b]:
                continue
            a_t = int(batch.action[t, b])
            root = np.where(batch.obs.legal[t, b], root_policy[t, b], -1e9)
            log_pi = log_softmax(root)
            rho = min(1.0, np.exp(log_pi[a_t] - log_softmax(batch.logits[t, b])[a_t]))
            pg.append(-rho * float(targets.adv[t, b]) * log_pi[a_t])
            cmpo.append(-np.asarray(targets.policy[t, b]) @ log_pi)
            v_0.append(categorical(root_value[t, b], float(targets.value[t, b])))
            status = "live"
            for k in range(1, cfg.unroll + 1):
                s = t + k - 1  # the real step that this model step imitates
                r_out, v_out, pi_out = (out[t, b] for out in model_out[k - 1])
                if status == "unknown":
                    continue
                per_k["r"][k - 1].append(categorical(r_out, float(batch.reward[s, b]) if status == "live" else 0.0))
                if status == "live" and batch.discount[s, b] == 0:
                    status = "absorbed"
                elif status == "live" and (s + 1 >= T or not batch.obs.valid[s + 1, b]):
                    status = "unknown"
                    continue
                v_target = float(targets.value[s + 1, b]) if status == "live" else 0.0
                per_k["v"][k - 1].append(categorical(v_out, v_target))
                if status == "live":
                    per_k["pi"][k - 1].append(-np.asarray(targets.policy[s + 1, b]) @ log_softmax(pi_out))
    mean_k = {name: np.mean([np.mean(x) for x in terms]) for name, terms in per_k.items()}
    return (
        float(hyper.pg_weight) * np.mean(pg)
        + np.mean(cmpo)
        + mean_k["pi"]
        + 0.25 * (np.mean(v_0) + mean_k["v"])
        + mean_k["r"]
    )


def test_grounded_loss_equals_the_slow_reference():
    config, model, _, state = make(muesli={"unroll": 3})
    batch, hyper = batch_of(jax.random.key(4)), hyper_of(config)
    targets, _, _ = targets_of(config, model, state, batch)
    total, _, _ = muesli.grounded_loss(config.muesli, model, state.params, batch, targets, hyper)
    np.testing.assert_allclose(total, reference_loss(config, model, state.params, batch, targets, hyper), rtol=1e-4)


ONLY = dict.fromkeys(
    ("pg_weight", "cmpo_weight", "model_policy_weight", "value_weight", "model_value_weight", "reward_weight"), 0.0
)


@pytest.mark.parametrize(
    ("weight", "moved"),
    [
        ("pg_weight", {"encoder", "root_policy"}),
        ("cmpo_weight", {"encoder", "root_policy"}),
        ("value_weight", {"encoder", "root_value"}),
        ("model_value_weight", {"encoder", "dynamics", "value"}),
        ("reward_weight", {"encoder", "dynamics", "reward"}),
        ("model_policy_weight", {"encoder", "dynamics", "policy"}),
    ],
)
def test_each_term_moves_only_its_parts(weight, moved):
    config, model, _, state = make()
    batch, hyper = batch_of(jax.random.key(4)), hyper_of(config, **{**ONLY, weight: 1.0})
    targets, _, _ = targets_of(config, model, state, batch)
    grads = jax.grad(lambda p: muesli.grounded_loss(config.muesli, model, p, batch, targets, hyper)[0])(state.params)
    assert moved_parts(grads) == moved


def moved_parts(grads: Params) -> set[str]:
    return {
        name for name, tree in grads._asdict().items() if any(np.any(np.asarray(x) != 0) for x in jax.tree.leaves(tree))
    }


@pytest.mark.parametrize(
    ("sc", "moved"),
    [
        ({"update": "direct"}, {"encoder", "dynamics", "value"}),
        ({"update": "dyna"}, {"value"}),
        ({"update": "model_only"}, {"encoder", "dynamics"}),
        ({"update": "residual"}, {"encoder", "dynamics", "reward", "value"}),
        ({"update": "reverse"}, {"encoder", "dynamics", "reward", "value"}),
        ({"update": "direct", "encoder_gradient": False}, {"dynamics", "value"}),
        ({"update": "direct", "loss": "squared"}, {"encoder", "dynamics", "value"}),
        ({"update": "direct", "include_root": True}, {"encoder", "dynamics", "value", "root_value"}),
    ],
)
def test_gate_table_holds_for_the_deep_agent(sc, moved):
    config, model, _, state = make(sc=sc)
    assert moved_parts(sc_grads(config, model, state)) == moved


def sc_grads(config, model, state, **values):
    batch, hyper = batch_of(jax.random.key(4)), hyper_of(config, **values)

    def loss(params):
        obs = jax.tree.map(lambda x: x[:-1], batch.obs)
        e = muesli.flat(model.encode(params.encoder, obs, ())[0])
        logits = jnp.reshape(model.root_policy(params.root_policy, e), (T, B, A))
        roots = muesli.Roots(e, transforms.masked_logits(logits, obs.legal))
        return muesli.sc_loss(config, model, params, batch, roots, hyper.discount, jax.random.key(7), hyper)[0]

    return jax.grad(loss)(state.params)


@pytest.mark.parametrize(
    "option",
    [
        {"policy": "epsilon"},
        {"policy": "avoid_first"},
        {"policy": "original"},
        {"noise_on": "encoding"},
        {"noise_on": "model"},
        {"rollout_ratio": 0.5},
        {"rollout_ratio": 1.5},
        {"loss": "squared"},
        {"reduction": "sum"},
        {"include_last": True},
        {"include_root": True},
        {"unroll": 4},
    ],
    ids=str,
)
def test_every_sc_option_changes_the_gradient(option):
    config, model, _, state = make(sc={"update": "direct"}, hyper={"epsilon": 0.0})
    values = {"epsilon": 0.5} if "policy" in option else {"latent_noise": 0.2} if "noise_on" in option else {}
    other = config.model_copy(update={"sc": config.sc.model_copy(update=option)})
    base, changed = sc_grads(config, model, state), sc_grads(other, model, state, **values)
    finite(changed)
    assert different(base, changed)


def finite(tree):
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(tree))


def different(one, other):
    return any(
        not np.allclose(a, b, rtol=1e-5, atol=1e-8) for a, b in zip(*map(jax.tree.leaves, (one, other)), strict=True)
    )


@pytest.mark.parametrize(
    "option",
    [
        {"pg_scope": "policy"},
        {"unroll_reduction": "sum"},
        {"unroll_reduction": "mean"},
        {"value_target": "return"},
        {"value_target": "state"},
        {"return_policy": "online"},
        {"expectation": "sampled"},
        {"cmpo": "sampled"},
        {"returns": "vtrace"},
        {"dynamics_gradient": 1.0},
        {"clip_pg_ratio": False},
        {"pg_baseline": "online"},
        {"model_policy": "distill"},
        {"value_transform": False},
        {"unroll": 4},
    ],
    ids=str,
)
def test_every_muesli_option_changes_the_gradient(option):
    def grads(**muesli_options):
        config, model, _, state = make(muesli={"cmpo": "exact", "expectation": "exact", **muesli_options})
        batch, hyper = batch_of(jax.random.key(4)), hyper_of(config)
        targets, _, _ = targets_of(config, model, state, batch)
        return jax.grad(lambda p: muesli.grounded_loss(config.muesli, model, p, batch, targets, hyper)[0])(state.params)

    changed = grads(**option)
    finite(changed)
    assert different(grads(), changed)


def test_distillation_does_not_shape_the_representation():
    config, model, _, state = make(muesli={"model_policy": "distill"})
    batch, hyper = batch_of(jax.random.key(4)), hyper_of(config, **{**ONLY, "model_policy_weight": 1.0})
    targets, _, _ = targets_of(config, model, state, batch)
    grads = jax.grad(lambda p: muesli.grounded_loss(config.muesli, model, p, batch, targets, hyper)[0])(state.params)
    assert moved_parts(grads) == {"policy"}


def test_an_update_moves_no_parameter_by_more_than_the_learning_rate():
    config, _, learner, state = make()
    new, metrics = jax.jit(learner.update)(state, batch_of(jax.random.key(4)), jax.random.key(5), hyper_of(config))
    steps = jax.tree.map(lambda a, b: np.max(np.abs(a - b)), new.params, state.params)
    # Adam's first update is +-1 per parameter, which the clip allows: one learning rate, up to rounding.
    assert 0.9 * 3e-4 < max(jax.tree.leaves(steps)) < 1.001 * 3e-4 + 1e-6
    assert metrics["learning_rate"] == jnp.float32(3e-4)


def test_target_network_is_the_moving_average_of_the_new_parameters():
    config, _, learner, state = make()
    new, _ = learner.update(state, batch_of(jax.random.key(4)), jax.random.key(5), hyper_of(config, target_rate=0.1))
    mean = jax.tree.map(lambda old, online: 0.9 * old + 0.1 * online, state.target, new.params)
    assert_close(new.target, mean, rtol=1e-5, atol=1e-6)


def test_learning_rate_decays_to_zero_at_the_last_update():
    config, _, learner, state = make()
    last = state._replace(updates=jnp.int32(config.num_updates))
    new, metrics = learner.update(last, batch_of(jax.random.key(4)), jax.random.key(5), hyper_of(config))
    assert metrics["learning_rate"] == 0
    assert_close(new.params, state.params, rtol=0, atol=0)


def test_metrics_are_the_same_for_every_update():
    names = set()
    for update in ("none", "direct", "dyna"):
        config, _, learner, state = make(sc={"update": update})
        metrics = jax.eval_shape(
            learner.update, state, batch_of(jax.random.key(4)), jax.random.key(5), hyper_of(config)
        )[1]
        assert all(x.shape == () and x.dtype == jnp.float32 for x in metrics.values())
        names.add(frozenset(k for k in metrics if not k.startswith(("sc_", "loss_sc"))))
    assert len(names) == 1


def test_hyper_fields_stay_numbers_only():
    assert all(isinstance(x, float) for x in Hyper()._replace(gates=0.0))
