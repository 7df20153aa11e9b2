"""The tabular algorithm: gradients, invariants, numbers that can be checked on paper, and whole runs in NumPy."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import tabular_references as references

from purejax_sc.agent.consistency import UPDATES
from purejax_sc.envs.garnet import sample_garnet
from purejax_sc.tabular import compiled, learner, mdp
from purejax_sc.tabular.learner import Draw
from purejax_sc.tabular.model import Tables, init_tables, planning_loss, tabular_model
from purejax_sc.tabular.options import NO_GATES, TabularOptions, variant
from purejax_sc.types import Observation

S, A, DISCOUNT = 5, 3, 0.9
METHODS = ("none", *UPDATES)


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


# One program for all tests of the same shapes.
planning_gradient = jax.jit(jax.grad(planning_loss), static_argnums=4)
grounded_update = jax.jit(learner.grounded_update)


def random_problem(seed=0):
    """(v, r, p), pi: a policy that differs by state."""
    rng = np.random.default_rng(seed)
    tables = rng.normal(size=S), rng.normal(size=(S, A)), rng.normal(size=(S, A, S))
    return tables, rng.dirichlet(np.ones(A), size=S)


def gradient(tables, pi, update, terms=3, discount=DISCOUNT):
    gates = UPDATES.get(update, NO_GATES)
    return jax.device_get(planning_gradient(Tables(*tables), pi, gates, discount, terms))


@pytest.mark.parametrize("terms", [1, 3])
def test_gradients_equal_the_closed_forms(terms) -> None:
    tables, pi = random_problem()
    for update in METHODS:
        expected = references.closed_form_gradient(*tables, pi, DISCOUNT, terms, update)
        for mine, theirs in zip(gradient(tables, pi, update, terms), expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-11, atol=1e-12, err_msg=update)


def test_gradients_equal_central_differences() -> None:
    tables, pi = random_problem(1)
    for update in METHODS:
        expected = references.explicit_gradient(*tables, pi, DISCOUNT, 3, update)
        for mine, theirs in zip(gradient(tables, pi, update), expected, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-8, err_msg=update)


def test_residual_is_direct_plus_reverse_and_direct_is_dyna_plus_model_only() -> None:
    tables, pi = random_problem()
    by = {update: gradient(tables, pi, update) for update in UPDATES}
    for whole, one, other in (("residual", "direct", "reverse"), ("direct", "dyna", "model_only")):
        for x, y, z in zip(by[whole], by[one], by[other], strict=True):
            np.testing.assert_allclose(x, y + z, rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(by["dyna"].v, by["direct"].v)


def test_direct_never_moves_the_reward_model_nor_the_transitions_from_the_root() -> None:
    tables, pi = random_problem()
    assert not np.any(gradient(tables, pi, "direct").r)
    assert not np.any(gradient(tables, pi, "direct", terms=1).p)
    assert np.all(gradient(tables, pi, "reverse", terms=1).p != 0.0)


def test_dyna_moves_only_the_value_and_the_baseline_nothing() -> None:
    tables, pi = random_problem()
    slope = gradient(tables, pi, "dyna")
    assert np.all(slope.v != 0.0)
    assert not np.any(slope.r)
    assert not np.any(slope.p)
    assert not any(np.any(leaf) for leaf in gradient(tables, pi, "none"))


def test_logit_gradients_sum_to_zero_and_everything_rests_where_model_and_value_agree() -> None:
    (v, r, p), pi = random_problem()
    rho, chain = references.induced(r, p, pi)
    agreed = np.linalg.solve(np.eye(S) - DISCOUNT * chain, rho)
    for update in UPDATES:
        np.testing.assert_allclose(gradient((v, r, p), pi, update).p.sum(-1), 0.0, atol=1e-13)
        for leaf in gradient((agreed, r, p), pi, update):
            np.testing.assert_allclose(leaf, 0.0, atol=1e-12)


@pytest.mark.parametrize("update", ["dyna", "direct"])
def test_with_one_term_the_value_moves_by_the_td_error(update) -> None:
    (v, r, p), pi = random_problem()
    rho, chain = references.induced(r, p, pi)
    slope = gradient((v, r, p), pi, update, terms=1)
    # half the gradient of the square, downhill
    np.testing.assert_allclose(-slope.v / 2, rho + DISCOUNT * chain @ v - v, rtol=1e-12)


def test_two_states_on_paper() -> None:
    """K = 2, discount 1/2, r = (1, 0), v = (2, 4), one action, uniform transitions.

    From both states x_1 = P v = (3, 3), y_1 = P r = (1/2, 1/2), and the same at depth 2. So
    delta_0 = (1 + 3/2 - 2, 0 + 3/2 - 4) = (1/2, -5/2), delta_1 = delta_2 = 1/2 + 3/2 - 3 = -1 from both.
    """
    tables = Tables(np.array([2.0, 4.0]), np.array([[1.0], [0.0]]), np.zeros((2, 1, 2)))
    slope = gradient(tables, np.ones((2, 1)), "direct", terms=3, discount=0.5)
    # B = delta_0 + P'delta_1 + P'P'delta_2 = (1/2 - 1 - 1, -5/2 - 1 - 1); dL/dv = -2 B
    np.testing.assert_allclose(slope.v, [3.0, 9.0], rtol=1e-12)
    assert not np.any(slope.r)
    loss = jax.jit(planning_loss, static_argnums=4)(tables, np.ones((2, 1)), UPDATES["residual"], 0.5, 3)
    np.testing.assert_allclose(loss, 0.25 + 6.25 + 4 * 1.0, rtol=1e-12)


def test_model_is_a_whole_model() -> None:
    model = tabular_model(S, A)
    params = model.init(jax.random.key(0))
    obs = Observation(jnp.eye(S)[:2], *([None] * 5))
    e, _ = model.encode(params.encoder, obs, model.initial_carry(2))
    z, reward = model.step(params.dynamics, params.reward, model.start(params.dynamics, e), params.policy)
    np.testing.assert_allclose(z, params.dynamics[:2], rtol=1e-12)
    np.testing.assert_allclose(model.decode(reward), params.reward[:2])
    np.testing.assert_allclose(model.decode(model.root_value(params.root_value, e)), params.value[:2])
    assert model.policy(params.policy, z).shape == model.root_policy(params.root_policy, e).shape == (S, A)


def numbers_of(model, update, **changes):
    """A method's numbers, on small problems."""
    return variant(TabularOptions(states=S, actions=A, discount=DISCOUNT, **changes), model, update)


