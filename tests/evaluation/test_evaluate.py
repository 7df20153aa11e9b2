"""Evaluation: which episodes count, who plays them, what is reported and drawn, and how mistakes end."""

import json
import shlex
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import agents, probe_envs
from PIL import Image

from purejax_sc.agent.search import SearchOptions
from purejax_sc.cli.commands import main
from purejax_sc.config import ConfigError, from_tree, load
from purejax_sc.envs import episodes
from purejax_sc.envs.episodes import Episodes
from purejax_sc.evaluation import evaluate, render
from purejax_sc.evaluation.evaluate import EvaluationOptions, evaluate_agents, search_names
from purejax_sc.results.files import RunError
from purejax_sc.types import Env, EnvSpec, Model, Params

NETWORK = {"network": {"kind": "mlp", "width": 4, "head_width": 0}}
NOTHING = Params(*[()] * len(Params._fields))


def make_agents(env=None, name="gymnax/Catch-bsuite", seeds=(3, 4), preferred=1):
    """Agents whose target network, which acts, prefers an action, and the online network the other one."""
    config = from_tree({"env": name, **NETWORK, "muesli": {"bins": 5, "value_max": 5.0}})
    return agents.two_minds(config, seeds, env, preferred)


def counting_model() -> Model:
    """Its encoding is how many observations of the episode it has read, counted in the carry. It has no other part."""

    def encode(encoder, obs, carry):
        carry = jnp.where(obs.first[0], 0, carry) + 1
        return carry[None], carry

    # A carry that only `first` brings to 0.
    return Model(None, lambda n: jnp.full(n, 100), encode, *[None] * 7)


def play(env, choose, num_episodes=4, max_steps=100) -> Episodes:
    player = episodes.policy_player(counting_model(), choose, NOTHING)
    run = jax.jit(lambda key: episodes.play(env, (player,), key, num_episodes, max_steps))
    return jax.device_get(run(jax.random.key(0)))


def test_an_episode_counts_to_its_end_and_the_carry_begins_with_it():
    # The third action ends it: rewards 1 + 2 + 3.
    episodes = play(probe_envs.counting(10), lambda params, e, legal, key: e == 3)
    assert episodes.episode_return.tolist() == [6.0] * 4
    assert episodes.length.tolist() == [3] * 4
    assert not episodes.running.any()


def with_number(reward: float, metric: float) -> Env:
    """One step with this reward and metric."""

    def shown(*arguments):
        step = probe_envs.show(0, reward=reward, terminated=len(arguments) == 3)
        return jnp.int32(0), step._replace(metrics={"metric": jnp.float32(metric)})

    return Env(probe_envs.SPEC, shown, shown)


def test_a_return_that_is_not_finite_is_refused():
    env = with_number(reward=jnp.inf, metric=0.0)
    with pytest.raises(RunError, match="the return of an episode is not finite: mend its rewards"):
        evaluate_agents(make_agents(env), EvaluationOptions(2), env)


def test_a_metric_that_is_not_a_number_has_no_mean():
    env = with_number(reward=1.0, metric=jnp.nan)
    report = evaluate_agents(make_agents(env), EvaluationOptions(2), env)
    metric = json.loads(json.dumps(report["policies"]["greedy"], allow_nan=False))["metrics"]["metric"]
    assert metric == {"mean": None, "mean_interval": None, "per_seed": [None, None]}


# Who plays


def test_the_network_that_acted_in_training_plays():
    env = probe_envs.reward_by_action()
    options = EvaluationOptions(500, searches=(SearchOptions(4, "gumbel"),))
    report = evaluate_agents(make_agents(env), options, env)
    assert report["policies"]["greedy"]["return"]["mean_interval"] == [1.0, 1.0]
    returns = {name: np.array(policy["per_seed"]["return"]) for name, policy in report["policies"].items()}
    np.testing.assert_array_equal(returns.pop("greedy"), 1.0)
    # A logit of 1 is a probability of 0.731, with a standard error of 0.02.
    np.testing.assert_allclose(returns.pop("sampled"), 0.731, atol=0.08)
    # The model knows no reward and no value, so the search follows the prior.
    np.testing.assert_array_equal(returns.pop("search"), 1.0)
    assert not returns


def test_a_seed_is_evaluated_alike_alone_and_in_a_sweep_but_not_with_another_key():
    env = probe_envs.reward_by_observation_and_action()

    def returns(seeds, key):
        report = evaluate_agents(make_agents(env, seeds=seeds), EvaluationOptions(episodes=50, seed=key), env)
        return [policy["per_seed"]["returns"] for policy in report["policies"].values()]

    for together, alone, other in zip(returns((3, 4, 5), 0), returns((4,), 0), returns((4,), 1), strict=True):
        assert together[1] == alone[0]
        assert together[1] != together[0]
        assert alone != other


