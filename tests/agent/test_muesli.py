"""The learner against a slow reference that loops over steps, sequences, actions and model steps; and its options."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import references
from helpers.batches import SPEC, A, B, T, batch_of, hyper_of, make
from helpers.configs import assert_close, small
from helpers.references import Heads

from purejax_sc.agent import consistency, muesli, transforms
from purejax_sc.config import ConfigError, Hyper
from purejax_sc.networks import make_model
from purejax_sc.types import Params

KEY = jax.random.key(1)


def rows(x):
    """[T, B, ...] -> [M, ...]."""
    return jnp.reshape(x, (-1, *x.shape[2:]))


def plain(tree):
    """The same as NumPy arrays."""
    return jax.tree.map(np.asarray, tree)


def numbers(hyper):
    return jax.tree.map(float, hyper)


# Targets


def exact(**options):
    return {"num_action_samples": 0, **options}


@functools.cache
def targets_function(config):
    model = make_model(config, SPEC)  # for two players too: they are the sign of gamma

    @jax.jit
    def targets(state, batch, key, gamma, hyper):
        masks = muesli.count_masks(config.muesli, batch)
        return muesli.make_targets(config.muesli, model, state, batch, masks, hyper, gamma, key)

    return targets


def targets_of(config, state, batch, spec=SPEC, key=KEY, **values):
    hyper = hyper_of(config, **values)
    return targets_function(config)(state, batch, key, -hyper.discount if spec.two_player else hyper.discount, hyper)


@functools.cache
def heads_function():
    model = make(muesli=exact())[1]

    @jax.jit
    def heads(params, obs, gamma):
        e = rows(model.encode(params.encoder, obs, ())[0])
        logits = jnp.reshape(model.root_policy(params.root_policy, e), (T + 1, B, A))
        z = model.start(params.dynamics, e)

        def q(a):
            z_1, reward = model.step(params.dynamics, params.reward, z, jnp.broadcast_to(a, (len(e), A)))
            return jnp.reshape(model.decode(reward) + gamma * model.decode(model.value(params.value, z_1)), (T + 1, B))

        v = jnp.reshape(model.decode(model.root_value(params.root_value, e)), (T + 1, B))
        return Heads(jnp.where(obs.legal, logits, -1e9), v, jnp.stack([q(a) for a in jnp.eye(A)], axis=-1))

    return heads


def heads_of(config, spec, params, batch):
    """What the network of `params` says, number by number."""
    gamma = config.hyper.discount * (-1 if spec.two_player else 1)
    heads = heads_function()(params, batch.obs, gamma)
    return Heads(*(np.asarray(x, np.float64) for x in heads))


@pytest.mark.parametrize(
    ("option", "two_player"),
    [
        ({}, False),
        ({}, True),
        ({"returns": "vtrace"}, True),
        # With A = 3, one sample and the action of the data are looked at alone; three need the table of all actions.
        ({"num_action_samples": 1}, False),
        ({"num_action_samples": 3}, True),
        ({"num_action_samples": 3, "returns": "vtrace"}, False),
        ({"hyper": {"cmpo_temperature": 0.3}}, False),
        ({"hyper": {"cmpo_temperature": 0.3, "cmpo_clip": 2.0}, "num_action_samples": 3}, False),
    ],
    ids=str,
)
def test_targets_equal_the_slow_reference(option, two_player):
    spec = SPEC._replace(two_player=two_player)
    options = {"hyper": {}} | option
    config, _, _, state = make(spec, hyper=options.pop("hyper"), muesli=exact(**options))
    batch, hyper = batch_of(jax.random.key(3), spec), numbers(config.hyper)
    targets, moment, _ = targets_of(config, state, batch, spec)

    target = heads_of(config, spec, state.target, batch)
    log_prior = np.log(np.maximum(references.muesli_prior(target, plain(batch), hyper), 1e-30))
    drawn = jax.random.categorical(
        KEY, jnp.asarray(log_prior, jnp.float32), shape=(config.muesli.num_action_samples, T + 1, B)
    )
    expected = references.muesli_targets(
        config.muesli, hyper, plain(batch), target, plain(state.moment), np.asarray(drawn)
    )
    valid = np.asarray(batch.obs.valid[:-1])
    for name, atol in (("policy", 1e-6), ("value", 1e-5), ("adv", 1e-5)):
        mine, theirs = (getattr(x, name)[valid] for x in (targets, expected))
        np.testing.assert_allclose(mine, theirs, rtol=2e-4, atol=atol, err_msg=name)
    np.testing.assert_allclose(moment.nu, expected.nu, rtol=1e-4)


def test_sampled_targets_agree_with_exact_ones_on_average():
    exact_config, _, _, state = make(muesli=exact())
    batch = batch_of(jax.random.key(3))
    wanted, _, _ = targets_of(exact_config, state, batch)
    config, *_ = make(muesli={"num_action_samples": 64})

    keys = jax.random.split(jax.random.key(9), 200)
    sampled = jax.vmap(lambda key: targets_of(config, state, batch, key=key)[0])(keys)
    valid = np.asarray(batch.obs.valid[:-1])
    # The value target is linear in the sampled mean, so unbiased: 5 standard errors of 200 draws, plus rounding.
    error = np.abs(np.mean(sampled.value, 0) - wanted.value)[valid]
    assert np.all(error < 5 * np.std(np.asarray(sampled.value), 0)[valid] / np.sqrt(200) + 1e-3)
    np.testing.assert_allclose(np.mean(sampled.policy, 0)[valid], wanted.policy[valid], atol=0.03)
    assert np.std(np.asarray(sampled.value), 0).max() > 0.01


# Grounded losses


@functools.cache
def loss_function(config):
    model = make_model(config, SPEC)

    def loss(params, batch, targets, hyper):
        masks = muesli.count_masks(config.muesli, batch)
        return muesli.grounded_loss(config.muesli, model, params, batch, targets, masks, hyper, hyper.discount)[0]

    return jax.jit(loss), jax.jit(jax.grad(loss))


def grounded_case(**options):
    config, _, _, state = make(muesli=exact(**options))
    batch = batch_of(jax.random.key(4))
    return config, state, batch, targets_of(make(muesli=exact())[0], state, batch)[0]


@functools.cache
def unrolled_function(unroll):
    model = make()[1]

    @jax.jit
    def said(params, batch):
        e = rows(model.encode(params.encoder, batch.obs, ())[0])
        root_policy = jnp.reshape(model.root_policy(params.root_policy, e), (T + 1, B, A))
        root_value = jnp.reshape(model.root_value(params.root_value, e), (T + 1, B, -1))
        z, steps = model.start(params.dynamics, e), []
        for k in range(unroll):  # action t + k from every root t, wrapping around as padding
            action = rows(jnp.concatenate([jnp.roll(batch.action, -k, axis=0), batch.action[:1]]))
            z, reward = model.step(params.dynamics, params.reward, z, jax.nn.one_hot(action, A))
            outs = (reward, model.value(params.value, z), model.policy(params.policy, z))
            steps.append(tuple(jnp.reshape(out, (T + 1, B, -1)) for out in outs))
        logits = jnp.where(batch.obs.legal, root_policy, -1e9)
        return logits, root_value, references.Unrolled(*map(jnp.stack, zip(*steps, strict=True)))

    return said


def reference_loss(config, params, batch, targets):
    outputs = unrolled_function(config.muesli.unroll)(params, batch)
    outputs = jax.tree.map(lambda x: np.asarray(x, np.float64), outputs)
    return references.grounded_loss(config.muesli, numbers(config.hyper), plain(batch), plain(targets), *outputs)


@pytest.mark.parametrize(
    "option",
    [
        {},
        {"model_policy": "distill"},
        {"unroll": 3},
        {"unroll": 4},
        {"absorbing": "outcome"},
        {"absorbing": "outcome", "unroll": 4},
    ],
    ids=str,
)
def test_grounded_loss_equals_the_slow_reference(option):
    config, state, batch, targets = grounded_case(**option)
    total = loss_function(config)[0](state.params, batch, targets, hyper_of(config))
    np.testing.assert_allclose(total, reference_loss(config, state.params, batch, targets), rtol=1e-4)


ONLY = dict.fromkeys(
    ("pg_weight", "cmpo_weight", "model_policy_weight", "value_weight", "model_value_weight", "reward_weight"), 0.0
)


def test_dynamics_gradient_scales_what_passes_back_through_every_step(monkeypatch):
    """The term of model step k reaches the encoder through k inputs of a step, each scaled."""

    def encoder_gradient(unroll, scale):
        monkeypatch.setattr(muesli, "DYNAMICS_GRADIENT", scale)
        loss_function.cache_clear()
        config, state, batch, targets = grounded_case(unroll=unroll)
        hyper = hyper_of(config, **{**ONLY, "model_value_weight": float(unroll)})  # a sum over k, not a mean
        grads = loss_function(config)[1](state.params, batch, targets, hyper)
        loss_function.cache_clear()
        return np.concatenate([np.ravel(x) for x in jax.tree.leaves(grads.encoder)])

    whole_1, whole_2 = (encoder_gradient(k, 1.0) for k in (1, 2))
    np.testing.assert_allclose(encoder_gradient(1, 0.5), whole_1 / 2, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(encoder_gradient(2, 0.5), whole_1 / 2 + (whole_2 - whole_1) / 4, rtol=1e-4, atol=1e-6)


def test_unscaled_gradients_are_those_of_the_loss(monkeypatch):
    """Central differences along one direction in all parameters; the ratio of the policy gradient is a constant."""
    monkeypatch.setattr(muesli, "DYNAMICS_GRADIENT", 1.0)
    loss_function.cache_clear()
    config, state, batch, targets = grounded_case()
    hyper, (loss, grad) = hyper_of(config, pg_weight=0.0), loss_function(config)
    leaves, structure = jax.tree.flatten(state.params)
    rng = np.random.default_rng(0)
    direction = [rng.normal(size=x.shape).astype(np.float32) for x in leaves]

    def at(step):
        moved = [np.asarray(x) + np.float32(step) * d for x, d in zip(leaves, direction, strict=True)]
        return float(loss(structure.unflatten(moved), batch, targets, hyper))

    grads = jax.tree.leaves(grad(state.params, batch, targets, hyper))
    slope = sum(np.vdot(g, d) for g, d in zip(grads, direction, strict=True))
    loss_function.cache_clear()
    np.testing.assert_allclose((at(1e-3) - at(-1e-3)) / 2e-3, slope, rtol=1e-2)


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
    config, state, batch, targets = grounded_case()
    hyper = hyper_of(config, **{**ONLY, weight: 1.0})
    assert moved_parts(loss_function(config)[1](state.params, batch, targets, hyper)) == moved


def test_distillation_does_not_shape_the_representation():
    config, state, batch, targets = grounded_case(model_policy="distill")
    hyper = hyper_of(config, **{**ONLY, "model_policy_weight": 1.0})
    assert moved_parts(loss_function(config)[1](state.params, batch, targets, hyper)) == {"policy"}


def moved_parts(grads: Params) -> set[str]:
    return {
        name for name, tree in grads._asdict().items() if any(np.any(np.asarray(x) != 0) for x in jax.tree.leaves(tree))
    }


# Reconstruction

BITS = SPEC._replace(obs_shape=(2, 3, 4), obs_dtype=np.dtype(bool))
SHOWN = 3  # of the four planes


@functools.cache
def reconstruction_case(absorbing="zero"):
    batch = batch_of(jax.random.key(4), BITS)
    batch = batch._replace(obs=batch.obs._replace(frame=batch.obs.frame > 0))
    return case_of(batch, BITS, reconstruct=SHOWN, absorbing=absorbing)


@functools.cache
def legality_case():
    """Of random rules that allow what was done."""
    batch = batch_of(jax.random.key(4), SPEC)
    legal = batch.obs.legal & jax.random.bernoulli(jax.random.key(5), 0.5, batch.obs.legal.shape)
    taken = jax.nn.one_hot(jnp.concatenate([batch.action, batch.action[:1]]), A, dtype=bool)
    batch = batch._replace(obs=batch.obs._replace(legal=legal | taken))
    return case_of(batch, SPEC, env="pgx/tic_tac_toe", legal=True)


def case_of(batch, spec, env=None, **options):
    """Config, model, learner, state and batch, and (params) -> the auxiliary term of the loss alone, and metrics."""
    named = {"env": env} if env else {}
    train = {"sequence_length": T, "env_steps": 4_000}
    config = small(**named, train=train, muesli=exact(**options), sc={"update": "none"})
    model = make_model(config, spec)
    learner = muesli.make_learner(config, model, spec)
    state = jax.jit(learner.init)(KEY)
    hyper = hyper_of(config, **{**ONLY, "reconstruction_weight": 3.0})
    masks = muesli.count_masks(config.muesli, batch)

    @jax.jit
    def term(params):
        rest = config.muesli, model, state, batch, masks, hyper, hyper.discount
        targets = muesli.make_targets(*rest, KEY)[0]
        loss, _, _, metrics = muesli.grounded_loss(
            config.muesli, model, params, batch, targets, masks, hyper, hyper.discount
        )
        return loss, metrics

    return config, model, learner, state, batch, term


CASES = pytest.mark.parametrize(
    ("case", "name", "part"), [(reconstruction_case, "reconstruction", "dynamics"), (legality_case, "legal", "policy")]
)


@pytest.mark.parametrize("absorbing", ["zero", "outcome"])
def test_reconstruction_equals_the_slow_reference(absorbing):
    config, model, _, state, batch, term = reconstruction_case(absorbing)
    params, unroll = state.params, config.muesli.unroll
    known = references.follow_episodes(np.asarray(batch.discount), np.asarray(batch.obs.valid[:-1]), unroll)
    e = rows(model.encode(params.encoder, batch.obs, ())[0])
    z, loss, right = model.start(params.dynamics, e), [], []
    for k in range(unroll + 1):
        logits = np.asarray(model.reconstruct(params.dynamics, z), np.float64)
        logits = logits.reshape(T + 1, B, 2, 3, SHOWN)
        over = {at: np.zeros((2, 3, SHOWN)) for at in np.ndindex(T, B) if known[(k, *at)] == "absorbed"}
        assert bool(over) == (k > 0)
        if absorbing == "outcome":  # nothing is asked of what is beyond the end
            over = {}
        live = {
            (t, b): np.asarray(batch.obs.frame[t + k, b, ..., :SHOWN])
            for t, b in np.ndindex(T, B)
            if known[(k, t, b)] == "live"
        }
        probs = {at: 1 / (1 + np.exp(-logits[at])) for at in over | live}
        loss.append(np.mean([-np.log(np.where(x, probs[at], 1 - probs[at])).sum() for at, x in (over | live).items()]))
        right.append(np.mean([np.array_equal(probs[at] > 0.5, x) for at, x in live.items()]))
        action = rows(jnp.concatenate([jnp.roll(batch.action, -k, axis=0), batch.action[:1]]))
        z, _ = model.step(params.dynamics, params.reward, z, jax.nn.one_hot(action, A))
    weighted, metrics = term(params)
    np.testing.assert_allclose(weighted, 3.0 * np.mean(loss), rtol=1e-5)
    np.testing.assert_allclose(metrics["loss_reconstruction"], np.mean(loss), rtol=1e-5)
    np.testing.assert_allclose([metrics[f"reconstructed_{k}"] for k in range(unroll + 1)], right, atol=1e-6)


@CASES
def test_what_states_have_to_show_moves_the_model_and_what_shows_it(case, name, part):
    _, _, _, state, _, term = case()
    grads = jax.jit(jax.grad(lambda params: term(params)[0]))(state.params)
    assert moved_parts(grads) == {"encoder", "dynamics", part}
    for tree in (grads.dynamics, getattr(grads, part)):  # the transition, and what shows its states
        assert all(np.any(np.asarray(x) != 0) for x in jax.tree.leaves(tree))


@CASES
def test_states_of_the_model_learn_to_show_it(case, name, part):
    config, _, learner, state, batch, term = case()
    update, before = jax.jit(learner.update), term(state.params)[1]
    hyper = hyper_of(config, learning_rate=2e-2, reconstruction_weight=1.0)
    for _ in range(config.num_updates):
        state = update(state, batch, KEY, hyper)[0]
    after = term(state.params)[1]
    assert after[f"loss_{name}"] < 0.2 * before[f"loss_{name}"]
    share = "legal_1" if name == "legal" else "reconstructed_0"
    assert after[share] > 0.5 > before[share]


@pytest.mark.parametrize(
    ("case", "spec", "key"), [(reconstruction_case, BITS, "reconstruct"), (legality_case, SPEC, "legal")]
)
def test_parts_of_an_agent_are_the_same_with_and_without(case, spec, key):
    config, _, _, state, _, _ = case()
    without = config.model_copy(update={"muesli": config.muesli.model_copy(update={key: 0})})
    params, there = jax.jit(make_model(without, spec).init)(KEY), state.params
    if key == "reconstruct":
        there = there._replace(dynamics={"params": there.dynamics["params"]})
    else:  # the policy's head says more
        there, params = there._replace(policy=()), params._replace(policy=())
    assert_close(there, params, rtol=0, atol=0)


def test_legality_equals_the_slow_reference():
    config, model, _, state, batch, term = legality_case()
    params, unroll = state.params, config.muesli.unroll
    known = references.follow_episodes(np.asarray(batch.discount), np.asarray(batch.obs.valid[:-1]), unroll)
    legal = np.asarray(batch.obs.legal)
    assert 0.2 < legal.mean() < 0.8
    z, loss, right = model.start(params.dynamics, rows(model.encode(params.encoder, batch.obs, ())[0])), [], []
    for k in range(1, unroll + 1):
        action = rows(jnp.concatenate([jnp.roll(batch.action, 1 - k, axis=0), batch.action[:1]]))
        z, _ = model.step(params.dynamics, params.reward, z, jax.nn.one_hot(action, A))
        logits = np.asarray(model.rules(params.policy, z)[1], np.float64).reshape(T + 1, B, A)
        live = [at for at in np.ndindex(T, B) if known[(k, *at)] == "live"]  # nothing is asked beyond an end
        assert 0 < len(live) < T * B
        probs = {at: 1 / (1 + np.exp(-logits[at])) for at in live}
        of = {(t, b): legal[t + k, b] for t, b in live}
        loss.append(np.mean([-np.log(np.where(of[at], probs[at], 1 - probs[at])).sum() for at in live]))
        right.append(np.mean([np.array_equal(probs[at] > 0.5, of[at]) for at in live]))
    weighted, metrics = term(params)
    np.testing.assert_allclose(weighted, 3.0 * np.mean(loss), rtol=1e-5)
    np.testing.assert_allclose(metrics["loss_legal"], np.mean(loss), rtol=1e-5)
    np.testing.assert_allclose([metrics[f"legal_{k}"] for k in range(1, unroll + 1)], right, atol=1e-6)


def test_a_model_that_says_nothing_of_legal_actions_is_refused_where_it_has_to():
    config, model, _, _, _, _ = legality_case()
    with pytest.raises(ConfigError, match=r"muesli.legal=true needs a model with `rules`"):
        muesli.make_learner(config, model._replace(rules=None), SPEC)


def test_a_model_that_reconstructs_nothing_is_refused_where_it_has_to():
    config, model, _, _, _, _ = reconstruction_case()
    with pytest.raises(ConfigError, match=r"muesli.reconstruct needs a model with `reconstruct` and `visible`"):
        muesli.make_learner(config, model._replace(reconstruct=None), BITS)


# Self-consistency


def sc_loss_of(config, model):
    """(params, batch, key, hyper) -> the loss, from encodings of its own."""

    def loss(params, batch, key, hyper):
        obs = jax.tree.map(lambda x: x[:-1], batch.obs)
        e = rows(model.encode(params.encoder, obs, ())[0])
        logits = jnp.reshape(model.root_policy(params.root_policy, e), (T, B, A))
        logits, masks = transforms.masked_logits(logits, obs.legal), muesli.count_masks(config.muesli, batch)
        return muesli.sc_loss(config, model, params, e, logits, batch, masks, hyper, hyper.discount, key)[0]

    return loss


MOVED = {
    "direct": {"encoder", "dynamics", "value"},
    "dyna": {"value"},
    "model_only": {"encoder", "dynamics"},
    "residual": {"encoder", "dynamics", "reward", "value"},
    "reverse": {"encoder", "dynamics", "reward", "value"},
}


def sc_gradients(**sc):
    """Gradients of the SC loss by update, from one program with traced gates."""
    config, model, _, state = make(sc=sc)
    grad = jax.jit(jax.grad(sc_loss_of(config, model)))
    return {
        update: grad(state.params, batch_of(jax.random.key(4)), KEY, hyper_of(config, gates=gates))
        for update, gates in consistency.UPDATES.items()
    }


@pytest.mark.parametrize("loss", ["cross_entropy", "distributional"])
def test_gate_table_holds_for_the_deep_agent(loss):
    assert {update: moved_parts(grads) for update, grads in sc_gradients(loss=loss).items()} == MOVED


def imagined(config, model, params, batch, key, hyper):
    """The rollouts that the options ask for: index [M] of their roots, rho [K, M], reward [K, M], logits and values
    [K + 1, M]."""
    cfg = config.sc
    key_roots, key_noise, key_rollout = jax.random.split(key, 3)
    e = rows(model.encode(params.encoder, batch.obs, ())[0])[: T * B]
    index = consistency.choose_roots(key_roots, T * B, cfg.rollout_ratio)
    e, legal, action = e[index], rows(batch.obs.legal[:-1])[index], rows(batch.action)[index]

    def following(x):
        return jnp.stack([rows(jnp.roll(x, -k, axis=0))[index] for k in range(cfg.unroll)])

    mu = {
        "pi": consistency.mu_epsilon(0.0, legal),
        "epsilon": consistency.mu_epsilon(0.5, legal),
        "avoid_first": consistency.mu_avoid_first(action, legal),
        "original": consistency.mu_original(following(batch.action), following(batch.logits)),
    }[cfg.policy]
    if cfg.noise_on == "encoding":
        e = consistency.perturb(key_noise, e, 0.2)
    z_0 = model.start(params.dynamics, e)
    logits = transforms.masked_logits(model.root_policy(params.root_policy, e), legal)
    rollout = consistency.imagine(model, params, z_0, logits, mu, key_rollout, cfg.unroll)
    return index, rollout.rho, *outputs(model, params, e, rollout)


def outputs(model, params, e, rollout):
    """reward [K, M], logits and values [K + 1, M] of a rollout."""
    out = [model.root_value(params.root_value, e), *(model.value(params.value, z) for z in rollout.z[1:])]
    return rollout.reward, jnp.stack(out), jnp.stack([model.decode(x) for x in out])


@pytest.mark.parametrize(
    "option",
    [
        {},
        {"policy": "avoid_first", "rollout_ratio": 0.5},
        {"policy": "original", "rollout_ratio": 1.5},
        {"noise_on": "encoding"},
        {"loss": "distributional", "policy": "epsilon"},
        {"loss": "distributional", "include_last": True},
        {"include_last": True},
        {"unroll": 4},
    ],
    ids=str,
)
def test_sc_loss_equals_the_slow_reference(option):
    """On the rollouts of the named imagination policy, whose draws have tests of their own."""
    config, model, _, state = make(sc={"update": "direct", **option})
    batch, hyper = batch_of(jax.random.key(4)), hyper_of(config, epsilon=0.5, latent_noise=0.2)
    run = jax.jit(lambda *args: (sc_loss_of(config, model)(*args), imagined(config, model, *args)))
    total, (index, rho, reward, out, v) = plain(run(state.params, batch, KEY, hyper))
    cfg, discount, valid = config.sc, np.asarray(batch.discount), np.asarray(batch.obs.valid[:-1])
    # Replayed actions must stay inside their episode and sequence.
    known = references.follow_episodes(discount, valid, cfg.unroll - 1)[-1 if cfg.policy == "original" else 0]
    target = references.sc_targets(reward, v, rho, config.hyper.discount, 1.0)
    if cfg.include_last:
        target = np.concatenate([target, v[-1:]])
    terms = slice(1, len(target))
    live = known.reshape(-1)[index] == "live"
    scale = config.hyper.discount ** (cfg.unroll - np.arange(len(target)))
    expected = references.sc_loss(cfg, config.muesli, live, target[terms], out[terms], out[-1], v[-1], scale[terms])
    np.testing.assert_allclose(total, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("loss", ["distributional", "cross_entropy"])
def test_where_value_and_target_agree_there_is_no_gradient(loss):
    """With one step and its last term alone, the value at z^1 is compared with itself; cross-entropy narrows it."""
    for grads in sc_gradients(loss=loss, unroll=1, include_last=True).values():
        largest = max(float(jnp.max(jnp.abs(x))) for x in jax.tree.leaves(grads))
        assert (largest > 1e-3) if loss == "cross_entropy" else (largest < 1e-5)


# Updates


@functools.cache
def updating():
    """The configuration, the state to start from, and update(state, **values of hyper-parameters): one program."""
    config, _, learner, state = make()
    update = jax.jit(learner.update)
    batch, key = batch_of(jax.random.key(4)), jax.random.key(5)
    return config, state, lambda state, **values: update(state, batch, key, hyper_of(config, **values))


def test_an_update_moves_no_parameter_by_more_than_the_learning_rate():
    _, state, update = updating()
    new, metrics = update(state)
    steps = jax.tree.map(lambda a, b: np.max(np.abs(a - b)), plain(new.params), plain(state.params))
    # Adam's first update is +-1 per parameter, which the clip allows: one learning rate, up to rounding.
    assert 0.9 * 3e-4 < max(jax.tree.leaves(steps)) < 1.001 * 3e-4 + 1e-6
    assert metrics["learning_rate"] == jnp.float32(3e-4)


def test_target_network_is_the_moving_average_of_the_new_parameters():
    _, state, update = updating()
    new, _ = update(state, target_rate=0.1)
    mean = jax.tree.map(lambda old, online: 0.9 * old + 0.1 * online, plain(state.target), plain(new.params))
    assert_close(new.target, mean, rtol=1e-5, atol=1e-6)


def test_two_players_are_the_sign_of_the_discount():
    config, state, update = updating()
    spec = SPEC._replace(two_player=True)
    learner, batch = make(spec)[2], batch_of(jax.random.key(4), spec)
    two, _ = jax.jit(learner.update)(state, batch, jax.random.key(5), hyper_of(config))
    one, _ = update(state, discount=-config.hyper.discount)
    assert_close(two.params, one.params, rtol=1e-5, atol=1e-6)


def test_learning_rate_decays_to_zero_at_the_last_update():
    config, state, update = updating()
    new, metrics = update(state._replace(updates=jnp.int32(config.num_updates)))
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


def test_the_gap_to_the_root_head_counts_live_steps_alone():
    config, model, learner, state = make()
    batch = batch_of(jax.random.key(4))
    _, metrics = jax.jit(learner.update)(state, batch, KEY, hyper_of(config))
    params, known = (
        state.params,
        references.follow_episodes(np.asarray(batch.discount), np.asarray(batch.obs.valid[:-1]), config.muesli.unroll),
    )
    e = rows(model.encode(params.encoder, jax.tree.map(lambda x: x[:-1], batch.obs), ())[0])
    v_0 = np.reshape(model.decode(model.root_value(params.root_value, e)), (T, B))
    z, gaps = model.start(params.dynamics, e), []
    for k in range(1, config.muesli.unroll + 1):
        a = rows(jax.nn.one_hot(jnp.roll(batch.action, 1 - k, axis=0), A))
        z, _ = model.step(params.dynamics, params.reward, z, a)
        v = np.reshape(model.decode(model.value(params.value, z)), (T, B))
        live = np.argwhere(known[k] == "live")
        gaps.append(np.mean([abs(v[t, b] - v_0[t + k, b]) for t, b in live]) if len(live) else 0.0)
    logged = [metrics[f"root_gap_{k}"] for k in range(1, config.muesli.unroll + 1)]
    np.testing.assert_allclose(logged, gaps, rtol=1e-4, atol=1e-6)


def test_hyper_fields_stay_numbers_only():
    assert all(isinstance(x, float) for x in Hyper()._replace(gates=0.0))
