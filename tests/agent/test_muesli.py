"""The learner against a slow reference that loops over steps, sequences, actions and model steps; and its options."""

import functools
import re

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
    def targets(state, batch, gamma, hyper):
        masks = muesli.count_masks(config.muesli, batch)
        return muesli.make_targets(config.muesli, model, state, batch, masks, hyper, gamma, KEY)

    return targets


def targets_of(config, state, batch, two_player=False, **values):
    hyper = hyper_of(config, **values)
    return targets_function(config)(state, batch, -hyper.discount if two_player else hyper.discount, hyper)


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


def heads_of(config, two_player, params, batch):
    """What the network of `params` says, number by number."""
    gamma = config.hyper.discount * (-1 if two_player else 1)
    heads = heads_function()(params, batch.obs, gamma)
    return Heads(*(np.asarray(x, np.float64) for x in heads))


@pytest.mark.parametrize(
    ("option", "two_player", "values"),
    [
        ({}, False, {}),
        ({"returns": "vtrace"}, True, {}),
        # With A = 3, one sample and the action of the data are looked at alone; three need the table of all actions.
        ({"num_action_samples": 1}, False, {}),
        ({"num_action_samples": 3}, True, {"cmpo_temperature": 0.3, "cmpo_clip": 2.0}),
    ],
    ids=str,
)
def test_targets_equal_the_slow_reference(option, two_player, values):
    spec = SPEC._replace(two_player=two_player)
    config, _, _, state = make(spec, muesli=exact(**option))
    batch, hyper = batch_of(jax.random.key(3), spec), numbers(config.hyper._replace(**values))
    targets, moment, _ = targets_of(config, state, batch, two_player, **values)

    target = heads_of(config, two_player, state.target, batch)
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


# Grounded losses


@functools.cache
def grounded_function(config):
    """Loss and gradients; the scale of the gradient that enters a model step is an argument, so one program has all."""
    model = make_model(config, SPEC)

    def loss(params, batch, targets, hyper):
        masks = muesli.count_masks(config.muesli, batch)
        return muesli.grounded_loss(config.muesli, model, params, batch, targets, masks, hyper, hyper.discount)[0]

    @jax.jit
    def loss_and_gradients(params, batch, targets, hyper, scale):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(muesli, "DYNAMICS_GRADIENT", scale)
            return jax.value_and_grad(loss)(params, batch, targets, hyper)

    return loss_and_gradients


@functools.cache
def grounded_case(**options):
    """config, params, batch, targets, and (params, scale, **values of hyper-parameters) -> loss and gradients."""
    config, _, _, state = make(muesli=exact(**options))
    batch = batch_of(jax.random.key(4))
    targets = targets_of(make(muesli=exact())[0], state, batch)[0]

    def run(params, scale=0.5, **values):
        return grounded_function(config)(params, batch, targets, hyper_of(config, **values), scale)

    return config, state.params, batch, targets, run


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


GROUNDED = [{}, {"spacing": "symexp"}, {"model_policy": "distill"}, {"terminal_value": "outcome", "unroll": 3}]


@pytest.mark.parametrize("option", GROUNDED, ids=str)
def test_grounded_loss_equals_the_slow_reference(option):
    config, params, batch, targets, run = grounded_case(**option)
    np.testing.assert_allclose(run(params)[0], reference_loss(config, params, batch, targets), rtol=1e-4)


ONLY = dict.fromkeys(
    ("pg_weight", "cmpo_weight", "model_policy_weight", "value_weight", "model_value_weight", "reward_weight"), 0.0
)