def test_levels_are_held_out() -> None:
    levels = evaluate.evaluation_config(load("sokoban_small"), 300, ["levels.depth=40"]).levels
    assert (levels.split, levels.depth) == ("test", 40)
    assert (levels.pool, levels.refresh) == (300, 0)  # one for each episode, and no new ones
    catch = load("catch")
    assert evaluate.evaluation_config(catch, 32, []) == catch
    with pytest.raises(ConfigError, match=r"only env_options\.\*, levels\.\* and atari\.\* can differ"):
        evaluate.evaluation_config(catch, 32, ["hyper.discount=0.5"])


# What is reported


def test_summary_over_seeds():
    returns = np.array([[1.0, 3.0], [5.0, 7.0]])
    summary = evaluate.summarise(
        Episodes(returns, np.array([[1, 2], [3, 4]]), np.array([[False, True], [True, True]]), {})
    )
    assert summary["per_seed"] == {
        "return": [2.0, 6.0], "length": [1.5, 3.5], "cut": [1, 2], "returns": returns.tolist(),
    }  # fmt: skip
    assert summary["return"]["mean"] == summary["return"]["iqm"] == 4.0
    # Resampled means of (2, 6) are 2, 4 and 6, the outer ones a quarter of the time each.
    assert summary["return"]["mean_interval"] == [2.0, 6.0]
    assert summary["length"] == 2.5
    assert summary["cut"] == 3


def test_summary_of_an_only_seed_is_over_its_episodes():
    returns = np.array([[0.0, 1.0, 2.0, 9.0]])
    summary = evaluate.summarise(Episodes(returns, np.ones((1, 4), int), np.zeros((1, 4), bool), {}))
    assert summary["return"]["mean"] == 3.0
    assert summary["return"]["iqm"] == 1.5  # without the lowest and the highest
    low, high = summary["return"]["mean_interval"]
    assert 0.0 < low < 3.0 < high < 9.0


def test_one_episode_of_one_seed_has_no_interval():
    summary = evaluate.summarise(Episodes(np.ones((1, 1)), np.ones((1, 1), int), np.zeros((1, 1), bool), {}))
    assert summary["return"] == {"mean": 1.0, "mean_interval": None, "iqm": 1.0, "iqm_interval": None}


# What is drawn


def test_a_cell_has_the_colour_of_its_first_channel():
    frame = np.zeros((1, 2, 2, 3), bool)
    frame[0, 0, 0, 1] = frame[0, 0, 1, 2] = frame[0, 0, 0, 2] = frame[0, 1, 0, 0] = True
    drawn = render.draw_channels(frame)[0]
    background = [render.BACKGROUND] * 3
    expected = [[render.PALETTE[1].tolist(), render.PALETTE[2].tolist()], [render.PALETTE[0].tolist(), background]]
    assert drawn.tolist() == expected
    assert drawn.dtype == np.uint8


def test_boards_are_drawn_with_dark_pieces_for_the_first_player():
    frames = np.zeros((3, 2, 3, 2), bool)  # own, other
    frames[1, 0, 0, 1] = True  # the first player's piece, seen by the second
    frames[2, 0, 0, 0] = frames[2, 1, 2, 1] = True
    drawn = render.make_drawer("pgx/go_9x9", EnvSpec(7, (2, 3, 2), np.dtype(bool), True))(frames)
    assert drawn.shape == (3, 32, 48, 3)
    grey = drawn[:, 8::16, 8::16].mean(axis=-1)
    dark, light = grey < 30, grey > 230
    np.testing.assert_array_equal(dark, [[[0, 0, 0]] * 2, [[1, 0, 0], [0, 0, 0]], [[1, 0, 0], [0, 0, 0]]])
    np.testing.assert_array_equal(light, [[[0, 0, 0]] * 2, [[0, 0, 0]] * 2, [[0, 0, 0], [0, 0, 1]]])


def test_a_strip_shows_first_and_last_frame_and_wraps():
    frames = np.zeros((45, 2, 2, 3), np.uint8)
    frames[:, :, :, 0] = np.arange(45)[:, None, None]
    picture, gap, side = render.strip(frames), render.STRIP_GAP, render.STRIP_SIDE
    # 20 of 45 frames, in four rows of five
    assert picture.shape == (gap + 4 * (side + gap), gap + 5 * (side + gap), 3)
    assert picture[gap, gap].tolist() == [0, 0, 0]
    assert picture[-gap - 1, -gap - 1].tolist() == [44, 0, 0]
    assert render.strip(frames[:3]).shape == (2 * gap + side, gap + 3 * (side + gap), 3)