def some_batch():
    """Eight transitions, of which (2, 1) occurs three times with different successors."""
    s, a = np.array([2, 0, 2, 4, 2, 1, 0, 3]), np.array([1, 0, 1, 2, 1, 2, 1, 0])
    return s, a, np.array([0, 3, 4, 1, 0, 2, 2, 3])


def test_grounded_update_equals_one_transition_after_the_other() -> None:
    tables, _ = random_problem()
    rewards = np.random.default_rng(9).normal(size=(S, A))
    batch = some_batch()
    transitions = list(zip(*batch, strict=True))
    for model, alpha_r in itertools.product(("mle", "ve"), (0.03, 1.0)):
        numbers = numbers_of(model, "none")._replace(reward=alpha_r)
        mine = grounded_update(Tables(*tables), batch, rewards, numbers)
        theirs = references.grounded(tables, transitions, rewards, numbers._asdict())
        for x, y in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-13)


def test_grounded_update_on_paper() -> None:
    """Two states, one action, one transition 0 -> 1 with reward 1; v = (2, 4), r = 0, p = 0, rates as noted."""
    numbers = numbers_of("mle", "none")._replace(discount=0.5, td=0.5, reward=0.25, mle=1.0)
    tables = Tables(np.array([2.0, 4.0]), np.zeros((2, 1)), np.zeros((2, 1, 2)))
    batch = np.array([0]), np.array([0]), np.array([1])
    rewards = np.array([[1.0], [7.0]])
    v, r, p = grounded_update(tables, batch, rewards, numbers)
    np.testing.assert_allclose(v, [2.0 + 0.5 * (1.0 + 2.0 - 2.0), 4.0])
    np.testing.assert_allclose(r, [[0.25], [0.0]])
    np.testing.assert_allclose(p[:, 0], [[-0.5, 0.5], [0.0, 0.0]])
    _, _, p = grounded_update(tables, batch, rewards, numbers._replace(mle=0.0, ve=1.0))
    # e = (5/2 + 4) / 2 - 4 with the new v = (5/2, 4); step -2 e P (v - 13/4)
    np.testing.assert_allclose(p[0, 0], [-2 * -0.75 * 0.5 * -0.75, -2 * -0.75 * 0.5 * 0.75])


