"""Imagination beside what came: in a corridor and a game whose every number is known, and the command."""

import re
import shlex
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import agents
from helpers.corridor import REWARDS, SUCCESSORS, corridor
from helpers.table_models import STATES, filled, table_model, tables
from PIL import Image

from purejax_sc.cli.commands import main
from purejax_sc.config import Config, ConfigError, from_tree
from purejax_sc.evaluation import imagination, imagination_figure, imagine, render
from purejax_sc.evaluation.imagination import COLUMNS, ImaginationOptions, Imagined
from purejax_sc.evaluation.imagination_figure import Scene
from purejax_sc.evaluation.real_play import Play
from purejax_sc.results.files import RunError
from purejax_sc.types import Env, EnvSpec, Observation, Params, Step

GAMMA = 0.5
CONFIG = from_tree({"env": "garnet", "hyper": {"discount": GAMMA}})
GO_ON = [[0, 9]] * 3  # logits by state: always action 1
STAY = [[9, 0]] * 3
# Of going on, with rewards 1, 2 and 3: v(2) = 3, v(1) = 2 + 3 / 2, v(0) = 1 + 3.5 / 2.
VALUES = [2.75, 3.5, 3.0, 0.0]
MODEL = table_model()._replace(encode=lambda encoder, obs, carry: (obs.frame, carry))


def agent(values=VALUES, rewards=REWARDS, logits=GO_ON, root_values=VALUES, root_logits=GO_ON) -> Params:
    """Right root heads and a right model, both of which go on, but for what is given."""
    root = tables(SUCCESSORS, REWARDS, root_values, root_logits)
    own = tables(SUCCESSORS, rewards, values, logits)
    return own._replace(root_value=root.root_value, root_policy=root.root_policy)


def look(
    params: Params, env: Env | None = None, config: Config = CONFIG, **options: Any
) -> tuple[Imagined, dict[str, list[float]]]:
    """Play in the corridor, imagine two steps, and the means by k."""
    env = env or corridor()
    how = ImaginationOptions(episodes=2, depth=2)._replace(**options)
    played = imagination.play(env, MODEL, params, jax.random.key(0), config, how)

    def numbers(params, played):
        found = imagination.imagine(MODEL, params, env.spec, played, jax.random.key(1), config, how)
        return found, imagination.errors_by_k(found)

    found, by_k = jax.device_get(jax.jit(numbers)(params, played))
    return found, {name: by_k[name].tolist() for name in COLUMNS}


def test_where_model_and_values_are_right_everything_agrees() -> None:
    found, by_k = look(agent())
    assert found.acted.sum(axis=0).tolist() == [3, 3]
    assert by_k == {
        "sc_error": [0, 0, pytest.approx(np.nan, nan_ok=True)],
        "value_gap": [pytest.approx(np.nan, nan_ok=True), 0, 0],
        "return_gap": [0, 0, 0],
        "reward_error": [pytest.approx(np.nan, nan_ok=True), 0, 0],
        "same": [pytest.approx(np.nan, nan_ok=True), 1, 1],
        "value_gap_same": [pytest.approx(np.nan, nan_ok=True), 0, 0],
        "reward_error_same": [pytest.approx(np.nan, nan_ok=True), 0, 0],
    }
    # From state 0: rewards 1 and 2, values on the way, and after the end nothing.
    first = imagination.first_alone(found)
    np.testing.assert_array_equal(first.value, [[2.75, 3.5, 3], [3.5, 3, 0], [3, 0, 0]])
    np.testing.assert_array_equal(first.target, [[2.75, 3.5, 3], [3.5, 3, 0]])
    np.testing.assert_array_equal(first.reward, [[1, 2, 3], [2, 3, 0]])
    np.testing.assert_array_equal(first.real_reward, first.reward)
    np.testing.assert_array_equal(first.real_return, first.value)
    np.testing.assert_array_equal(first.real_action, [[1, 1, 1], [1, 1, -1]])
    # To stay is worth half of what there is, to go on all of it.
    np.testing.assert_array_equal(first.q[:, :2], [[1.375, 2.75], [1.75, 3.5], [1.5, 3]])
    np.testing.assert_allclose(first.policy, [np.exp([0, 9, -1e9]) / (1 + np.exp(9))] * 3, rtol=1e-5)


