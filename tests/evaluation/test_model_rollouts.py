"""Model rollouts beside real episodes: in a corridor and a game whose every number is known, and the command."""

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
from helpers.table_models import STATES, table_model, tables

from purejax_sc.cli.commands import main
from purejax_sc.config import Config, from_tree
from purejax_sc.evaluation import model_rollouts
from purejax_sc.evaluation.model_rollouts import COLUMNS, ImaginationOptions, Imagined
from purejax_sc.evaluation.players import make_choice
from purejax_sc.types import Env, EnvSpec, Params, Step

GAMMA = 0.5
CONFIG = from_tree({"env": "garnet", "hyper": {"discount": GAMMA}})
GO_ON = [[0, 9]] * 3  # logits by state: always action 1
STAY = [[9, 0]] * 3
# Of going on, with rewards 1, 2 and 3: v(2) = 3, v(1) = 2 + 3 / 2, v(0) = 1 + 3.5 / 2.
VALUES = [2.75, 3.5, 3.0, 0.0]
MODEL = table_model()._replace(encode=lambda encoder, obs, carry: (obs.frame, carry))


def first_alone(x: Imagined) -> Imagined:
    """The first environment's steps that count, without the axis N."""
    steps = int(x.acted[:, 0].sum())
    return Imagined(*(value[..., :steps, 0] for value in x))


def agent(values=VALUES, rewards=REWARDS, logits=GO_ON, root_values=VALUES, root_logits=GO_ON) -> Params:
    """Right root heads and a right model, both of which go on, but for what is given."""
    root = tables(SUCCESSORS, REWARDS, root_values, root_logits)
    own = tables(SUCCESSORS, rewards, values, logits)
    return own._replace(root_value=root.root_value, root_policy=root.root_policy)


def look(
    params: Params, env: Env | None = None, config: Config = CONFIG, **options: Any
) -> tuple[Imagined, dict[str, list[float]]]:
    """Play in the corridor, three steps and one whose outcome is unknown, imagine two steps, and the means by k."""
    env = env or corridor()
    how = ImaginationOptions(steps=4, envs=2, depth=2)._replace(**options)
    choose = make_choice(config, MODEL, env.spec, "sampled" if how.sampled else "greedy")

    def numbers(params):
        played = model_rollouts.collect(env, MODEL, params, choose, jax.random.key(0), how.steps, how.envs)
        found = model_rollouts.imagine(MODEL, params, env.spec, played, jax.random.key(1), config, how)
        return found, model_rollouts.errors_by_k(found)

    found, by_k = jax.device_get(jax.jit(numbers)(params))
    return found, {name: by_k[name].tolist() for name in COLUMNS}


def test_where_model_and_values_are_right_everything_agrees() -> None:
    found, by_k = look(agent())
    assert found.acted.sum(axis=0).tolist() == [3, 3]
    assert by_k == {
        "sc_error": [0, 0, pytest.approx(np.nan, nan_ok=True)],
        "value_gap": [pytest.approx(np.nan, nan_ok=True), 0, 0],
        "return_gap": [0, 0, 0],
        "reward_error": [pytest.approx(np.nan, nan_ok=True), 0, 0],
    }
    # From state 0: rewards 1 and 2, values on the way, and after the end nothing.
    first = first_alone(found)
    np.testing.assert_array_equal(first.value, [[2.75, 3.5, 3], [3.5, 3, 0], [3, 0, 0]])
    np.testing.assert_array_equal(first.target, [[2.75, 3.5, 3], [3.5, 3, 0]])
    np.testing.assert_array_equal(first.reward, [[1, 2, 3], [2, 3, 0]])
    np.testing.assert_array_equal(first.real_reward, first.reward)
    np.testing.assert_array_equal(first.real_return, first.value)


def test_a_model_whose_values_are_off_differs_from_what_comes_and_from_itself() -> None:
    _, by_k = look(agent(values=[3.25, 4.0, 3.5, 0.5]))
    assert by_k["value_gap"][1:] == by_k["return_gap"][1:] == [0.5, 0.5]
    assert by_k["reward_error"][1:] == [0, 0]
    # G_{0:2} bears 0.5 / 4 too much against a right root value; v^1 0.5 and G_{1:2} 0.5 / 2.
    assert by_k["sc_error"][:2] == [0.125, 0.25]


def test_a_model_may_keep_the_last_reward_as_a_value() -> None:
    config = from_tree({"env": "garnet", "hyper": {"discount": 1.0}, "muesli": {"terminal_value": "outcome"}})
    values = [6.0, 5.0, 3.0, 3.0]
    kept = agent(values=values, rewards=[[0, 1], [0, 2], [0, 0]], root_values=values)
    found, by_k = look(kept, config=config)
    for name in ("value_gap", "return_gap", "reward_error"):
        assert by_k[name][1:] == [0, 0], name
    assert by_k["sc_error"][:2] == [0, 0]
    first = first_alone(found)
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