def test_dynamics_gradient_scales_what_passes_back_through_every_step():
    """The term of model step k reaches the encoder through k inputs of a step, each scaled."""

    def encoder_gradient(unroll, scale):
        _, params, _, _, run = grounded_case(unroll=unroll)
        values = {**ONLY, "model_value_weight": float(unroll)}  # a sum over k, not a mean
        return np.concatenate([np.ravel(x) for x in jax.tree.leaves(run(params, scale, **values)[1].encoder)])

    whole_1, whole_2 = (encoder_gradient(k, 1.0) for k in (1, 2))
    np.testing.assert_allclose(encoder_gradient(1, 0.5), whole_1 / 2, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(encoder_gradient(2, 0.5), whole_1 / 2 + (whole_2 - whole_1) / 4, rtol=1e-4, atol=1e-6)


def test_unscaled_gradients_are_those_of_the_loss():
    """Central differences along one direction in all parameters; the ratio of the policy gradient is a constant."""
    _, params, _, _, run = grounded_case()
    leaves, structure = jax.tree.flatten(params)
    rng = np.random.default_rng(0)
    direction = [rng.normal(size=x.shape).astype(np.float32) for x in leaves]

    def at(step):
        moved = [np.asarray(x) + np.float32(step) * d for x, d in zip(leaves, direction, strict=True)]
        return float(run(structure.unflatten(moved), 1.0, pg_weight=0.0)[0])

    grads = jax.tree.leaves(run(params, 1.0, pg_weight=0.0)[1])
    slope = sum(np.vdot(g, d) for g, d in zip(grads, direction, strict=True))
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
    _, params, _, _, run = grounded_case()
    assert moved_parts(run(params, **{**ONLY, weight: 1.0})[1]) == moved


def test_distillation_does_not_shape_the_representation():
    _, params, _, _, run = grounded_case(model_policy="distill")
    assert moved_parts(run(params, **{**ONLY, "model_policy_weight": 1.0})[1]) == {"policy"}


def moved_parts(grads: Params) -> set[str]:
    return {
        name for name, tree in grads._asdict().items() if any(np.any(np.asarray(x) != 0) for x in jax.tree.leaves(tree))
    }


# What states have to show

BITS = SPEC._replace(obs_shape=(2, 3, 4), obs_dtype=np.dtype(bool))
SHOWN = 3  # of the four planes


@functools.cache
def reconstruction_case(absorbing="zero"):
    batch = batch_of(jax.random.key(4), BITS)
    batch = batch._replace(obs=batch.obs._replace(frame=batch.obs.frame > 0))
    return case_of(batch, BITS, reconstruct_planes=SHOWN, terminal_value=absorbing)


@functools.cache
def legality_case():
    """Of random rules that allow what was done."""
    batch = batch_of(jax.random.key(4), SPEC)
    legal = batch.obs.legal & jax.random.bernoulli(jax.random.key(5), 0.5, batch.obs.legal.shape)
    taken = jax.nn.one_hot(jnp.concatenate([batch.action, batch.action[:1]]), A, dtype=bool)
    batch = batch._replace(obs=batch.obs._replace(legal=legal | taken))
    return case_of(batch, SPEC, env="pgx/tic_tac_toe", predict_legal=True)


def case_of(batch, spec, env=None, **options):
    """Config, model, params and batch, and the auxiliary term of the loss alone, its metrics and its gradients."""
    named = {"env": env} if env else {}
    config = small(**named, train={"sequence_length": T}, muesli=exact(**options), sc={"update": "none"})
    model = make_model(config, spec)
    params = jax.jit(model.init)(KEY)
    hyper = hyper_of(config, **{**ONLY, "aux_weight": 3.0})
    masks = muesli.count_masks(config.muesli, batch)
    targets = muesli.Targets(jnp.zeros((T, B, A)), jnp.zeros((T, B)), jnp.zeros((T, B)))

    def term(params):
        args = (config.muesli, model, params, batch, targets, masks, hyper, hyper.discount)
        loss, _, _, metrics = muesli.grounded_loss(*args)
        return loss, {name: x for name, x in metrics.items() if re.search("reconstruct|legal", name)}

    return config, model, params, batch, jax.jit(jax.value_and_grad(term, has_aux=True))(params)


def along(model, params, batch, unroll, show):
    """show(params, z) of the K + 1 states [T + 1, B] along the actions of the data."""

    @jax.jit
    def run(params):
        z = model.start(params.dynamics, rows(model.encode(params.encoder, batch.obs, ())[0]))
        shown = [show(params, z)]
        for k in range(unroll):
            action = rows(jnp.concatenate([jnp.roll(batch.action, -k, axis=0), batch.action[:1]]))
            z, _ = model.step(params.dynamics, params.reward, z, jax.nn.one_hot(action, A))
            shown.append(show(params, z))
        return [jnp.reshape(x, (T + 1, B, *x.shape[1:])) for x in shown]

    return [np.asarray(x, np.float64) for x in run(params)]


def known_of(config, batch):
    return references.follow_episodes(
        np.asarray(batch.discount), np.asarray(batch.obs.valid[:-1]), config.muesli.unroll
    )


def loss_of_bits(logits, bits):
    """Of {(t, b): bits}, a mean of sums."""
    probs = {at: 1 / (1 + np.exp(-logits[at])) for at in bits}
    return np.mean([-np.log(np.where(x, probs[at], 1 - probs[at])).sum() for at, x in bits.items()])


def share_right(logits, bits):
    return np.mean([np.array_equal(logits[at] > 0, x) for at, x in bits.items()])


@pytest.mark.parametrize("absorbing", ["zero", "outcome"])
def test_reconstruction_equals_the_slow_reference(absorbing):
    config, model, params, batch, ((weighted, metrics), _) = reconstruction_case(absorbing)
    unroll, known, loss, right = config.muesli.unroll, known_of(config, batch), [], []
    shown = along(model, params, batch, unroll, lambda params, z: model.reconstruct(params.dynamics, z))
    for k, logits in enumerate(shown):
        over = {at: np.zeros((2, 3, SHOWN)) for at in np.ndindex(T, B) if known[(k, *at)] == "absorbed"}
        assert bool(over) == (k > 0)
        if absorbing == "outcome":  # nothing is asked of what is beyond the end
            over = {}
        live = {
            (t, b): np.asarray(batch.obs.frame[t + k, b, ..., :SHOWN])
            for t, b in np.ndindex(T, B)
            if known[(k, t, b)] == "live"
        }
        loss.append(loss_of_bits(logits, over | live))
        right.append(share_right(logits, live))
    np.testing.assert_allclose(weighted, 3.0 * np.mean(loss), rtol=1e-5)
    np.testing.assert_allclose(metrics["loss_reconstruction"], np.mean(loss), rtol=1e-5)
    np.testing.assert_allclose([metrics[f"reconstructed_{k}"] for k in range(unroll + 1)], right, atol=1e-6)


def test_legality_equals_the_slow_reference():
    config, model, params, batch, ((weighted, metrics), _) = legality_case()
    unroll, known, loss, right = config.muesli.unroll, known_of(config, batch), [], []
    legal = np.asarray(batch.obs.legal)
    assert 0.2 < legal.mean() < 0.8
    shown = along(model, params, batch, unroll, lambda params, z: model.rules(params.policy, z)[1])
    for k, logits in enumerate(shown[1:], start=1):
        live = {(t, b): legal[t + k, b] for t, b in np.ndindex(T, B) if known[(k, t, b)] == "live"}
        assert 0 < len(live) < T * B  # nothing is asked beyond an end
        loss.append(loss_of_bits(logits, live))
        right.append(share_right(logits, live))
    np.testing.assert_allclose(weighted, 3.0 * np.mean(loss), rtol=1e-5)
    np.testing.assert_allclose(metrics["loss_legal"], np.mean(loss), rtol=1e-5)
    np.testing.assert_allclose([metrics[f"legal_{k}"] for k in range(1, unroll + 1)], right, atol=1e-6)


@pytest.mark.parametrize(
    ("case", "spec", "option", "part"),
    [(reconstruction_case, BITS, "reconstruct_planes", "dynamics"), (legality_case, SPEC, "predict_legal", "policy")],
)
def test_what_states_have_to_show_moves_the_model_and_is_drawn_beside_its_other_parts(case, spec, option, part):
    config, _, params, _, (_, grads) = case()
    assert moved_parts(grads) == {"encoder", "dynamics", part}
    for tree in (grads.dynamics, getattr(grads, part)):  # the transition, and what shows its states
        assert all(np.any(np.asarray(x) != 0) for x in jax.tree.leaves(tree))
    without = config.model_copy(update={"muesli": config.muesli.model_copy(update={option: 0})})
    plainly = jax.jit(make_model(without, spec).init)(KEY)
    if option == "reconstruct_planes":
        params = params._replace(dynamics={"params": params.dynamics["params"]})
    else:  # the policy's head says more
        params, plainly = params._replace(policy=()), plainly._replace(policy=())
    assert_close(params, plainly, rtol=0, atol=0)


def test_a_model_that_lacks_what_it_has_to_show_is_refused():
    config, model, *_ = legality_case()
    with pytest.raises(ConfigError, match=r"muesli.predict_legal=true needs a model with `rules`"):
        muesli.make_learner(config, model._replace(rules=None), SPEC)
    config, model, *_ = reconstruction_case()
    with pytest.raises(ConfigError, match=r"muesli.reconstruct_planes needs a model with `reconstruct` and `visible`"):
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
    index = consistency.choose_start_indices(key_roots, T * B, cfg.rollout_ratio)
    e, legal, action = e[index], rows(batch.obs.legal[:-1])[index], rows(batch.action)[index]

    def following(x):
        return jnp.stack([rows(jnp.roll(x, -k, axis=0))[index] for k in range(cfg.unroll)])

    mu = {
        "pi": consistency.mu_epsilon(0.0, legal),
        "epsilon": consistency.mu_epsilon(0.5, legal),
        "avoid_first": consistency.mu_avoid_first(action, legal),
        "original": consistency.mu_original(following(batch.action), following(batch.logits)),
    }[cfg.rollout_policy]
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
        {"unroll": 4},
        {"rollout_policy": "avoid_first", "rollout_ratio": 0.5, "noise_on": "encoding"},
        {"rollout_policy": "original", "rollout_ratio": 1.5, "include_last": True},
        {"loss": "distributional", "rollout_policy": "epsilon", "include_last": True},
    ],
    ids=str,
)
def test_sc_loss_equals_the_slow_reference(option):
    """On the rollouts of the named imagination policy, whose draws have tests of their own."""
    config, model, _, state = make(sc={"update": "direct", **option})
    batch, hyper = batch_of(jax.random.key(4)), hyper_of(config, rollout_epsilon=0.5, latent_noise=0.2)
    run = jax.jit(lambda *args: (sc_loss_of(config, model)(*args), imagined(config, model, *args)))
    total, (index, rho, reward, out, v) = plain(run(state.params, batch, KEY, hyper))
    cfg, discount, valid = config.sc, np.asarray(batch.discount), np.asarray(batch.obs.valid[:-1])
    # Replayed actions must stay inside their episode and sequence.
    known = references.follow_episodes(discount, valid, cfg.unroll - 1)[-1 if cfg.rollout_policy == "original" else 0]
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
    assert 0.9 * 2e-3 < max(jax.tree.leaves(steps)) < 1.001 * 2e-3 + 1e-6
    assert metrics["learning_rate"] == jnp.float32(2e-3)


