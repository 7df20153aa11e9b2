"""Diagnosis: models of a corridor, right and wrong, for which every number is known."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import agents
from helpers.corridor import END, REWARDS, SPEC, SUCCESSORS, corridor, model_and_params
from helpers.table_models import with_rules

from purejax_sc.cli.commands import main
from purejax_sc.config import from_tree
from purejax_sc.evaluation import diagnosis
from purejax_sc.evaluation.diagnosis import DiagnosisOptions

DEPTH = 4
CONFIG = from_tree({"env": "garnet", "hyper": {"discount": 0.5}})


@pytest.fixture(scope="module")
def played():
    model, params = model_and_params()
    return jax.jit(lambda: diagnosis.play(corridor(), model, params, jax.random.key(0), 64, 8))()


def depths(played, config=CONFIG, **other):
    model, params = model_and_params(**other)
    return jax.device_get(jax.jit(lambda: diagnosis.by_depth(model, params, SPEC, played, config, DEPTH))())


def judged(played, **other):
    model, params = model_and_params(**other)
    options = DiagnosisOptions(states=64)
    tried = jax.jit(
        lambda: diagnosis.try_actions(corridor(), model, params, played, jax.random.key(1), CONFIG, options)
    )()
    return diagnosis.score(jax.device_get(tried))


def test_a_right_model_is_right_everywhere(played) -> None:
    found = depths(played)
    for name in ("value_gap", "value_beyond", "reward_error", "end_error"):
        np.testing.assert_allclose(found[name], 0.0, atol=1e-6, err_msg=name)
    # Of three even actions one is illegal: a third of the mass, and log(1/2) - log(1/3) nats from the root policy.
    np.testing.assert_allclose(found["illegal_mass"], 1 / 3, rtol=1e-5)
    np.testing.assert_allclose(found["policy_kl"], np.log(3 / 2), rtol=1e-5)
    score = judged(played)
    np.testing.assert_allclose([score["rank_correlation"], score["regret"]], [1.0, 0.0], atol=1e-6)


def test_values_that_are_off_show_at_every_depth_and_beyond_the_end(played) -> None:
    found = depths(played, values=[1.5, 2.5, 3.5, 0.25])
    np.testing.assert_allclose(found["value_gap"], 0.5, rtol=1e-5)
    # After one step the end is just reached, after two a step ago; the model stays there.
    np.testing.assert_allclose(found["value_beyond"], 0.25, rtol=1e-5)
    np.testing.assert_allclose(found["end_error"], 0.25 * CONFIG.hyper.discount, rtol=1e-5)


def test_a_last_reward_that_is_to_be_kept_as_a_value_is_asked_for_there(played) -> None:
    config = from_tree({"env": "garnet", "hyper": {"discount": 1.0}, "muesli": {"absorbing": "outcome"}})
    paid, kept = depths(played, config), depths(played, config, values=[1, 2, 3, 3], rewards=[[0, 1], [0, 2], [0, 0]])
    for name in ("value_beyond", "reward_error", "end_error"):
        np.testing.assert_allclose(kept[name], 0.0, atol=1e-6, err_msg=name)
    assert paid["reward_error"][0] > 0
    np.testing.assert_allclose(paid["value_beyond"], 3.0, rtol=1e-5)


def test_rewards_that_are_off_show_where_they_are_paid(played) -> None:
    found = depths(played, rewards=[[1, 1], [0, 2], [0, 3]])
    in_0 = (np.argmax(played.obs.frame, -1) == 0) & (played.action == 0)
    np.testing.assert_allclose(found["reward_error"][0], in_0.mean(), rtol=1e-5)


def test_a_model_that_stays_where_it_is_shows_what_it_has_not_left(played) -> None:
    def shown(**other):
        model, params = model_and_params(**other)
        model = model._replace(reconstruct=lambda dynamics, z: z - 0.5, visible=lambda frame: frame > 0)
        return jax.jit(lambda: diagnosis.by_depth(model, params, SPEC, played, CONFIG, DEPTH)["reconstructed"])()

    np.testing.assert_array_equal(shown(), 1.0)
    # where the state after the action is one to be shown, and is there to be seen
    lives = np.asarray(played.obs.valid & (played.discount > 0))[:-1]
    stayed = (lives & np.asarray(played.action == 0)[:-1]).sum() / lives.sum()
    np.testing.assert_allclose(shown(successors=[[0, 0], [1, 1], [2, 2], [END]])[0], stayed, rtol=1e-5)
    assert "reconstructed" not in depths(played)  # of a model that has to show nothing


def test_what_a_model_says_of_legal_actions_is_held_against_the_rules(played) -> None:
    def told(*logits):
        model, params = model_and_params()
        model = with_rules(model, jnp.array(logits))
        found = jax.jit(lambda: diagnosis.by_depth(model, params, SPEC, played, CONFIG, DEPTH))()
        np.testing.assert_allclose(found["policy_kl"], np.log(3 / 2), rtol=1e-5)  # of the policy alone, as ever
        return float(found["legal"][0]), round(float(found["illegal_mass"][0]), 4)

    # The third of three even actions is illegal: what a search reads is held against that.
    assert told(1.0, 1.0, -1.0) == (1.0, 0.0)
    assert told(1.0, 1.0, 1.0) == (0.0, 0.3333)
    assert told(1.0, -1.0, -1.0) == (0.0, 0.0)
    assert told(-1.0, -1.0, 1.0) == (0.0, 1.0)
    assert "legal" not in depths(played)  # of a model that says nothing of it


def test_a_model_that_confuses_actions_ranks_them_backwards(played) -> None:
    swapped = [row[::-1] for row in SUCCESSORS[:3]]
    score = judged(played, successors=[*swapped, [END]], rewards=[row[::-1] for row in REWARDS])
    np.testing.assert_allclose(score["rank_correlation"], -1.0)
    # State 0: to stay is worth 0 + 1/2, to go on 1 + 2/2. State 1: 2/2 and 2 + 3/2. State 2: 3/2 and 3.
    regrets = np.array([1.5, 2.5, 1.5])
    states = np.bincount(np.argmax(np.asarray(played.obs.frame), -1).ravel(), minlength=3)[:3]
    np.testing.assert_allclose(score["regret"], np.average(regrets, weights=states), atol=0.2)
    np.testing.assert_allclose(score["spread"], score["regret"] / 2, rtol=1e-5)  # of two values
    # An even policy has either action for its best.
    np.testing.assert_allclose(score["regret_policy"], score["regret"] / 2, rtol=0.3)


def test_states_without_a_choice_are_left_out() -> None:
    two = np.zeros((1, 2), np.float32)
    only = diagnosis.Actions(two, two, np.array([[True, False]]), two)
    assert np.isnan(diagnosis.score(only)["regret"])


@pytest.mark.parametrize(("env", "shown"), [("garnet", 0), ("pgx/tic_tac_toe", 2)])
def test_the_command_writes_a_table_and_a_picture(tmp_path, monkeypatch, capsys, env, shown) -> None:
    tiny = {
        "network": {"kind": "mlp", "width": 8, "head_width": 0},
        "muesli": {"bins": 5, "unroll": 2, "reconstruct": shown, "legal": shown > 0},
    }
    agents.save(agents.untrained(from_tree({"env": env, **tiny}), (3, 4)), tmp_path / "run")
    small = DiagnosisOptions(24, 4, states=8, choices=6, judge=4)
    monkeypatch.setattr(diagnosis, "DiagnosisOptions", lambda **options: small._replace(**options))
    words = ["evaluate", str(tmp_path / "run"), "--episodes", "2", "--max-steps", "20", "--seed", "7", "--diagnose"]
    searched = ["--simulations", "9", "--search", "gumbel"] if env == "garnet" else []
    assert main([*words, *searched]) == 0
    told = capsys.readouterr().out
    assert "model steps" in told
    assert "rank correlation" in told
    assert ("actions chosen in 6 states, as 4 simulations over the environment" in told) == bool(searched)
    [report] = json.loads((tmp_path / "run" / diagnosis.FILE).read_text())["reports"]
    assert (report["depth"], report["trained_depth"], report["seed"], report["seeds"]) == (4, 2, 7, [3, 4])
    only_shown = () if shown else ("reconstructed", "legal")
    assert list(report["by_depth"]) == [name for name in diagnosis.DEPTH if name not in only_shown]
    assert all(len(values) == 4 for values in report["by_depth"].values())
    assert report["by_depth"]["value_gap"][0] == {"mean": 0.0, "interval": [0.0, 0.0]}  # heads begin at 0
    assert list(report["chosen"]) == (["greedy", "search", "the judge"] if searched else [])
    if env == "garnet":  # it never ends, and everything is legal
        assert report["by_depth"]["value_beyond"][0] == {"mean": None, "interval": None}
        assert report["by_depth"]["illegal_mass"][0]["mean"] == 0
    assert (tmp_path / "run" / diagnosis.PICTURE).stat().st_size > 5_000


def test_what_cannot_be_diagnosed_is_one_line(tmp_path, capsys) -> None:
    (Path(tmp_path) / "nothing").mkdir()
    assert main(["evaluate", str(tmp_path / "nothing"), "--diagnose"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