def run_both(options, methods, control, iterations):
    """Run methods through `learner.iterate` and through the NumPy loops on the same data; yield tables [V, ...]."""
    key_mdp, key_tables, key_draws = jax.random.split(jax.random.key(3), 3)
    numbers = [variant(options, *method, control) for method in methods]
    pi = np.random.default_rng(0).dirichlet(np.ones(A), size=S)

    @jax.jit
    def run(variants):
        garnet, start = mdp.Mdp(*sample_garnet(key_mdp, S, A)), init_tables(key_tables, S, A)
        draws = jax.vmap(lambda key: learner.make_draw(key, options.batch, S))(jax.random.split(key_draws, iterations))

        def step(tables, draw):
            def one(tables, variant):
                cdf = mdp.cumulative(garnet.P)
                return learner.iterate(tables, draw, cdf, garnet.R, pi, variant, control, options.unroll)

            tables = jax.vmap(one)(tables, variants)
            return tables, tables

        all_start = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(methods), *x.shape)), start)
        return jax.lax.scan(step, all_start, draws)[1], garnet, start, draws

    mine, garnet, start, draws = jax.device_get(run(compiled.stack(numbers)))
    for i, (method, numbers_of_one) in enumerate(zip(methods, numbers, strict=True)):
        theirs, rates = tuple(start), numbers_of_one._asdict()
        for t in range(iterations):
            pi_real = references.act(theirs, pi, rates, control)
            batch = references.sample([x[t] for x in draws], garnet.P, pi_real)
            theirs = references.grounded(theirs, batch, garnet.R, rates)
            pi_plan = references.act(theirs, pi, rates, control)
            theirs = references.plan(theirs, pi_plan, rates, method[1], options.unroll)
            yield method, [table[t, i] for table in mine], theirs


@pytest.mark.parametrize(
    ("control", "changes", "updates"),
    [
        (False, {}, ("none", "dyna", "direct", "reverse", "residual")),
        (True, {}, ("none", "dyna", "direct", "reverse", "residual")),
        (True, {"unroll": 3}, ("residual",)),
        (True, {"batch": 1, "unroll": 1}, ("residual",)),
    ],
)
def test_iterations_equal_numpy_step_for_step(control, changes, updates) -> None:
    options = TabularOptions(states=S, actions=A, discount=DISCOUNT, **changes)
    for method, mine, theirs in run_both(options, list(itertools.product(("mle", "ve"), updates)), control, 50):
        for x, y in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-8, atol=1e-9, err_msg=str(method))


def test_outcomes_follow_the_transition_probabilities() -> None:
    probs = np.array([[[0.0, 0.25, 0.75, 0.0]]])
    cdf = np.asarray(mdp.cumulative(jnp.asarray(probs)))
    np.testing.assert_array_equal(cdf, [[[0.0, 0.25, 1.0, 1.0]]])
    w = jnp.array([0.0, 0.2, 0.3, np.nextafter(1.0, 0.0)])
    draw = Draw(jnp.zeros(4, int), jnp.zeros(4), w)
    _, _, s_next = learner.transitions(draw, jnp.asarray(cdf), jnp.ones((1, 1)))
    np.testing.assert_array_equal(s_next, [1, 1, 2, 2])