def test_a_recorded_episode_has_its_first_and_its_final_observation():
    env = probe_envs.counting(4)
    patient = make_agents(env, preferred=0)  # action 0 never ends the episode
    frames, caption = evaluate.record(patient, EvaluationOptions(), env)
    assert frames[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert caption == "drew a greedy episode of seed 3: return 10, 4 steps"
    frames, caption = evaluate.record(patient, EvaluationOptions(max_steps=2), env)
    assert frames[:, 0].tolist() == [0, 1, 2]
    assert caption.endswith("return 3, 2 steps, cut there")


@pytest.mark.parametrize("shape", [(4,), (1, 1), (), (20,)])
def test_what_is_no_picture_is_refused(shape):
    with pytest.raises(RunError, match=r"cannot draw some/Env.*leave out --render"):
        render.make_drawer("some/Env", EnvSpec(2, shape, np.dtype(np.float32), False))


# The command


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_command_writes_a_report_and_a_film(here, capsys):
    run = agents.save(make_agents(), Path("run"))
    saved = files()
    assert main(shlex.split("evaluate run --episodes 2 --seed 5 --render film.gif")) == 0
    [report] = json.loads((run / evaluate.FILE).read_text())["reports"]
    assert report["env"] == "gymnax/Catch-bsuite"
    assert report["seeds"] == [3, 4]
    assert report["updates"] == [0, 0]
    assert (report["episodes"], report["max_steps"], report["seed"], report["searches"]) == (2, 27_000, 5, {})
    assert report["interval_over"] == "seeds"
    assert report["policies"]["greedy"]["per_seed"]["length"] == [9.0, 9.0]
    out = capsys.readouterr().out
    assert "greedy" in out
    assert "sampled" in out
    assert "over the 2 seeds" in out
    assert "0 of 4" in out
    with Image.open("film.gif") as film:
        assert film.format == "GIF"
        assert film.n_frames == 10  # Catch lasts nine steps, and every frame differs from the one before
        assert film.size == (120, 240)
    assert files() == saved | {run / evaluate.FILE, Path("film.gif")}


def test_earlier_evaluations_are_kept(here, capsys) -> None:
    run = agents.save(make_agents(), Path("run"))

    def kept() -> list[dict]:
        return json.loads((run / evaluate.FILE).read_text())["reports"]

    for words in ("--episodes 2", "--episodes 2 --max-steps 4 --render strip.png", "--episodes 2"):
        assert main(shlex.split(f"evaluate run {words}")) == 0
    assert [report["max_steps"] for report in kept()] == [4, 27_000]
    assert kept()[0]["policies"]["greedy"]["cut"] == 4
    captured = capsys.readouterr()
    assert "4 of 4" in captured.out
    assert "4 steps, cut there" in captured.err
    with Image.open("strip.png") as picture:
        assert picture.format == "PNG"

    (run / evaluate.FILE).write_text("mine")
    capsys.readouterr()
    assert main(shlex.split("evaluate run --episodes 2")) == 2
    assert "move it away" in capsys.readouterr().err
    assert (run / evaluate.FILE).read_text() == "mine"


def test_searches_are_named_by_what_differs() -> None:
    one, more = SearchOptions(8), SearchOptions(32)
    assert search_names([]) == {}
    assert search_names([more, more]) == {"search": more}
    assert search_names([one, more]) == {"search 8": one, "search 32": more}
    kinds = [one, SearchOptions(8, "gumbel"), SearchOptions(8, "gumbel", 5)]
    assert list(search_names(kinds)) == [
        "search muzero max_depth=None",
        "search gumbel max_depth=None",
        "search gumbel max_depth=5",
    ]


@pytest.fixture(scope="module")
def garnet(tmp_path_factory) -> Path:
    return agents.save(agents.untrained(from_tree({"env": "garnet", **NETWORK})), tmp_path_factory.mktemp("garnet"))


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("evaluate run --search gumbel", "add --simulations"),
        ("evaluate run --dynamics environment", "options of a search need --simulations"),
        ("evaluate run --simulations 2,x", "several as in 8,32,128"),
        ("evaluate run --render film.mp4", ".gif"),
        ("evaluate run --render nowhere/film.gif", "nowhere/film.gif cannot be a file: choose another place with"),
        ("evaluate run --render kept.gif", "kept.gif exists: choose another file with --render, or remove it"),
        ("evaluate run --render film.gif", "cannot draw garnet"),
        ("evaluate nowhere", "give one that train or export wrote"),
        ("evaluate empty", "give one that train or export wrote"),
    ],
)
def test_mistakes_are_one_line_and_write_nothing(here, garnet, capsys, command, words):
    Path("run").symlink_to(garnet)
    Path("kept.gif").touch()
    Path("empty").mkdir()
    before = files()
    assert main(shlex.split(command)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("purejax-sc: ")
    assert captured.err.count("\n") == 1
    assert words in captured.err
    assert files() == before


def files() -> set[Path]:
    return set(Path().rglob("*")) | set(Path("run/").rglob("*"))  # the latter may be a link