def test_target_network_is_the_moving_average_of_the_new_parameters():
    _, state, update = updating()
    new, _ = update(state, target_rate=0.1)
    mean = jax.tree.map(lambda old, online: 0.9 * old + 0.1 * online, plain(state.target), plain(new.params))
    assert_close(new.target, mean, rtol=1e-5, atol=1e-6)


def test_a_model_step_of_a_game_of_two_players_changes_sides():
    spec = SPEC._replace(two_player=True)
    config, _, learner, state = make(spec, muesli=exact(), sc={"update": "none"})
    batch = batch_of(jax.random.key(4), spec)
    metrics = jax.jit(learner.update)(state, batch, KEY, hyper_of(config))[1]
    valid = np.asarray(batch.obs.valid[:-1])
    mine, other = (np.mean(targets_of(config, state, batch, sides)[0].value[valid]) for sides in (True, False))
    np.testing.assert_allclose(metrics["value_target"], mine, rtol=1e-4)
    assert abs(mine - other) > 1e-2


def test_learning_rate_decays_to_zero_at_the_last_update():
    config, state, update = updating()
    new, metrics = update(state._replace(updates=jnp.int32(config.num_updates)))
    assert metrics["learning_rate"] == 0
    assert_close(new.params, state.params, rtol=0, atol=0)


