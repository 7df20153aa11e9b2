"""Model quality: models of a corridor and of a game, right and wrong, for which every number is known."""

import json
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import agents
from helpers.corridor import END, REWARDS, SPEC, SUCCESSORS, corridor, model_and_params

from purejax_sc.agent.search import SearchOptions
from purejax_sc.cli import tables
from purejax_sc.cli.commands import main
from purejax_sc.config import from_tree
from purejax_sc.evaluation import evaluate, model_quality
from purejax_sc.evaluation.model_quality import DiagnosisOptions
from purejax_sc.evaluation.model_rollouts import collect
from purejax_sc.evaluation.players import make_choice
from purejax_sc.types import Env, Step

CONFIG = from_tree({"env": "garnet", "hyper": {"discount": 0.5}})


def sampled(env, params, config, key, steps):
    """A trajectory of 8 environments."""
    model, _ = model_and_params()
    choose = make_choice(config, model, env.spec, "sampled")
    return collect(env, model, params, choose, key, steps, 8)


@pytest.fixture(scope="module")
def played():
    return jax.jit(lambda: sampled(corridor(), model_and_params()[1], CONFIG, jax.random.key(0), 64))()


def judged(played, **other):
    model, params = model_and_params(**other)
    options = DiagnosisOptions(states=64)
    tried = jax.jit(
        lambda: model_quality.try_actions(corridor(), model, params, played, jax.random.key(1), CONFIG, options)
    )()
    return model_quality.score(jax.device_get(tried))


def test_a_right_model_ranks_every_action_right(played) -> None:
    score = judged(played)
    np.testing.assert_allclose([score["rank_correlation"], score["regret"]], [1.0, 0.0], atol=1e-6)


def test_a_model_that_confuses_actions_ranks_them_backwards(played) -> None:
    swapped = [row[::-1] for row in SUCCESSORS[:3]]
    score = judged(played, successors=[*swapped, [END]], rewards=[row[::-1] for row in REWARDS])
    np.testing.assert_allclose(score["rank_correlation"], -1.0)
    # State 0: to stay is worth 0 + 1/2, to go on 1 + 2/2. State 1: 2/2 and 2 + 3/2. State 2: 3/2 and 3.
    regrets = np.array([1.5, 2.5, 1.5])
    states = np.bincount(np.argmax(np.asarray(played.obs.frame), -1).ravel(), minlength=3)[:3]
    np.testing.assert_allclose(score["regret"], np.average(regrets, weights=states), atol=0.2)
    # An even policy has either action for its best.
    np.testing.assert_allclose(score["regret_policy"], score["regret"] / 2, rtol=0.3)


def test_states_without_a_choice_are_left_out() -> None:
    two = np.zeros((1, 2), np.float32)
    only = model_quality.Actions(two, two, np.array([[True, False]]), two)
    assert np.isnan(model_quality.score(only)["regret"])


# Choices

CHOICE_CONFIG = from_tree({"env": "garnet", "hyper": {"discount": 0.5}, "muesli": {"unroll": 5}})
# By state of the corridor, to an oracle that looks once at both legal actions. To stay has half the value of the state;
# to go on has 1, 2 or 3 and half the value there.
LOST = [1 + 1 - 0.5, 2 + 1.5 - 1, 3 - 1.5]


@cache
def program(game: bool, simulations: int):
    env, (model, _) = a_game() if game else corridor(), model_and_params()
    options = DiagnosisOptions(searches=(SearchOptions(32, "gumbel"),), choices=64, oracle=simulations)

    def look(params):
        key_play, key_choices = jax.random.split(jax.random.key(0))
        played = sampled(env, params, CHOICE_CONFIG, key_play, 32)
        return model_quality.choose(env, model, params, played, key_choices, CHOICE_CONFIG, options)

    return jax.jit(look)


def choices(params, game=False, simulations=2) -> np.ndarray:
    return jax.device_get(program(game, simulations)(params))


def a_game() -> Env:
    """From state 0 action 0 leads to state 2, action 1 to state 1: there the other side takes 0 or 5 and it ends."""

    def show(state, reward, discount):
        legal, number = jnp.array([True, True, False]), jnp.float32
        obs = jax.nn.one_hot(state, *SPEC.obs_shape)
        return Step(obs, legal, number(reward), number(discount), jnp.bool(False), jnp.int32(0), {})

    def step(key, state, action):
        return 2 - action, show(2 - action, jnp.where(state == 1, 5, 0), jnp.where(state == 0, -1, 0))

    return Env(SPEC._replace(two_player=True), lambda key, shared: (jnp.int32(0), show(0, 0, 1)), step)