def test_a_model_whose_values_are_off_differs_from_what_comes_and_from_itself() -> None:
    _, by_k = look(agent(values=[3.25, 4.0, 3.5, 0.5]))
    assert by_k["value_gap"][1:] == by_k["return_gap"][1:] == by_k["value_gap_same"][1:] == [0.5, 0.5]
    assert by_k["reward_error"][1:] == [0, 0]
    # G_{0:2} bears 0.5 / 4 too much against a right root value; v^1 0.5 and G_{1:2} 0.5 / 2.
    assert by_k["sc_error"][:2] == [0.125, 0.25]


def test_a_model_may_keep_the_last_reward_as_a_value() -> None:
    config = from_tree({"env": "garnet", "hyper": {"discount": 1.0}, "muesli": {"absorbing": "outcome"}})
    values = [6.0, 5.0, 3.0, 3.0]
    kept = agent(values=values, rewards=[[0, 1], [0, 2], [0, 0]], root_values=values)
    found, by_k = look(kept, config=config)
    for name in ("value_gap", "return_gap", "reward_error"):
        assert by_k[name][1:] == [0, 0], name
    assert by_k["sc_error"][:2] == [0, 0]
    first = imagination.first_alone(found)
    np.testing.assert_array_equal(first.real_return, [[6, 5, 3], [5, 3, 3], [3, 3, 3]])
    np.testing.assert_array_equal(first.real_reward, [[1, 2, 0], [2, 0, 0]])


def test_a_model_can_agree_with_itself_and_be_wrong() -> None:
    # It thinks that nothing is ever paid, and that all is worth nothing; so say the root heads.
    nothing = agent(values=[], rewards=[], root_values=[])
    _, by_k = look(nothing)
    assert by_k["sc_error"][:2] == [0, 0]
    assert by_k["value_gap"][1:] == [0, 0]
    # Returns are 2.75, 3.5 and 3, then 3.5, 3 and 0, then 3, 0 and 0; rewards 1, 2 and 3, then 2, 3 and 0.
    np.testing.assert_allclose(by_k["return_gap"], [9.25 / 3, 6.5 / 3, 1], rtol=1e-6)
    np.testing.assert_allclose(by_k["reward_error"][1:], [2, 5 / 3], rtol=1e-6)


def test_imagined_actions_that_were_not_taken_are_told_apart() -> None:
    # The policy of the model stays where it is, after the first action, which is the root policy's.
    found, by_k = look(agent(logits=STAY))
    assert imagination.first_alone(found).action.tolist() == [[1, 1, 1], [0, 0, 0]]
    assert imagination.first_alone(found).same.tolist() == [[True] * 3, [True] * 3, [False, False, True]]
    np.testing.assert_allclose(by_k["same"][1:], [1, 1 / 3], rtol=1e-6)
    # v^2 is that of states 1, 2 and 3, and not of 2, 3 and 3; only of the last state it is really reached.
    np.testing.assert_allclose(by_k["value_gap"][1:], [0, (0.5 + 3 + 0) / 3], rtol=1e-6)
    assert by_k["value_gap_same"][1:] == [0, 0]
    _, by_k = look(agent(logits=STAY), taken=True)
    assert by_k["same"][1:] == [1, 1]
    assert by_k["value_gap"][1:] == [0, 0]


def test_samples_are_of_the_policy_and_greed_takes_its_best() -> None:
    # Even logits: half of the actions, really and in imagination, are 1, and illegal ones are never the first.
    even = agent(logits=[], root_logits=[])
    found, by_k = look(even, episodes=200, sampled=True)
    firsts = found.action[0][found.acted]
    assert set(firsts.tolist()) == {0, 1}
    np.testing.assert_allclose(firsts.mean(), 0.5, atol=0.05)
    np.testing.assert_allclose(by_k["same"][1], 0.5, atol=0.05)
    assert look(even, max_steps=2)[0].action[0].max() == 0


