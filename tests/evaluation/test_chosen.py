"""What chosen actions are worth: in a corridor and in a game for which every number is known."""

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
# By state of the corridor, to a judge of one simulation, who next stays and then reads the value: 0 + 0.5 * VALUES.
# To stay is worth 0.5 * (0.5 * VALUES) now, to go on 1, 2, 3 and the half of what staying is worth there, or the end.
STAY, GO = np.array([0.25, 0.5, 0.75]), np.array([1 + 0.5, 2 + 0.75, 3])


@cache
def program(game: bool, simulations: int):
    env, (model, _) = a_game() if game else corridor.corridor(), model_and_params()
    searches = {"search": SearchOptions(32, "gumbel")}

    def look(params):
        key_play, key_chosen = jax.random.split(jax.random.key(0))
        played = diagnosis.play(env, model, params, key_play, 32, 8)
        return chosen.choose_and_judge(env, model, params, CONFIG, played, key_chosen, searches, 64, simulations)

    return jax.jit(look)


def judged(params, game=False, simulations=1) -> Chosen:
    return jax.device_get(program(game, simulations)(params))


def a_game() -> Env:
    """From state 0, where values of the corridor are read, to state 1, where the other side wins 1, or 2, where not."""

    def show(state, reward, discount):
        legal, number = jnp.array([True, True, False]), jnp.float32
        obs = jax.nn.one_hot(state, *corridor.SPEC.obs_shape)
        return Step(obs, legal, number(reward), number(discount), jnp.bool(False), jnp.int32(0), {})

    def step(key, state, action):
        return action + 1, show(action + 1, state == 1, jnp.where(state == 0, -1, 0))

    return Env(corridor.SPEC._replace(two_player=True), lambda key, shared: (jnp.int32(0), show(0, 0, 1)), step)


def test_every_way_is_judged_in_the_same_states() -> None:
    action, (greedy, search, judge) = judged(model_and_params()[1])
    state = np.argmin(np.abs(greedy[:, None] - STAY), axis=1)
    assert set(state) == {0, 1, 2}
    np.testing.assert_allclose(greedy, STAY[state], rtol=1e-6)  # of even logits the first one
    np.testing.assert_array_equal(action[[0, 2]], 0)  # nor does one simulation see another
    np.testing.assert_array_equal(judge, greedy)
    np.testing.assert_array_equal(action[1], 1)
    np.testing.assert_allclose(search, GO[state], rtol=1e-6)


def test_a_search_over_a_wrong_model_is_judged_by_what_is_real() -> None:
    swapped = [row[::-1] for row in SUCCESSORS[:3]]
    action, worth = judged(model_and_params(successors=[*swapped, [3]], rewards=[[1, 0], [2, 0], [3, 0], [0]])[1])
    np.testing.assert_array_equal(action[1], 0)
    np.testing.assert_array_equal(worth[1], worth[0])


def test_a_judge_who_looks_further_sees_the_value_of_the_best_action_there() -> None:
    # To go on for good is worth 1 + 3.5 / 2, 2 + 3 / 2 and 3. A tree's value is a mean over visits: a little less.
    best = np.array([2.75, 3.5, 3.0])
    action, (greedy, _, judge) = judged(model_and_params()[1], simulations=64)
    np.testing.assert_array_equal(action[-1], 1)
    state = np.argmin(np.abs(judge[:, None] - best), axis=1)
    np.testing.assert_allclose(judge, best[state], rtol=0.05)
    np.testing.assert_allclose(greedy, best[state] / 2, rtol=0.05)


def test_what_the_other_side_wins_counts_against_the_mover() -> None:
    _, (greedy, _, judge) = judged(model_and_params()[1], game=True, simulations=8)
    assert set(np.round(greedy, 6)) == {-0.5, 0.0, 1.0}  # in states 0, 2 and 1
    assert judge.min() == 0


@pytest.mark.parametrize("seeds", [1, 2])
def test_ways_are_compared_in_pairs(seeds) -> None:
    action = np.array([[[0, 1], [0, 2], [1, 2]], [[0, 0], [0, 0], [0, 0]]])[:seeds]
    worth = np.array([[[1.0, 2], [1, 3], [0, 3]], [[5, 5], [5, 5], [5, 5]]])[:seeds]
    found = chosen.summarise(["greedy", "some", "more"], Chosen(action, worth))
    per_seed = {name: {of: x["per_seed"] for of, x in columns.items()} for name, columns in found.items()}
    zeros = [0.0] * seeds
    assert per_seed["greedy"] == {
        "worth": [1.5, 5][:seeds],
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