def test_imagined_actions_may_be_those_really_taken() -> None:
    # The policy of the model stays where it is, after the first action, which is the root policy's.
    _, by_k = look(agent(logits=STAY))
    # v^2 is that of states 1, 2 and 3, and not of 2, 3 and 3; only of the last state it is really reached.
    np.testing.assert_allclose(by_k["value_gap"][1:], [0, (0.5 + 3 + 0) / 3], rtol=1e-6)
    assert look(agent(logits=STAY), real_actions=True)[1]["value_gap"][1:] == [0, 0]


def test_samples_are_of_the_policy_and_greed_takes_its_best() -> None:
    # Even logits: half of the first imagined actions go on, which pays 1, and illegal ones are never among them.
    even = agent(logits=[], root_logits=[])
    found, _ = look(even, envs=800, steps=2, sampled=True)
    assert set(found.reward[0, 0].tolist()) == {0, 1}
    np.testing.assert_allclose(found.reward[0, 0].mean(), 0.5, atol=0.05)
    assert look(even)[0].reward[0].max() == 0


def test_where_play_stops_the_last_root_value_stands_for_the_rest() -> None:
    found, by_k = look(agent(logits=STAY, root_logits=STAY))
    first = first_alone(found)
    assert len(first.acted) == 3
    # It stays in state 0, for nothing: 2.75 after three steps, and nobody knows what comes then.
    np.testing.assert_allclose(first.real_return[0], [2.75 / 8, 2.75 / 4, 2.75 / 2], rtol=1e-6)
    np.testing.assert_array_equal(first.real_value, [[2.75] * 3, [2.75, 2.75, np.nan], [2.75, np.nan, np.nan]])
    assert by_k["value_gap"][1:] == [0, 0]


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
    found, by_k = look(params, duel(), steps=2)
    first = first_alone(found)
    np.testing.assert_array_equal(first.value, [[-0.5, 1], [1, 0], [0, 0]])
    np.testing.assert_array_equal(first.real_return, first.value)
    np.testing.assert_array_equal(first.target, [[-0.5, 1], [1, 0]])
    assert by_k["sc_error"][:2] == [0, 0]
    assert by_k["return_gap"] == [0, 0, 0]


# The command


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Untrained agents of Catch, whose heads begin at 0."""
    tree = {
        "env": "gymnax/Catch-bsuite",
        "network": {"kind": "mlp", "width": 8, "head_width": 0},
        "muesli": {"bins": 5, "unroll": 2},
    }
    here = tmp_path_factory.mktemp("runs")
    agents.save(agents.untrained(from_tree(tree), (3, 4)), here / "Catch-bsuite")
    return here


@pytest.fixture
def here(runs, tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("runs").symlink_to(runs)
    return tmp_path


def contents() -> set[Path]:
    return set(Path().rglob("*")) | set(Path("runs/").rglob("*"))


def test_the_command_prints_a_table_and_writes_nothing(here, capsys) -> None:
    before = contents()
    words = "imagine runs/Catch-bsuite --agent 4 --envs 2 --steps 27 --depth 3"
    assert main(shlex.split(words)) == 0
    told = capsys.readouterr()
    header, *rows = told.out.splitlines()
    assert re.split("  +", header) == ["k", *(name.replace("_", " ") for name in COLUMNS)]
    # Episodes of nine steps; heads of 0 are wrong only by what each pays at its end: 1 or -1, discounted.
    assert rows[0].split()[:3] == ["0", "0", "-"]
    assert [row.split()[0] for row in rows[:4]] == ["0", "1", "2", "3"]
    assert [row.split()[2] for row in rows[1:4]] == ["0", "0", "0"]
    np.testing.assert_allclose([float(row.split()[4]) for row in rows[1:4]], [1 / 9] * 3, rtol=1e-3)
    assert "means over 27 steps of 2 environments\n" in told.out
    assert told.err.splitlines()[0] == "seed 4: 3 imagined steps from 27 of 2 environments"
    assert contents() == before


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ("DIR", "give one that train or export wrote, or a shipped agent"),
        ("runs/Catch-bsuite --agent 5", "choose from 3, 4"),
        ("runs/Catch-bsuite --depth 0", "--depth"),
        ("runs/Catch-bsuite hyper.discount=0.5", "only env_options"),
    ],
)
def test_mistakes_are_one_line_and_write_nothing(here, capsys, words, advice) -> None:
    before = contents()
    assert main(["imagine", *shlex.split(words)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines()[-1].startswith("purejax-sc: ")
    assert advice in told.err
    assert contents() == before


def test_environments_on_the_host_are_refused(monkeypatch, capsys) -> None:
    atari = agents.Agents(from_tree({"env": "atari/Pong", "network": {"kind": "impala"}}), [0], (), ())
    monkeypatch.setattr(model_rollouts, "load_agents", lambda directory, say: atari)
    assert main(["imagine", "."]) == 2
    assert "runs on the host and cannot be compiled" in capsys.readouterr().err
