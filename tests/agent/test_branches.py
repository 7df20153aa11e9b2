"""What the model learns from actions that were tried beside the one that was played."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import references
from helpers.batches import SPEC, A, B, T, batch_of, branch_of, hyper_of
from helpers.configs import small

from purejax_sc.agent import muesli
from purejax_sc.config import ConfigError
from purejax_sc.networks import make_model

KEY = jax.random.key(1)
TRIED = 2
SHOWN = 3  # of the four planes
BITS = SPEC._replace(obs_shape=(2, 3, 4), obs_dtype=np.dtype(bool))
ONLY = dict.fromkeys(("reward_weight", "model_value_weight", "model_policy_weight", "reconstruction_weight"), 0.0)


@functools.cache
def case(reconstruct=SHOWN):
    """Configuration, model, state whose heads are awake, batch, and (params, hyper) -> the term and metrics."""
    config = small(
        train={"sequence_length": T}, muesli={"reconstruct": reconstruct}, sc={"update": "none"},
        acting={"branches": TRIED},
    )  # fmt: skip
    model = make_model(config, BITS)
    state = jax.jit(muesli.make_learner(config, model, BITS).init)(KEY)
    leaves, structure = jax.tree.flatten(state.params)
    noise = [0.3 * jax.random.normal(jax.random.key(i), x.shape) for i, x in enumerate(leaves)]
    online = structure.unflatten([x + y for x, y in zip(leaves, noise, strict=True)])
    state = state._replace(params=online, target=jax.tree.map(lambda x: 0.9 * x + 0.01, online))
    batch = batch_of(jax.random.key(4), BITS)
    batch = batch._replace(
        obs=batch.obs._replace(frame=batch.obs.frame > 0), branch=branch_of(jax.random.key(5), BITS, TRIED)
    )

    @jax.jit
    def term(params, hyper):
        inputs = muesli.Inputs(batch, muesli.count_entries(config.muesli, batch), hyper, hyper.discount)
        targets = muesli.make_targets(config.muesli, model, state, inputs, KEY)[0]
        terms, _, metrics = muesli.grounded_terms(config.muesli, model, params, targets, inputs)
        return terms["branch"], metrics

    return config, model, state, batch, term


def slow_terms():
    """reward, value, policy and reconstruction, one outcome at a time: means over actions of means over states."""
    config, model, state, batch, _ = case()
    cfg, params, target, branch = config.muesli, state.params, state.target, jax.tree.map(np.asarray, batch.branch)
    e = jnp.reshape(model.encode(params.encoder, batch.obs, ())[0], (T + 1, B, -1))
    found = {name: np.full((TRIED, T, B), np.nan) for name in ("reward", "value", "policy", "shown", "gap", "right")}
    for t, b, n in np.ndindex(T, B, TRIED):
        if not batch.obs.valid[t, b]:
            continue
        at, ended = (n, t, b), branch.discount[t, b, n] == 0
        z = model.start(params.dynamics, e[t, b][None])
        z, reward = model.step(params.dynamics, params.reward, z, jax.nn.one_hot(branch.action[t, b, n], A)[None])
        seen = jax.tree.map(lambda x, at=(t, b): x[at][None, None], batch.obs)
        seen = seen._replace(frame=branch.frame[t, b, n][None, None])
        there = model.encode(target.encoder, seen, ())[0][0]
        v = 0.0 if ended else float(model.decode(model.root_value(target.root_value, there))[0])
        out, said = model.value(params.value, z), np.asarray(model.reconstruct(params.dynamics, z)[0], np.float64)
        bits = np.zeros(said.shape) if ended else branch.frame[t, b, n][..., :SHOWN]
        probs = 1 / (1 + np.exp(-said))
        found["reward"][at] = references.categorical_loss(cfg, np.asarray(reward[0]), branch.reward[t, b, n])
        found["value"][at] = references.categorical_loss(cfg, np.asarray(out[0]), v)
        found["shown"][at] = -np.log(np.where(bits, probs, 1 - probs)).sum()
        if not ended:
            logits = np.asarray(model.root_policy(target.root_policy, there)[0], np.float64)
            pi = references.softmax(np.where(branch.legal[t, b, n], logits, -1e9))
            found["policy"][at] = references.cross_entropy(np.asarray(model.policy(params.policy, z)[0]), pi)
            found["gap"][at] = abs(float(model.decode(out)[0]) - v)
            found["right"][at] = np.array_equal(probs > 0.5, bits)
    return {name: np.mean([np.nanmean(x[n]) for n in range(TRIED)]) for name, x in found.items()}


def test_the_loss_equals_the_slow_reference():
    config, _, state, _, term = case()
    slow, weights = slow_terms(), dict(zip(ONLY, (2.0, 3.0, 0.5, 0.2), strict=True))
    loss, metrics = term(state.params, hyper_of(config, **weights))
    whole = 2.0 * slow["reward"] + 3.0 * slow["value"] + 0.5 * slow["policy"] + 0.2 * slow["shown"]
    np.testing.assert_allclose(loss, whole, rtol=1e-4)
    np.testing.assert_allclose(metrics["loss_branch"], whole, rtol=1e-4)
    np.testing.assert_allclose(metrics["branch_gap"], slow["gap"], rtol=1e-4)
    np.testing.assert_allclose(metrics["branch_reconstructed"], slow["right"], atol=1e-6)


@pytest.mark.parametrize(
    ("weight", "moved"),
    [
        ("reward_weight", {"encoder", "dynamics", "reward"}),
        ("model_value_weight", {"encoder", "dynamics", "value"}),
        ("model_policy_weight", {"encoder", "dynamics", "policy"}),
        ("reconstruction_weight", {"encoder", "dynamics"}),
    ],
)
def test_the_root_heads_learn_nothing_from_it(weight, moved):
    config, _, state, _, term = case()
    grads = jax.jit(jax.grad(lambda params, hyper: term(params, hyper)[0]))(
        state.params, hyper_of(config, **(ONLY | {weight: 1.0}))
    )
    found = {part for part, tree in grads._asdict().items() if any(np.any(x) for x in jax.tree.leaves(tree))}
    assert found == moved


def test_a_model_that_shows_nothing_learns_the_rest():
    config, _, state, _, term = case(reconstruct=0)
    loss, metrics = term(state.params, hyper_of(config))
    assert loss > 0
    assert "branch_gap" in metrics
    assert "branch_reconstructed" not in metrics


def test_a_network_that_remembers_is_refused_with_a_cure():
    config, model, _, _, _ = case()
    with pytest.raises(ConfigError, match=r"acting.branches needs a network without memory"):
        muesli.make_learner(config, model._replace(initial_carry=lambda num: jnp.zeros(num)), BITS)