def test_an_episode_that_is_cut_bears_its_last_root_value() -> None:
    found, by_k = look(agent(logits=STAY, root_logits=STAY), max_steps=3)
    first = imagination.first_alone(found)
    assert len(first.acted) == 3
    # It stays in state 0, for nothing: 2.75 after three steps, and nobody knows what comes then.
    np.testing.assert_allclose(first.real_return[0], [2.75 / 8, 2.75 / 4, 2.75 / 2], rtol=1e-6)
    np.testing.assert_array_equal(first.real_value, [[2.75] * 3, [2.75, 2.75, np.nan], [2.75, np.nan, np.nan]])
    np.testing.assert_array_equal(first.real_action, [[0, 0, 0], [0, 0, -1]])
    assert by_k["value_gap"][1:] == [0, 0]


def test_what_the_model_shows_is_that_of_the_imagined_states() -> None:
    # One-hot states, of which it shows the first two; after the first step it stays where it is.
    shows = MODEL._replace(reconstruct=lambda dynamics, z: z[:, :2] - 0.5)
    how = ImaginationOptions(episodes=2, depth=2)
    env, params = corridor(), agent(logits=STAY)
    played = imagination.play(env, shows, params, jax.random.key(0), CONFIG, how)
    found = imagination.imagine(shows, params, env.spec, played, jax.random.key(1), CONFIG, how)
    first = imagination.first_alone(jax.device_get(found))
    in_1, elsewhere = [False, True], [False, False]
    assert first.shown.tolist() == [[in_1, elsewhere, elsewhere]] * 2  # of states 1, 2 and the end
    assert look(params)[0].shown is None


def test_only_first_episodes_count_up_to_what_is_known() -> None:
    discount = [[1, 1, 1, 1], [0, 1, 1, 1], [1, 0, 1, 1], [1, 1, 1, 0]]  # ends, time limit, goes on, ends at last
    valid = [[1, 1, 1, 1], [1, 1, 1, 1], [1, 0, 1, 1], [1, 1, 1, 1]]
    nothing = np.zeros((4, 4), np.float32)
    obs = Observation(nothing, nothing, nothing, nothing, nothing, np.array(valid, bool))
    played = Play((), obs, nothing, (), nothing, nothing, np.array(discount, np.float32))
    acted = np.asarray(imagination.first_episodes(jax.tree.map(jnp.asarray, played)))
    assert acted.T.astype(int).tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]


def duel() -> Env:
    """A game of two moves for nothing, of which the second one wins."""

    def show(state, ended):
        number = jnp.float32
        discount = jnp.where(ended, number(0), number(-1))
        none = jnp.bool(False)
        return Step(jax.nn.one_hot(state, STATES), jnp.ones(3, bool), number(ended), discount, none, state % 2, {})

    def step(key, state, action):
        return state + 1, show(state + 1, state == 1)

    spec = EnvSpec(3, (STATES,), jnp.dtype(jnp.float32), two_player=True)
    return Env(spec, lambda key, shared: (jnp.int32(0), show(jnp.int32(0), jnp.bool(False))), step)


def test_in_a_game_of_two_values_are_the_movers() -> None:
    # Who moves second wins 1; to who moves first that is worth -1 / 2.
    values = [-0.5, 1.0]
    params = tables([[1], [2], [2]], [[0], [1]], values)
    found, by_k = look(params, duel())
    first = imagination.first_alone(found)
    np.testing.assert_array_equal(first.value, [[-0.5, 1], [1, 0], [0, 0]])
    np.testing.assert_array_equal(first.real_return, first.value)
    np.testing.assert_array_equal(first.target, [[-0.5, 1], [1, 0]])
    np.testing.assert_array_equal(first.q, [[-0.5] * 3, [1] * 3])
    assert by_k["sc_error"][:2] == [0, 0]
    assert by_k["return_gap"] == [0, 0, 0]