def test_the_oracle_judges_all_policies_in_the_same_states() -> None:
    greedy, search, oracle = choices(model_and_params()[1])
    assert set(greedy) == set(LOST)  # of even logits it takes the first
    np.testing.assert_array_equal([search, oracle], 0)


def test_the_oracle_sees_what_is_real_where_the_model_is_wrong() -> None:
    swapped = [row[::-1] for row in SUCCESSORS[:3]]
    lost = choices(model_and_params(successors=[*swapped, [3]], rewards=[[1, 0], [2, 0], [3, 0], [0]])[1])
    np.testing.assert_array_equal(lost[1], lost[0])
    assert set(lost[0]) == set(LOST)


def test_an_action_without_a_visit_has_the_value_of_the_state() -> None:
    # The only visit was to stay: the state has the mean of its value and half of it, a quarter more than to stay.
    greedy, *_ = choices(model_and_params()[1], simulations=1)
    assert set(greedy) == {0.25, 0.5, 0.75}


def test_what_the_other_side_gains_counts_against_the_mover() -> None:
    # An oracle that sees the 5 that the other side takes in state 1 goes to state 2, whose value of 3 is not paid.
    greedy, *_, oracle = choices(model_and_params()[1], game=True, simulations=8)
    np.testing.assert_array_equal([greedy, oracle], 0)


@pytest.mark.parametrize("seeds", [1, 2])
def test_policies_are_compared_in_pairs(seeds) -> None:
    lost = np.array([[[3.0, 2], [3, 1], [4, 1]], [[0, 0], [0, 0], [0, 0]]])[:seeds]
    found = model_quality.summarise_choices(["greedy", "some", "more"], lost)
    per_seed = {name: {of: x["per_seed"] for of, x in columns.items()} for name, columns in found.items()}
    assert per_seed["greedy"]["lost"] == [2.5, 0][:seeds]
    assert per_seed["some"]["over_greedy"] == per_seed["some"]["over_last"] == [0.5, 0][:seeds]
    assert per_seed["more"]["over_greedy"] == [0.0] * seeds
    assert per_seed["more"]["over_last"] == [-0.5, 0][:seeds]
    # Over the two states of the only seed, or over two seeds.
    assert found["some"]["over_last"]["mean_interval"] == ([0, 1] if seeds == 1 else [0, 0.5])


# The command


def test_the_command_writes_a_report_and_a_table(tmp_path, monkeypatch, capsys) -> None:
    tree = {
        "env": "pgx/tic_tac_toe",
        "network": {"kind": "mlp", "width": 8, "head_width": 0},
        "muesli": {"bins": 5, "unroll": 2, "reconstruct_planes": 2, "predict_legal": True},
    }
    agents.save(agents.untrained(from_tree(tree), (3, 4)), tmp_path / "run")
    small = DiagnosisOptions(24, 4, states=8, choices=6, oracle=9)
    monkeypatch.setattr(model_quality, "DiagnosisOptions", lambda **options: small._replace(**options))
    monkeypatch.setattr(evaluate, "evaluate", lambda *_: {})  # has tests of its own
    monkeypatch.setattr(tables, "print_evaluation", lambda report: None)
    words = "--seed 7 --diagnose --simulations 9 --search gumbel"
    assert main(["evaluate", str(tmp_path / "run"), *words.split()]) == 0
    told = capsys.readouterr().out
    assert "rank correlation" in told
    assert "actions chosen in 6 states, judged by 9 simulations over the environment" in told
    [report] = json.loads((tmp_path / "run" / model_quality.FILE).read_text())["reports"]
    assert (report["seed"], report["seeds"]) == (7, [3, 4])
    assert list(report["actions"]) == list(model_quality.SCORES)
    assert list(report["chosen"]) == ["greedy", "search", "oracle"]


def test_what_cannot_be_diagnosed_is_one_line(tmp_path, capsys) -> None:
    (tmp_path / "nothing").mkdir()
    assert main(["evaluate", str(tmp_path / "nothing"), "--diagnose"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
