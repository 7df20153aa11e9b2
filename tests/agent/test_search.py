"""Search: small models, written down as tables, in which the right move is known."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.table_models import STATES, table_model, tables, with_rules

from purejax_sc import config as config_module
from purejax_sc import networks
from purejax_sc.agent.search import SearchOptions, make_search
from purejax_sc.types import EnvSpec

ONE, TWO = (EnvSpec(3, (1,), jnp.dtype(jnp.float32), two_player) for two_player in (False, True))
GAME = TWO._replace(value_bounds=(-1.0, 1.0))
ROOTS = 3  # of every search, so that few programs serve all tests
MANY = 150  # simulations: visits follow the values only slowly
KINDS = pytest.mark.parametrize("kind", ["muzero", "gumbel"])


@cache
def make_cached(kind, spec, simulations, max_depth=None, trained_depth=None, considered=None, rules=False, shown=False):
    """One program per combination. rules: the model says that only action 0 is legal."""
    model = table_model()._replace(reconstruct=(lambda dynamics, z: z) if shown else None)
    model = with_rules(model, jnp.array([1.0, -1.0, -1.0])) if rules else model
    options = SearchOptions(simulations, kind, max_depth, considered=considered)
    return jax.jit(make_search(model, spec, options, trained_depth))


def look(
    params,
    kind="muzero",
    simulations=MANY,
    spec=ONE,
    legal=((True, True, False),) * ROOTS,
    discount=0.9,
    roots=(0,) * ROOTS,
    seed=0,
    **options,
):
    """Search from the same state under three masks of legal actions; by default only the first two actions are."""
    e = jnp.eye(STATES)[jnp.array(roots)]
    return make_cached(kind, spec, simulations, **options)(params, e, jnp.array(legal), jax.random.key(seed), discount)


@KINDS
def test_search_finds_the_better_arm_that_the_prior_dislikes(kind):
    # Both arms lead to a state without any more reward; arm 1 pays 1, and the prior takes arm 0 with 88%.
    found = look(tables([[1], [1]], rewards=[[0, 1]], logits=[[2, 0]]), kind)
    assert found.action.tolist() == [1] * ROOTS
    assert jnp.all(found.weights[:, 1] > 0.5)
    np.testing.assert_allclose(jnp.sum(found.weights, axis=1), 1.0, rtol=1e-5)


@pytest.mark.parametrize(("kind", "spec", "value"), [("muzero", ONE, 0.85), ("gumbel", TWO, 0.65)])
def test_root_value_is_the_mean_of_what_the_simulations_saw(kind, spec, value):
    # v(0) = 0.5, and the only simulation sees 1 + 0.5 * v(1) = 1.2: together (0.5 + 1.2) / 2 = 0.85.
    # With two players v(1) is the opponent's: 1 - 0.5 * 0.4 = 0.8, and (0.5 + 0.8) / 2 = 0.65.
    params, legal = tables([[1], [1]], rewards=[[1]], values=[0.5, 0.4]), [[True, False, False]] * ROOTS
    np.testing.assert_allclose(look(params, kind, 1, spec, legal, discount=0.5).value, value, rtol=1e-6)


@KINDS
def test_with_two_players_a_state_that_is_good_for_the_opponent_is_avoided(kind):
    # Action 0 leads to the pair 1 <-> 3, worth 1 to who moves in 1; action 1 to 2 <-> 4, worth -1 to who moves in 2.
    params = tables([[1, 2], [3], [4], [1], [2]], values=[0, 1, -1, -1, 1])
    assert look(params, kind, spec=TWO, discount=1.0).action[0] == 1
    # A single player keeps the value: with 1 and 2 absorbing, the same values say action 0.
    params = tables([[1, 2], [1], [2]], values=[0, 1, -1])
    assert look(params, kind, spec=ONE, discount=1.0).action[0] == 0


@KINDS
def test_with_two_players_the_reply_of_the_opponent_counts(kind):
    # Action 0 pays 0.5 at once, but in state 1 whoever moves there can take 1 by action 1.
    params = tables([[1, 2], [2], [2]], rewards=[[0.5, 0], [0, 1]])
    assert look(params, kind, spec=TWO, discount=1.0).action[0] == 1
    assert look(params, kind, spec=ONE, discount=1.0).action[0] == 0


@KINDS
@pytest.mark.parametrize("simulations", [1, MANY])
def test_illegal_actions_are_never_chosen_however_good_they_look(kind, simulations):
    params = tables([[1], [1]], rewards=[[0, 10, 0.1]], logits=[[0, 100, 0]])
    legal = np.array([[True, False, True], [True, False, False], [True, True, False]])
    found = look(params, kind, simulations, legal=legal)
    assert np.all(legal[np.arange(ROOTS), found.action])
    np.testing.assert_array_equal(found.action[1:], [0, 1])
    np.testing.assert_array_equal(found.weights[~legal], 0.0)
    if simulations > 1:
        assert found.action[0] == 2


@KINDS
def test_depth_finds_a_delayed_reward_that_the_prior_misses(kind):
    # A corridor: action 1 three times in a row pays 1, action 0 leads nowhere. All values are 0, and the prior likes
    # action 0.
    corridor = [[4, 1], [4, 2], [4, 3], [3], [4]]
    params = tables(corridor, rewards=[[0, 0], [0, 0], [0, 1]], logits=[[1, 0]] * 5)
    assert look(params, kind, 1).action[0] == 0
    found = look(params, kind)
    assert found.action[0] == 1
    assert found.value[0] > 0


@KINDS
def test_discount_decides_between_sooner_and_more(kind):
    # Action 0 pays 0.6 now; action 1 pays 1 a step later: 0.5 at a discount of 0.5, 0.9 at 0.9.
    params = tables([[2, 1], [2], [2]], rewards=[[0.6, 0], [1]])
    assert look(params, kind, discount=0.5).action[0] == 0
    assert look(params, kind, discount=0.9).action[0] == 1


@KINDS
def test_a_batch_equals_its_roots_one_by_one(kind):
    # Random tables, so that nothing ties. Here one by one means three times the same root.
    rng = np.random.default_rng(0)
    successors, rewards, logits = rng.integers(0, STATES, (STATES, 3)), *rng.normal(size=(2, STATES, 3))
    params = tables(successors, rewards, rng.normal(size=STATES), logits)
    legal = jnp.array([[True, True, True], [True, True, False], [True, False, True]])
    together = look(params, kind, legal=legal, roots=range(ROOTS))
    for i in range(ROOTS):
        alone = look(params, kind, legal=legal[jnp.array([i] * ROOTS)], roots=(i,) * ROOTS)
        assert alone.action.tolist() == [together.action[i]] * ROOTS
        np.testing.assert_allclose(alone.weights[0], together.weights[i], rtol=1e-5)
        np.testing.assert_allclose(alone.value[0], together.value[i], rtol=1e-5)


@KINDS
def test_the_key_adds_no_noise(kind):
    params = tables([[1], [1]], rewards=[[0.3, 0.5]], logits=[[1, 0]])
    one, other = (look(params, kind, seed=seed) for seed in (1, 2))
    np.testing.assert_array_equal(one.weights[0], other.weights[0])


def test_the_temperature_draws_from_the_weights():
    params = tables([[1], [1]], rewards=[[0.3, 0.5]], logits=[[1, 0]])
    e, legal = jnp.eye(STATES)[:1], jnp.array([[True, True, False]])
    keys = jax.random.split(jax.random.key(0), 2_000)

    search = make_search(table_model(), ONE, SearchOptions(12, "gumbel", temperature=0.5))
    found = jax.jit(jax.vmap(search, (None, None, None, 0, None)))(params, e, legal, keys, 0.9)
    weights, drawn = found.weights[0, 0], np.bincount(found.action[:, 0], minlength=3) / len(keys)
    np.testing.assert_allclose(drawn, weights**2 / jnp.sum(weights**2), atol=0.035)  # three standard errors
    assert drawn[2] == 0.0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (SearchOptions(2, dynamics="environment"), "needs the environment"),
        (SearchOptions(0), "simulations=1 or more"),
    ],
)
def test_what_cannot_be_searched_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        make_search(table_model(), ONE, options)


@KINDS
def test_what_was_looked_at_is_told(kind):
    # A corridor in which action 1 pays 1 at every step, for three steps.
    params = tables([[4, 1, 4], [4, 2, 4], [4, 3, 4], [4], [4]], rewards=[[0, 1, 0]] * 3, logits=[[0, 1, 0]] * 3)
    found = look(params, kind, discount=0.5)
    assert found.visits[0].sum() == MANY
    np.testing.assert_array_equal(found.visits[:, 2], 0)  # illegal
    np.testing.assert_array_equal(found.q[:, 2], 0.0)
    np.testing.assert_allclose(found.q[0, 0], 0.0, atol=1e-6)
    assert 1.0 < found.q[0, 1] <= 1.75  # 1 + 1/2 + 1/4, averaged over what was tried


# What values are scaled by


@pytest.mark.parametrize(
    ("shown", "spec", "advantage"),
    [
        # c_visit + the most visits = 51 times c_scale times the difference of 0.04 in the unit of the scale
        (False, GAME, 51 * 0.1 * 0.04),  # half of the range of a game's results is 1
        (True, GAME, 51 * 0.3 * 0.04),  # and weighs more if the model reconstructs the board
        (False, ONE, 51 * 0.2 * 0.04 / 0.34),  # the tree holds 0, 0.30 and 0.34
        (False, TWO, 51 * 0.2 * 0.04 / 0.68),  # and, with two players, the same values to the other one
    ],
)
def test_gumbel_weighs_a_difference_by_its_scale(shown, spec, advantage):
    """Both legal actions are tried once; they pay 0.30 and 0.34, and then nothing."""
    params = tables([[1], [1]], rewards=[[0.30, 0.34]])
    weights = look(params, "gumbel", 2, spec, discount=1.0, shown=shown).weights
    np.testing.assert_allclose(np.log(weights[0, 1] / weights[0, 0]), advantage, rtol=1e-3)


@KINDS
def test_below_the_root_a_search_keeps_to_what_the_model_says_is_legal(kind):
    # Action 1 leads to state 2, where whoever moves there takes 1 by action 1; but the model says that this is illegal.
    params = tables([[1, 2], [1], [2]], rewards=[[0, 0.2], [0], [0, 1]])
    assert look(params, kind, spec=TWO, discount=1.0).action.tolist() == [0] * ROOTS
    assert look(params, kind, spec=TWO, discount=1.0, rules=True).action.tolist() == [1] * ROOTS


@pytest.mark.parametrize(
    ("considered", "visits"),
    [(2, [4, 4, 0, 0, 0, 0]), (None, [1, 1, 3, 3, 0, 0])],
)
def test_gumbel_chooses_from_the_best_actions_of_the_prior(considered, visits):
    """What the prior likes less pays more. Of eight simulations each round takes as many, and keeps the better half."""
    rising = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    params = tables([[1]], rewards=[rising], logits=[[-r / 10 for r in rising]], actions=6)
    legal, game = ((True,) * 6,) * ROOTS, GAME._replace(num_actions=6)
    found = look(params, "gumbel", 8, game, legal, considered=considered)
    assert found.visits.tolist() == [visits] * ROOTS
    assert found.action.tolist() == [3 if considered != 2 else 1] * ROOTS


@pytest.mark.parametrize(("simulations", "visited"), [(95, 4), (96, 8)])
def test_gumbel_considers_more_actions_when_each_can_be_looked_at_four_times(simulations, visited):
    params = tables([[1]], rewards=[[0.1] * 9], logits=[list(range(9))], actions=9)
    game = GAME._replace(num_actions=9)
    visits = look(params, "gumbel", simulations, game, ((True,) * 9,) * ROOTS).visits[0]
    assert sorted(np.flatnonzero(visits).tolist()) == list(range(9 - visited, 9))
    assert visits[9 - visited :].min() >= 4


def test_a_scale_of_the_whole_tree_does_not_depend_on_the_unit_of_rewards():
    # In MuZero's search too; the prior likes what pays less.
    def weights(unit):
        params = tables([[1], [2], [1]], rewards=[[0.5 * unit, unit], [0.2 * unit]], logits=[[1, 0]])
        return look(params).weights

    np.testing.assert_allclose(weights(1.0), weights(100.0), atol=1e-6)


def test_known_bounds_leave_a_small_difference_small():
    # The prior is for action 0 with 88%; action 1 is worth 0.04 more of a range of 2.
    params = tables([[1], [1]], rewards=[[0.0, 0.04]], logits=[[2, 0]])
    assert look(params, simulations=40, spec=GAME).weights[0, 1] < 0.3


@KINDS
def test_depth_is_limited_to_what_the_model_was_trained_for(kind):
    # Three steps away is a reward of 1: out of reach of a tree of two steps.
    params = tables([[4, 1], [4, 2], [4, 3], [3], [4]], rewards=[[0, 0], [0, 0], [0, 1]], logits=[[1, 0]] * 5)
    assert look(params, kind, trained_depth=2).value[0] == 0
    assert look(params, kind, trained_depth=2, max_depth=3).value[0] > 0


def test_search_runs_on_networks_over_seeds():
    spec = EnvSpec(5, (4, 4, 2), jnp.dtype(bool), True)
    sections = {"network": {"kind": "mlp", "width": 8, "head_width": 0}, "muesli": {"bins": 11, "value_max": 5.0}}
    model = networks.make_model(config_module.from_tree({"env": "gymnax/Breakout-MinAtar", **sections}), spec)
    rng, shapes = np.random.default_rng(0), jax.eval_shape(model.init, jax.random.key(0))
    params = jax.tree.map(lambda x: jnp.array(rng.normal(size=(2, *x.shape)), jnp.float32), shapes)  # of two seeds
    legal = jnp.array([[True] * 5, [False] * 3 + [True] * 2, [False] * 4 + [True]])
    e = jnp.array(rng.normal(size=(2, 3, 8)), jnp.float32)
    search = jax.jit(jax.vmap(make_search(model, spec, SearchOptions(4, "gumbel")), (0, 0, None, 0, None)))
    found = search(params, e, legal, jax.random.split(jax.random.key(0), 2), 0.99)
    assert found.action.shape == (2, 3)
    assert jnp.all(legal[jnp.arange(3)[None], found.action])
    assert jnp.all(jnp.isfinite(found.value))
