"""How much value chosen actions lose: in a corridor and in a game for which every number is known."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import corridor
from helpers.corridor import SUCCESSORS, model_and_params

from purejax_sc.agent.search import SearchOptions
from purejax_sc.config import from_tree
from purejax_sc.evaluation import chosen, diagnosis
from purejax_sc.evaluation.chosen import Chosen
from purejax_sc.types import Env, Step

CONFIG = from_tree({"env": "garnet", "hyper": {"discount": 0.5}, "muesli": {"unroll": 5}})
# By state of the corridor, to a judge who looks once at both legal actions. To stay has half the value of the state; to
# go on has 1, 2 or 3 and half the value there.
LOST = [1 + 1 - 0.5, 2 + 1.5 - 1, 3 - 1.5]


@cache
def program(game: bool, simulations: int):
    env, (model, _) = a_game() if game else corridor.corridor(), model_and_params()
    searches = {"search": SearchOptions(32, "gumbel")}

    def look(params):
        key_play, key_chosen = jax.random.split(jax.random.key(0))
        played = diagnosis.play(env, model, params, key_play, 32, 8)
        return chosen.choose_and_judge(env, model, params, CONFIG, played, key_chosen, searches, 64, simulations)

    return jax.jit(look)


def judged(params, game=False, simulations=2) -> Chosen:
    return jax.device_get(program(game, simulations)(params))


def a_game() -> Env:
    """From state 0 action 0 leads to state 2, action 1 to state 1: there the other side takes 0 or 5 and it ends."""

    def show(state, reward, discount):
        legal, number = jnp.array([True, True, False]), jnp.float32
        obs = jax.nn.one_hot(state, *corridor.SPEC.obs_shape)
        return Step(obs, legal, number(reward), number(discount), jnp.bool(False), jnp.int32(0), {})

    def step(key, state, action):
        return 2 - action, show(2 - action, jnp.where(state == 1, 5, 0), jnp.where(state == 0, -1, 0))

    return Env(corridor.SPEC._replace(two_player=True), lambda key, shared: (jnp.int32(0), show(0, 0, 1)), step)


def test_every_way_is_judged_in_the_same_states() -> None:
    action, (greedy, search, judge) = judged(model_and_params()[1])
    np.testing.assert_array_equal(action[0], 0)  # of even logits the first one
    assert set(greedy) == set(LOST)
    np.testing.assert_array_equal(action[1:], 1)
    np.testing.assert_array_equal([search, judge], 0)


def test_a_search_over_a_wrong_model_is_judged_by_what_is_real() -> None:
    swapped = [row[::-1] for row in SUCCESSORS[:3]]
    action, lost = judged(model_and_params(successors=[*swapped, [3]], rewards=[[1, 0], [2, 0], [3, 0], [0]])[1])
    np.testing.assert_array_equal(action[1], 0)
    np.testing.assert_array_equal(lost[1], lost[0])
    assert set(lost[0]) == set(LOST)


def test_a_judge_who_looks_further_sees_what_is_lost_for_good() -> None:
    # To go on for good is worth 1 + 3.5 / 2, 2 + 3 / 2 and 3, and to stay half of it: a tree tells means over visits.
    _, (greedy, _, judge) = judged(model_and_params()[1], simulations=64)
    lost = np.array([2.75, 3.5, 3.0]) / 2
    assert np.min(np.abs(greedy[:, None] - lost), axis=1).max() < 0.1
    np.testing.assert_array_equal(judge, 0)


def test_an_action_that_was_not_looked_at_has_the_value_of_the_state() -> None:
    # The only visit was to stay: the state has the mean of its value and half of it, a quarter more than to stay.
    _, (greedy, *_) = judged(model_and_params()[1], simulations=1)
    assert set(greedy) == {0.25, 0.5, 0.75}


def test_what_is_good_for_the_other_side_counts_against_the_mover() -> None:
    # From state 0, to state 2 is worth -3 / 2 and to state 1 -2 / 2. There both actions take the same.
    action, (greedy, _, judge) = judged(model_and_params()[1], game=True)
    assert set(greedy) == {0, 0.5}
    np.testing.assert_array_equal(action[-1], greedy > 0)
    np.testing.assert_array_equal(judge, 0)


def test_what_the_other_side_takes_in_the_end_counts_against_the_mover() -> None:
    # A judge who sees the 5 that the other side takes in state 1 goes to state 2, whose value of 3 is not paid.
    action, (greedy, *_) = judged(model_and_params()[1], game=True, simulations=8)
    np.testing.assert_array_equal(action[-1], 0)
    np.testing.assert_array_equal(greedy, 0)


@pytest.mark.parametrize("seeds", [1, 2])
def test_ways_are_compared_in_pairs(seeds) -> None:
    action = np.array([[[0, 1], [0, 2], [1, 2]], [[0, 0], [0, 0], [0, 0]]])[:seeds]
    lost = np.array([[[3.0, 2], [3, 1], [4, 1]], [[0, 0], [0, 0], [0, 0]]])[:seeds]
    found = chosen.summarise(["greedy", "some", "more"], Chosen(action, lost))
    per_seed = {name: {of: x["per_seed"] for of, x in columns.items()} for name, columns in found.items()}
    zeros = [0.0] * seeds
    assert per_seed["greedy"] == {
        "lost": [2.5, 0][:seeds],
        "over_greedy": zeros,
        "over_last": zeros,
        "other": zeros,
    }
    assert per_seed["some"]["over_greedy"] == per_seed["some"]["over_last"] == [0.5, 0][:seeds]
    assert per_seed["more"]["over_greedy"] == zeros
    assert per_seed["more"]["over_last"] == [-0.5, 0][:seeds]
    assert [per_seed[name]["other"][0] for name in found] == [0, 0.5, 1]
    # Over the two states of the only seed, or over two seeds.
    assert found["some"]["over_last"]["mean_interval"] == ([0, 1] if seeds == 1 else [0, 0.5])