def test_metrics_are_the_same_with_and_without_self_consistency():
    with_sc = updating()[2](updating()[1])[1]
    config, _, learner, state = make(sc={"update": "none"})
    without = jax.eval_shape(learner.update, state, batch_of(jax.random.key(4)), KEY, hyper_of(config))[1]
    assert all(x.shape == () and x.dtype == jnp.float32 for x in (*with_sc.values(), *without.values()))
    assert {name for name in with_sc if not name.startswith(("sc_", "loss_sc"))} == set(without)


def test_the_gap_to_the_root_head_counts_live_steps_alone():
    config, state, update = updating()
    model, batch, metrics = make_model(config, SPEC), batch_of(jax.random.key(4)), update(state)[1]
    known, unroll = known_of(config, batch), config.muesli.unroll
    e = rows(model.encode(state.params.encoder, batch.obs, ())[0])
    v_0 = np.reshape(model.decode(model.root_value(state.params.root_value, e)), (T + 1, B))
    v = along(model, state.params, batch, unroll, lambda params, z: model.decode(model.value(params.value, z)))
    gaps = [
        np.mean([abs(v[k][t, b] - v_0[t + k, b]) for t, b in np.argwhere(known[k] == "live")])
        for k in range(1, unroll + 1)
    ]
    logged = [metrics[f"root_gap_{k}"] for k in range(1, unroll + 1)]
    np.testing.assert_allclose(logged, gaps, rtol=1e-4, atol=1e-6)


def test_hyper_fields_stay_numbers_only():
    assert all(isinstance(x, float) for x in Hyper()._replace(gates=0.0))
