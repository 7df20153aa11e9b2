"""Self-consistency: where each update's gradient goes, what its targets are, and how imagination is controlled."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import references
from helpers.table_models import with_rules

from purejax_sc.agent import consistency, losses, transforms
from purejax_sc.agent.consistency import UPDATES, Gates, Rollout
from purejax_sc.types import Model, Params

BINS = 21  # spacing 1/4 in transformed units, so no test number lies on an atom
ATOMS = transforms.make_atoms("even", BINS, 2.5)
LATENT, ACTIONS, ROOTS = 4, 3, 6


@functools.cache
def deep_model():
    """A categorical model of one matrix product per part."""
    return Model(
        init=None,
        initial_carry=None,
        encode=lambda p, obs, carry: (jnp.tanh(obs @ p), carry),
        start=lambda p, e: jnp.tanh(e @ p["start"]),
        step=lambda p, p_reward, z, a: ((z_next := jnp.tanh(z @ p["z"] + a @ p["a"])), z_next @ p_reward),
        value=lambda p, z: z @ p,
        policy=lambda p, z: z @ p,
        root_value=lambda p, e: e @ p,
        root_policy=lambda p, e: e @ p,
        decode=lambda out: transforms.from_logits(out, ATOMS),
    )


def deep_params(seed=0):
    rng = np.random.default_rng(seed)

    def matrix(*shape):
        return jnp.asarray(rng.normal(size=shape))

    return Params(
        encoder=matrix(5, LATENT),
        dynamics={"start": matrix(LATENT, LATENT), "z": matrix(LATENT, LATENT), "a": matrix(ACTIONS, LATENT)},
        reward=matrix(LATENT, BINS),
        value=matrix(LATENT, BINS),
        root_value=matrix(LATENT, BINS),
        policy=matrix(LATENT, ACTIONS),
        root_policy=matrix(LATENT, ACTIONS),
    )


sc_errors = jax.jit(consistency.sc_errors, static_argnums=(0, 4), static_argnames="include_last")


def distance(model, errors, loss):
    if loss == "squared":
        return 0.5 * jnp.sum((errors.target - jax.vmap(model.decode)(errors.prediction)) ** 2)
    probs = transforms.to_categorical(errors.target, ATOMS)
    return jnp.sum(losses.cross_entropy(errors.prediction, probs))


def deep_loss(params, gates, loss="cross_entropy", epsilon=0.0, with_root=False, unroll=3):
    """The whole path: encode, start, imagine, compare."""
    model = deep_model()
    obs = jnp.asarray(np.random.default_rng(1).normal(size=(ROOTS, 5)))
    e, _ = model.encode(params.encoder, obs, ())
    z_0, logits_0 = model.start(params.dynamics, e), model.root_policy(params.root_policy, e)
    mu = consistency.mu_epsilon(epsilon, jnp.ones((ROOTS, ACTIONS), bool))
    rollout = consistency.imagine(model, params, z_0, logits_0, mu, jax.random.key(0), unroll)
    errors = consistency.sc_errors(model, params, rollout, 0.9, gates, root=e if with_root else None)
    return distance(model, errors, loss)


GATES = Gates(*map(np.array, zip(*UPDATES.values(), strict=True)))


@functools.partial(jax.jit, static_argnames=("loss", "with_root", "unroll"))
def losses_and_grads(params, gates, epsilon, **options):
    """`deep_loss` and its gradients for every update, as one program."""
    run = jax.value_and_grad(functools.partial(deep_loss, epsilon=epsilon, **options))
    return jax.vmap(lambda gates: run(params, gates))(gates)


def deep_grads(update, loss="cross_entropy", epsilon=0.0, with_root=False, unroll=3, gates=GATES):
    """Of `deep_loss` by part, at the same parameters always."""
    gates = jax.tree.map(jnp.asarray, gates)  # float64 where that is enabled
    _, every = losses_and_grads(deep_params(), gates, epsilon, loss=loss, with_root=with_root, unroll=unroll)
    return jax.tree.map(lambda x: np.asarray(x)[[*UPDATES].index(update)], every)


def moved(grads):
    """The parts of a gradient that are not exactly zero."""
    return {name for name, part in grads._asdict().items() if any(np.any(leaf) for leaf in jax.tree.leaves(part))}


def tree_allclose(a, b, **tolerance):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, **tolerance), a, b)


@pytest.fixture
def float64():
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):  # decoded values are float32, gates are not
        yield


# Where gradients go

MOVED = {
    "residual": {"encoder", "dynamics", "reward", "value"},
    "direct": {"encoder", "dynamics", "value"},
    "reverse": {"encoder", "dynamics", "reward", "value"},
    "dyna": {"value"},
    "model_only": {"encoder", "dynamics"},
}


@pytest.mark.parametrize("loss", ["cross_entropy", "squared"])
@pytest.mark.parametrize("epsilon", [0.0, 0.5])
@pytest.mark.parametrize("update", UPDATES)
def test_every_update_moves_its_parts_and_no_others(update, epsilon, loss):
    """In particular never the root heads and never a policy; off-policy too."""
    grads = deep_grads(update, loss, epsilon)
    assert moved(grads) == MOVED[update]


@pytest.mark.parametrize("update", UPDATES)
def test_including_the_root_adds_only_the_root_value(update):
    grads = deep_grads(update, with_root=True)
    # Reverse fixes the prediction, and on-policy the target of k = 0 does not contain v^0.
    root = {"root_value"} if update in ("residual", "direct", "dyna") else set()
    assert moved(grads) == MOVED[update] | root


@pytest.mark.parametrize(("loss", "with_root"), [("cross_entropy", False), ("squared", True)])
@pytest.mark.parametrize("epsilon", [0.0, 0.5])
def test_gradients_add_up(float64, loss, epsilon, with_root):
    """True of any loss of a prediction and a target: the gates only split the chain rule over its paths.

    What cross-entropy lacks is a zero gradient at self-consistency, since it also sharpens the predicted distribution.
    """
    g = {update: deep_grads(update, loss, epsilon, with_root) for update in UPDATES}
    tree_allclose(g["residual"], jax.tree.map(np.add, g["direct"], g["reverse"]), rtol=1e-9, atol=1e-12)
    tree_allclose(g["direct"], jax.tree.map(np.add, g["dyna"], g["model_only"]), rtol=1e-9, atol=1e-12)


def test_gates_leave_the_loss_itself_alone():
    gates, options = jax.tree.map(jnp.asarray, GATES), {"loss": "cross_entropy", "with_root": False, "unroll": 3}
    values, _ = losses_and_grads(deep_params(), gates, 0.0, **options)
    np.testing.assert_allclose(values, np.full(len(UPDATES), values[0]), rtol=1e-6)


def test_traced_gates_equal_python_gates():
    grad = jax.grad(functools.partial(deep_loss, with_root=True))
    plainly = jax.jit(lambda params: {update: grad(params, gates) for update, gates in UPDATES.items()})(deep_params())
    for update, expected in plainly.items():
        tree_allclose(deep_grads(update, with_root=True), expected, rtol=2e-4, atol=2e-5)


def test_a_half_open_gate_passes_half():
    half = deep_grads("dyna", gates=GATES._replace(value=0.5 * GATES.value))
    tree_allclose(half.value, 0.5 * deep_grads("dyna").value, rtol=1e-4, atol=1e-5)


# Targets


def random_rollout(unroll=4):
    rng = np.random.default_rng(3)
    z, e = rng.normal(size=(unroll + 1, ROOTS, LATENT)), rng.normal(size=(ROOTS, LATENT))
    reward, rho = rng.normal(size=(unroll, ROOTS)), rng.choice([0.0, 0.4, 1.0, 3.0], (unroll, ROOTS))
    action = np.eye(ACTIONS)[rng.integers(ACTIONS, size=(unroll, ROOTS))]
    return Rollout(*(x.astype(np.float32) for x in (z, reward, action, rho))), e.astype(np.float32)


def values_of(model, params, rollout, e):
    """[K + 1, M]: the root head at k = 0, the value head after."""

    @jax.jit
    def values(params, z, e):
        later = model.value(params.value, z[1:])
        return model.decode(jnp.concatenate([model.root_value(params.root_value, e)[None], later]))

    return np.asarray(values(params, rollout.z, e))


@pytest.mark.parametrize("discount", [0.9, -1.0])
@pytest.mark.parametrize("lambda_", [0.0, 0.7, 1.0])
def test_targets_equal_slow_loop(lambda_, discount):
    model, params = deep_model(), deep_params()
    rollout, e = random_rollout()
    v = values_of(model, params, rollout, e)
    expected = references.sc_targets(rollout.reward, v, rollout.rho, discount, lambda_)
    args = (model, params, rollout, discount, UPDATES["direct"], lambda_)
    np.testing.assert_allclose(sc_errors(*args).target, expected[1:], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(sc_errors(*args, root=e).target, expected, rtol=1e-4, atol=1e-5)


def test_on_policy_targets_are_n_step_returns():
    model, params = deep_model(), deep_params()
    rollout, e = random_rollout(unroll=3)
    rollout = rollout._replace(rho=np.ones((3, ROOTS), np.float32))
    v, r = values_of(model, params, rollout, e), np.asarray(rollout.reward)
    target = np.asarray(sc_errors(model, params, rollout, 0.5, UPDATES["direct"], root=e).target)
    np.testing.assert_allclose(target[0], r[0] + r[1] / 2 + r[2] / 4 + v[3] / 8, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(target[1], r[1] + r[2] / 2 + v[3] / 4, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(target[2], r[2] + v[3] / 2, rtol=1e-4, atol=1e-5)


def test_include_last_adds_exactly_the_last_value():
    model, params = deep_model(), deep_params()
    rollout, e = random_rollout()
    args = (model, params, rollout, 0.9, UPDATES["residual"])
    without, added = jax.device_get((sc_errors(*args, root=e), sc_errors(*args, root=e, include_last=True)))
    assert added.target.shape[0] == without.target.shape[0] + 1 == 5
    np.testing.assert_array_equal(added.target[:-1], without.target)
    np.testing.assert_array_equal(added.prediction[:-1], without.prediction)
    np.testing.assert_allclose(added.target[-1], values_of(model, params, rollout, e)[-1], rtol=1e-5)
    np.testing.assert_allclose(added.prediction[-1], rollout.z[-1] @ np.asarray(params.value), rtol=1e-5, atol=1e-6)


def test_predictions_are_the_value_heads_of_each_state():
    model, params = deep_model(), deep_params()
    rollout, e = random_rollout()
    prediction = np.asarray(sc_errors(model, params, rollout, 0.9, UPDATES["direct"], root=e).prediction)
    np.testing.assert_allclose(prediction[0], e @ np.asarray(params.root_value), rtol=1e-5, atol=1e-6)
    for k in range(1, 4):
        np.testing.assert_allclose(prediction[k], rollout.z[k] @ np.asarray(params.value), rtol=1e-5, atol=1e-6)


# The tabular model


def tabular_model():
    """A latent is a distribution over states; a step takes the policy itself [S, A] and returns expectations."""

    def step(logits, rewards, z, pi):
        transitions = jax.nn.softmax(logits)
        return z @ jnp.einsum("sa,sat->st", pi, transitions), z @ jnp.sum(pi * rewards, axis=-1)

    return Model(
        init=None,
        initial_carry=None,
        encode=None,
        start=lambda dynamics, e: e,
        step=step,
        value=lambda v, z: z @ v,
        policy=lambda log_pi, z: log_pi,
        root_value=lambda v, z: z @ v,
        root_policy=lambda log_pi, z: log_pi,
        decode=lambda out: out,
    )


def expected_policy(k, logits, key):
    """A Mu: no action is drawn."""
    return jax.nn.softmax(logits), jnp.ones(logits.shape[0])


def tabular_squares(logits, rewards, values, policy, discount, last, gates):
    """Squared errors [last + 1, S] of expected rollouts from every state."""
    model, states = tabular_model(), values.shape[0]
    log_pi = jnp.log(policy)
    params = Params((), logits, rewards, values, values, log_pi, log_pi)
    z_0 = jnp.eye(states)
    rollout = consistency.imagine(model, params, z_0, log_pi, expected_policy, jax.random.key(0), last + 1)
    errors = consistency.sc_errors(model, params, rollout, discount, gates, lambda_=0.0, root=z_0)
    return (errors.target - errors.prediction) ** 2


def test_two_states_on_paper():
    # Discount 1/2, one action, rewards (1, 0), values (2, 4), all transitions 1/2, rollouts from state 0.
    # k = 0: 1 + 3/2 - 2 = 1/2.   k = 1: reward 1/2, value 3 before and after: 1/2 + 3/2 - 3 = -1.
    args = (np.zeros((2, 1, 2)), np.array([[1.0], [0.0]]), np.array([2.0, 4.0]), np.ones((2, 1)), 0.5, 1)
    squares = np.asarray(jax.jit(tabular_squares, static_argnums=(4, 5, 6))(*args, UPDATES["direct"]))
    np.testing.assert_allclose(squares[:, 0], [0.25, 1.0])
    # From state 1, k = 0: 0 + 3/2 - 4 = -5/2
    np.testing.assert_allclose(squares[:, 1], [6.25, 1.0])

    def from_state_0(update):
        def loss(p, r, v):
            return jnp.sum(tabular_squares(p, r, v, *args[3:], UPDATES[update])[:, 0])

        return jax.device_get(jax.jit(jax.grad(loss, (0, 1, 2)))(*args[:3]))

    # Values: -2 (1/2) e_0 from k = 0, and -2 (-1) (1/2, 1/2) from k = 1: (-1, 0) + (1, 1) = (0, 1).
    # Logits: the prediction of k = 1 is the mean of v; its gradient is (1/2)(2 - 3, 4 - 3), times -2 (-1): (-1, 1).
    logits, rewards, values = from_state_0("direct")
    np.testing.assert_allclose(values, [0.0, 1.0], atol=1e-6)
    np.testing.assert_allclose(logits[:, 0], [[-1.0, 1.0], [0.0, 0.0]], atol=1e-6)
    np.testing.assert_array_equal(rewards, np.zeros((2, 1)))

    logits, rewards, values = from_state_0("dyna")
    np.testing.assert_allclose(values, [0.0, 1.0], atol=1e-6)
    np.testing.assert_array_equal(logits, np.zeros((2, 1, 2)))
    np.testing.assert_array_equal(rewards, np.zeros((2, 1)))

    # Reverse. Rewards: 2 (1/2) e_0 + 2 (-1) (1/2, 1/2) = (1, 0) + (-1, -1) = (0, -1).
    # Values: next values weigh 1/2 * (1/2, 1/2) in both targets: 2 (1/2 - 1) (1/4, 1/4) = (-1/4, -1/4).
    _, rewards, values = from_state_0("reverse")
    np.testing.assert_allclose(rewards[:, 0], [0.0, -1.0], atol=1e-6)
    np.testing.assert_allclose(values, [-0.25, -0.25], atol=1e-6)


# Imagination


def imagined(model, logits_0, mu):
    """A rollout of three steps, and the logits that mu saw."""
    params = deep_params()

    @jax.jit
    def run(z_0, logits_0):
        seen = []

        def watched(k, logits, key):
            seen.append((logits, jax.random.key_data(key)))
            return mu(k)

        return consistency.imagine(model, params, z_0, logits_0, watched, jax.random.key(0), 3), seen

    z_0 = jnp.asarray(np.random.default_rng(0).normal(size=(ROOTS, LATENT)), jnp.float32)
    return z_0, *jax.device_get(run(z_0, logits_0))


SEVEN = np.full((ROOTS, ACTIONS), 7.0, np.float32)


def test_imagine_follows_the_model():
    model, params = deep_model(), deep_params()
    actions = np.eye(ACTIONS, dtype=np.float32)[:, None].repeat(ROOTS, axis=1)  # the k-th at step k
    z, rollout, seen = imagined(model, SEVEN, lambda k: (actions[k], jnp.full(ROOTS, 0.5 * k)))
    step = jax.jit(lambda z, a: model.step(params.dynamics, params.reward, z, a))
    np.testing.assert_array_equal(rollout.z[0], z)
    for k in range(3):
        np.testing.assert_allclose(seen[k][0], SEVEN if k == 0 else z @ params.policy, rtol=1e-4, atol=1e-5)
        z, out = step(z, actions[k])
        np.testing.assert_allclose(rollout.z[k + 1], z, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(rollout.reward[k], model.decode(out), rtol=1e-3, atol=1e-4)
        np.testing.assert_array_equal(rollout.action[k], actions[k])
        np.testing.assert_array_equal(rollout.rho[k], np.full(ROOTS, 0.5 * k))
    assert len({tuple(key.tolist()) for _, key in seen}) == 3


def test_imagine_keeps_to_what_the_model_says_is_legal():
    allowed = jnp.arange(ACTIONS) != 1
    model = with_rules(deep_model(), jnp.where(allowed, 1.0, -1.0))
    _, rollout, seen = imagined(model, SEVEN, lambda k: (jnp.eye(ACTIONS)[jnp.zeros(ROOTS, int)], jnp.ones(ROOTS)))
    np.testing.assert_array_equal(seen[0][0], SEVEN)  # of the roots the rules are known
    for k in (1, 2):
        expected = transforms.masked_logits(rollout.z[k] @ deep_params().policy, jnp.tile(allowed, (ROOTS, 1)))
        np.testing.assert_allclose(seen[k][0], expected, rtol=1e-4, atol=1e-5)


def test_imagine_scales_the_gradient_of_every_step():
    # z' = 2 z: dz^3 / dz^0 is 8, times the scale three times.
    model = tabular_model()._replace(step=lambda dynamics, reward, z, a: (2.0 * z, z[:, 0]))
    params = Params(*[jnp.zeros((1, 2))] * 7)

    def last(z_0, scale):
        args = model, params, z_0, jnp.zeros((1, 2)), expected_policy, jax.random.key(0), 3, scale
        return jnp.sum(consistency.imagine(*args).z[-1])

    grad = jax.jit(jax.grad(last))
    for scale in (0.0, 0.5, 1.0):
        np.testing.assert_allclose(grad(np.ones((1, 4), np.float32), scale), 8 * scale**3)


def test_imagine_passes_no_gradient_through_actions():
    """Even for a mu whose actions and ratios are differentiable functions of the logits."""

    def total(policy, root_policy):
        params, e = deep_params()._replace(policy=policy), jnp.ones((ROOTS, LATENT))

        def mu(k, logits, key):
            return jax.nn.softmax(logits), jnp.sum(logits**2, axis=-1)

        rollout = consistency.imagine(deep_model(), params, e, e @ root_policy, mu, jax.random.key(0), 3)
        return sum(jnp.sum(x) for x in rollout)

    for grad in jax.jit(jax.grad(total, (0, 1)))(deep_params().policy, deep_params().root_policy):
        np.testing.assert_array_equal(grad, np.zeros_like(grad))


# Search control

NUMBER = 20_000
PI = np.array([0.5, 0.3, 0.2])
LOGITS = np.log(PI).astype(np.float32)


def draws(mu, k, logits):
    """(actions, rho) of `NUMBER` rollouts with the same logits [A]."""
    a, rho = mu(k, jnp.broadcast_to(logits, (NUMBER, 3)), jax.random.key(k))
    return a, rho


def drawn(function, *args):
    """The actions and ratios of a program of `draws`, and how often each action was drawn."""
    a, rho = jax.device_get(function(*args))
    np.testing.assert_array_equal(a.sum(-1), 1.0)
    np.testing.assert_array_equal(a.max(-1), 1.0)
    return a.argmax(-1), rho, a.mean(0)


@functools.partial(jax.jit, static_argnums=0)
def draw_epsilon(k, epsilon, legal, logits):
    return draws(consistency.mu_epsilon(epsilon, jnp.broadcast_to(legal, (NUMBER, 3))), k, logits)


ALL, TWO = np.array([True, True, True]), np.array([True, False, True])


@pytest.mark.parametrize(
    ("k", "epsilon", "legal", "allowed"),
    [
        (0, 0.0, ALL, ALL),
        (0, 0.0, TWO, TWO),
        (0, 0.5, TWO, TWO),
        (1, 0.0, TWO, ALL),  # the rules of the root are not those of imagined states
        (1, 0.5, ALL, ALL),
        (1, 1.0, ALL, ALL),
        (1, 0.5, ALL, TWO),  # which the model masks
    ],
)
def test_epsilon_mixes_in_uniform_actions_and_corrects(k, epsilon, legal, allowed):
    logits = LOGITS if k == 0 else np.where(allowed, LOGITS, -1e9).astype(np.float32)
    actions, rho, shares = drawn(draw_epsilon, k, epsilon, legal, logits)
    pi = PI * allowed / np.sum(PI * allowed)
    probs = (1 - epsilon) * pi + epsilon * allowed / allowed.sum()
    np.testing.assert_allclose(shares, probs, atol=0.015)  # standard error 0.0035
    assert not shares[~allowed].any()
    np.testing.assert_allclose(rho, (pi / np.maximum(probs, 1e-9))[actions], rtol=1e-5)
    if epsilon == 0:
        np.testing.assert_array_equal(rho, np.ones(NUMBER))
    if epsilon == 0.5 and allowed is TWO:  # on paper: 5/7 and 2/7, mixed with 1/2 and 1/2
        np.testing.assert_allclose(probs, [17 / 28, 0, 11 / 28])


def test_avoid_first_never_repeats_the_action():
    mu = consistency.mu_avoid_first(jnp.zeros(NUMBER, jnp.int32), jnp.ones((NUMBER, 3), bool))
    for k, pi in ((0, [0.0, 0.6, 0.4]), (1, PI)):
        actions, rho, shares = drawn(jax.jit(functools.partial(draws, mu, k)), LOGITS)
        np.testing.assert_allclose(shares, pi, atol=0.015)
        assert (0 in actions) == (k == 1)
        np.testing.assert_array_equal(rho, np.ones(NUMBER))


def test_avoid_first_obeys_the_rules():
    legal = jnp.array([[True, False, True], [True, False, False], [True, True, True]])
    mu = consistency.mu_avoid_first(jnp.array([0, 0, 2]), legal)
    logits = transforms.masked_logits(jnp.zeros((3, 3)), legal)
    keys = jax.random.split(jax.random.key(0), 60)
    actions = np.asarray(jax.jit(jax.vmap(lambda key: mu(0, logits, key)[0].argmax(-1)))(keys))
    assert set(actions[:, 0]) == {2}  # the other legal one
    assert set(actions[:, 1]) == {0}  # the only legal one
    assert set(actions[:, 2]) == {0, 1}


@pytest.mark.parametrize("correct", [True, False])
def test_original_actions_are_replayed(correct):
    rng = np.random.default_rng(0)
    actions, logits_mu = rng.integers(0, 3, (2, 5)), rng.normal(size=(2, 5, 3)).astype(np.float32)
    mu = consistency.mu_original(jnp.asarray(actions), jnp.asarray(logits_mu) if correct else None)
    logits = rng.normal(size=(2, 5, 3)).astype(np.float32)
    both = jax.jit(lambda logits: [mu(k, logits[k], jax.random.key(0)) for k in range(2)])(logits)
    for k, (a, rho) in enumerate(both):
        np.testing.assert_array_equal(a, np.eye(3)[actions[k]])
        for m in range(5):
            pi, behaviour = references.softmax(logits[k, m]), references.softmax(logits_mu[k, m])
            expected = pi[actions[k, m]] / behaviour[actions[k, m]] if correct else 1.0
            np.testing.assert_allclose(rho[m], expected, rtol=1e-4)


@pytest.mark.parametrize("ratio", [0.25, 1.5, 2.0])
def test_roots_are_chosen_evenly(ratio):
    index = np.asarray(consistency.choose_start_indices(jax.random.key(0), 40, ratio))
    assert index.shape == (round(40 * ratio),)
    counts = np.bincount(index, minlength=40)
    assert counts.shape == (40,)
    # Every state floor(ratio) times, and the rest at most once more.
    assert set(counts) == {int(ratio)} | ({int(ratio) + 1} if ratio % 1 else set())
    assert np.sum(counts == int(ratio) + 1) == round(40 * (ratio % 1))


def test_roots_beyond_whole_copies_depend_on_the_key():
    a, b = (np.asarray(consistency.choose_start_indices(jax.random.key(i), 40, 0.25)) for i in range(2))
    assert set(a) != set(b)


def test_at_least_one_root_is_chosen():
    assert consistency.choose_start_indices(jax.random.key(0), 40, 0.001).shape == (1,)


def test_perturb_multiplies_by_uniform_noise():
    latent = jnp.asarray(np.random.default_rng(0).normal(size=(2000, 8)), jnp.float32)
    factor = np.asarray(consistency.perturb(jax.random.key(0), latent, 0.2) / latent)
    assert factor.min() >= 0.8 - 1e-6
    assert factor.max() <= 1.2 + 1e-6
    np.testing.assert_allclose(factor.mean(), 1.0, atol=0.005)  # standard error 0.001
    np.testing.assert_allclose(factor.std(), 0.4 / np.sqrt(12), atol=0.005)
    assert np.abs(np.corrcoef(factor.T) - np.eye(8)).max() < 0.1  # independent by element


def test_perturb_by_zero_is_the_identity():
    latent = jnp.asarray(np.random.default_rng(0).normal(size=(50, 8)), jnp.float32)
    np.testing.assert_array_equal(consistency.perturb(jax.random.key(0), latent, 0.0), latent)
    traced = jax.jit(consistency.perturb)(jax.random.key(0), latent, jnp.float32(0.0))
    np.testing.assert_array_equal(traced, latent)