def test_what_does_not_fit_in_memory_is_refused_before_it_is_there(monkeypatch) -> None:
    with pytest.raises(ConfigError, match="lower --episodes to less than 1%"):
        look(agent(), episodes=10**11)
    monkeypatch.setattr(imagination.memory, "free_on_host", lambda: 2**20)
    monkeypatch.setattr(imagination.memory, "check_program", lambda *_: None)
    with pytest.raises(ConfigError, match="lower --episodes or --max-steps"):
        look(agent(logits=STAY, root_logits=STAY), episodes=100, max_steps=10**9)


# The picture


def scene(**other: Any) -> Scene:
    found, by_k = look(agent(logits=STAY))
    gaps = (np.array(by_k[name]) for name in ("sc_error", "value_gap"))
    whole = Scene("corridor", 3, "greedy", False, imagination.first_alone(found), *gaps, None)
    return whole._replace(**other)


def test_the_picture_says_what_the_numbers_say() -> None:
    frames = np.zeros((3, 2, 2, 3), np.uint8)
    figure = imagination_figure.draw_step(scene(frames=frames), 1)
    texts = [text.get_text() for text in figure.texts]
    assert texts[0] == "corridor, seed 3, greedy: step 1 of 3"
    assert re.findall("[-0-9]+", texts[1]) == ["1", "0", "1", "1"]  # imagined, then taken
    _, policy, q, time, values, rewards, errors = figure.axes
    lines = {line.get_label(): line for line in values.lines}
    np.testing.assert_array_equal(lines["$v(s_{t+k})$, real"].get_ydata(), [3.5, 3, 0])
    np.testing.assert_array_equal(lines["return-to-go"].get_ydata(), [3.5, 3, 0])
    np.testing.assert_array_equal(lines["$v^k$"].get_ydata(), [3.5, 3])  # full where the actions were taken
    # G_{1:2} is 0, the reward of staying, and 3 / 2; G_{0:2} is 2 + 1.5 / 2.
    np.testing.assert_array_equal(lines["$G_{k:K}$"].get_ydata(), [2.75, 1.5])
    assert [bar.get_height() for bar in rewards.patches] == [2, 3, 2, 0]
    assert [label.get_text() for label in q.get_xticklabels()] == ["0", "1*"]  # action 2 is illegal
    assert [round(bar.get_height(), 3) for bar in policy.patches] == [0.0, 1.0]
    said = {line.get_label(): line for line in time.lines}
    assert said["$v^{1}$, said 1 before"].get_xdata().tolist() == [1, 2]
    assert said["$v^{2}$, said 2 before"].get_xdata().tolist() == []  # after other actions: drawn hollow
    marks = [line.get_ydata().tolist() for line in errors.lines if line.get_marker() == "x"]
    assert marks == [[0.75, 1.5]]


def test_what_the_model_shows_is_drawn_below_what_is_seen_and_above_what_came() -> None:
    frames = np.zeros((3, 2, 2, 3), np.uint8)
    shown, came = (np.full((7, 3, 2, 2, 3), grey, np.uint8) for grey in (90, 60))
    came[1:] = 255
    figure = imagination_figure.draw_step(scene(frames=frames, shown=shown, came=came), 1)
    seen, said = figure.axes[:2]
    assert said.get_title() == "the model shows, k = 1 ..; below: what came"
    side, gap = render.STRIP_SIDE, render.STRIP_GAP
    pixels = said.images[0].get_array()[gap + side // 2 :: gap + side, gap + side // 2 :: gap + side, 0]
    assert pixels.tolist() == [[90] * 5, [60] + [255] * 4, [90] * 2 + [255] * 3, [255] * 5]
    assert (seen.images[0].get_array() == 0).all()


def test_what_came_is_known_where_the_imagined_actions_were_taken() -> None:
    spec = EnvSpec(4, (2, 2, 2), np.dtype(bool), two_player=True)
    config = from_tree({"env": "pgx/tic_tac_toe", "muesli": {"reconstruct": 2}})
    frames = np.zeros((3, 2, 2, 2), bool)
    frames[np.arange(3), 0, [0, 1, 0], 0] = True  # of the mover in every state, so of another side in every other one
    same = np.array([[True, False, True], [True, True, True]])
    once, twice = imagine.came_pictures(config, Env(spec, None, None), frames, same)
    whole = render.make_drawer(config.env, spec)(frames)
    np.testing.assert_array_equal(once[0], whole[1])
    np.testing.assert_array_equal(twice[0], whole[2])
    assert (once[1:] == 255).all()  # another action was taken, and then the episode is over
    assert (twice[1:] == 255).all()


def test_a_game_that_the_model_shows_keeps_the_colours_of_its_sides() -> None:
    # The planes are those of the mover and of the other: one stone of who began, seen after one step and after two.
    spec = EnvSpec(4, (2, 2, 2), np.dtype(bool), two_player=True)
    stone = np.zeros((2, 1, 2, 2, 2), bool)  # K = 2, of the first state alone
    stone[0, 0, 0, 0, 1] = stone[1, 0, 0, 0, 0] = True  # the other one's, and then the mover's
    game = Env(spec, None, None)
    once, twice = imagine.shown_pictures(CONFIG, game, stone)
    np.testing.assert_array_equal(once, twice)
    assert (once[0] == 20).any()  # dark
    assert not (once[0] == 240).any()
    assert imagine.shown_pictures(CONFIG, game, None) is None


def test_a_film_begins_where_it_is_told_and_can_be_followed(tmp_path) -> None:
    said: list[str] = []
    (tmp_path / "film.gif").write_bytes(imagination_figure.draw(scene(), ".gif", 1, said.append))
    assert said == ["draws a film of steps 1 to 2 of an episode of 3 steps: 1"]
    with Image.open(tmp_path / "film.gif") as film:
        assert film.n_frames == 2
        assert film.info["duration"] == 500
        assert film.size == (1056, 595)
    with pytest.raises(RunError, match="has no step 3: choose --step from 0 to 2"):
        imagination_figure.draw(scene(), ".png", 3)


def test_of_many_actions_the_likeliest_are_drawn() -> None:
    whole = scene()
    x, many = whole.imagined, 40
    policy = np.tile(np.arange(many, dtype=np.float32)[::-1], (3, 1)) / 780
    legal = np.tile(np.arange(many) % 2 == 0, (3, 1))
    x = x._replace(policy=policy, legal=legal, q=filled([], (3, many)))
    figure = imagination_figure.draw_step(whole._replace(imagined=x), 0)
    labels = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert labels == [str(a) for a in range(0, 20, 2)]
    assert "likeliest 10 of 20" in figure.axes[0].get_title()


# The command


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Untrained agents, whose heads begin at 0: in Catch, and in a process that is no picture."""
    here = tmp_path_factory.mktemp("runs")
    tiny = {"network": {"kind": "mlp", "width": 8, "head_width": 0}, "muesli": {"bins": 5, "unroll": 2}}
    agents.save(agents.untrained(from_tree({"env": "gymnax/Catch-bsuite", **tiny}), (3, 4)), here / "catch")
    agents.save(agents.untrained(from_tree({"env": "garnet", **tiny})), here / "garnet")
    return here


@pytest.fixture
def here(runs, tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("runs").symlink_to(runs)
    return tmp_path


def contents() -> set[Path]:
    return set(Path().rglob("*")) | set(Path("runs/").rglob("*"))


def test_the_command_prints_a_table_and_draws_a_film(here, capsys) -> None:
    before = contents()
    words = "imagine runs/catch --agent 4 --episodes 2 --depth 3 --step 7 --render film.gif"
    assert main(shlex.split(words)) == 0
    told = capsys.readouterr()
    header, *rows = told.out.splitlines()
    assert re.split("  +", header) == ["k", *(name.replace("_", " ") for name in COLUMNS)]
    # Nine steps; heads of 0 are wrong by what the episode pays in the end alone: 1 or -1, and that discounted.
    assert rows[0].split()[:3] == ["0", "0", "-"]
    assert [row.split()[0] for row in rows[:4]] == ["0", "1", "2", "3"]
    assert [row.split()[2] for row in rows[1:4]] == ["0", "0", "0"]
    np.testing.assert_allclose([float(row.split()[4]) for row in rows[1:4]], [1 / 9] * 3, rtol=1e-3)
    assert "means over 18 steps of 2 episode(s)\n" in told.out
    assert "in training the model was unrolled 2 steps" in told.out
    assert told.out.endswith("wrote film.gif\n")
    assert told.err.splitlines()[0] == "seed 4: 2 episode(s), 3 imagined steps from every real one"
    with Image.open("film.gif") as film:
        assert film.n_frames == 2
    assert contents() == before | {Path("film.gif")}


def test_a_model_that_shows_the_board_is_drawn_with_it(here, monkeypatch) -> None:
    tiny = {"network": {"kind": "mlp", "width": 8, "head_width": 0}}
    muesli = {"bins": 5, "unroll": 2, "reconstruct": 2}
    agents.save(agents.untrained(from_tree({"env": "pgx/tic_tac_toe", **tiny, "muesli": muesli})), here / "game")
    drawn = []
    monkeypatch.setattr(imagination_figure, "draw", lambda scene, *_: drawn.append(scene) or b"")
    assert main(shlex.split("imagine game --episodes 1 --render step.png")) == 0
    assert drawn[0].shown.shape == (2, len(drawn[0].imagined.acted), *drawn[0].frames.shape[1:])
    assert drawn[0].came.shape == drawn[0].shown.shape
    monkeypatch.setattr(imagine, "pictures", lambda *_: None)  # as of observations that are no picture
    assert main(shlex.split("imagine game --episodes 1 --render another.png")) == 0
    assert drawn[1].shown is drawn[1].came is None


def test_what_is_no_picture_is_drawn_without_frames(here, capsys) -> None:
    assert main(shlex.split("imagine runs/garnet --episodes 1 --max-steps 4 --render step.png")) == 0
    told = capsys.readouterr()
    assert "garnet is drawn without its frames" in told.err
    assert "drew step 2 of an episode of 4 steps" in told.err
    assert "1 ended by a limit of time" in told.out
    with Image.open("step.png") as picture:
        assert picture.format == "PNG"


@pytest.mark.parametrize(
    ("words", "cure"),
    [
        ("DIR", "give one that train or export wrote, or a shipped agent"),
        ("runs/catch --agent 5", "choose from 3, 4"),
        ("runs/catch --step 1", "add --render"),
        ("runs/catch --render film.mp4", ".gif"),
        ("runs/catch --render nowhere/film.gif", "nowhere is not a directory: make it"),
        ("runs/catch --depth 0", "--depth"),
        ("runs/catch hyper.discount=0.5", "only env_options"),
    ],
)
def test_mistakes_are_one_line_and_write_nothing(here, capsys, words, cure) -> None:
    before = contents()
    assert main(["imagine", *shlex.split(words)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines()[-1].startswith("purejax-sc: ")
    assert cure in told.err
    assert contents() == before


def test_environments_on_the_host_are_refused(monkeypatch, capsys) -> None:
    atari = agents.Agents(from_tree({"env": "atari/Pong", "network": {"kind": "impala"}}), [0], ())
    monkeypatch.setattr(imagine, "load_agents", lambda directory, say: atari)
    assert main(["imagine", "."]) == 2
    assert "runs on the host and cannot be compiled" in capsys.readouterr().err
