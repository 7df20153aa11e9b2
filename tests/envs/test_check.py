"""The check of an environment of one's own: each mistake gives one line with the function and the field."""

from pathlib import Path

import jax.numpy as jnp
import pytest
from gymnax.environments.bsuite.catch import Catch
from helpers.corridor import corridor

from purejax_sc import check_env, load
from purejax_sc.cli.commands import main
from purejax_sc.config import ConfigError
from purejax_sc.envs import make_env
from purejax_sc.types import Env

NUMBER = jnp.float32


def shows(function, **fields):
    """The same function, whose steps have other fields: values, or functions of the step."""

    def changed(*arguments):
        state, shown = function(*arguments)
        return state, shown._replace(**{name: x(shown) if callable(x) else x for name, x in fields.items()})

    return changed


def changed_step(**fields) -> Env:
    return corridor()._replace(step=shows(corridor().step, **fields))


def changed_spec(**fields) -> Env:
    return corridor()._replace(spec=corridor().spec._replace(**fields))


def named(metric: str) -> Env:
    init, step = (shows(function, metrics={metric: NUMBER(0)}) for function in (corridor().init, corridor().step))
    return corridor()._replace(init=init, step=step)


def test_an_environment_that_keeps_to_the_protocol_passes() -> None:
    check_env(corridor())
    check_env(changed_step(reward=1.0, metrics={}))  # a Python float is a float32
    check_env(named("win rate"))


@pytest.mark.parametrize(
    ("env", "line"),
    [
        (changed_spec(num_actions=1.5), "e: spec.num_actions is 1.5: let it be a whole number from 2"),
        (changed_spec(obs_shape=[4]), "e: spec.obs_shape is [4]: let it be a tuple of whole numbers"),
        (changed_spec(obs_dtype="text"), "e: spec.obs_dtype is 'text': let it be the dtype of bool, uint8 or float32"),
        (changed_step(reward=lambda x: x.reward.astype(int)), "e: step: reward is int32[]: let it be float32[]"),
        (changed_step(reward=lambda x: x.reward[None]), "e: step: reward is float32[1]: let it be float32[]"),
        (changed_step(truncated=jnp.int32(0)), "e: step: truncated is int32[]: let it be bool[]"),
        (changed_step(legal=jnp.ones(4, bool)), "e: step: legal is bool[4]: let it be bool[3]"),
        (changed_step(obs={"a": jnp.ones(4)}), "e: step: obs is {'a': float32[4]}: let it be float32[6]"),
        (changed_step(metrics={"a": 1}), "e: step: metrics is {'a': int32[]}: let it be a dict of float32[]"),
        (changed_step(metrics={"a": NUMBER(1)}), "e: step: metrics is {'a': float32[]}: let it be {}, as after init"),
        (named("length"), "e: init: a metric cannot be called 'length': give it another name, such as 'wins'"),
        (named("wins,losses"), "a metric cannot be called 'wins,losses': give it another name, such as 'wins'"),
        (
            corridor()._replace(step=lambda key, state, action: (state.astype(NUMBER), corridor().init(key, ())[1])),
            "e: step: the state is float32[]: let it be int32[], as after init",
        ),
        (
            corridor()._replace(init=lambda key, shared: {"state": 0}),
            "e: init returned dict: let it return (state, purejax_sc.Step)",
        ),
        (
            corridor()._replace(step=lambda state, action: state),
            "e: step raised TypeError: <lambda>() takes 2 positional arguments but 3 were given",
        ),
    ],
)
def test_shapes_are_looked_at(env: Env, line: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_env(env, "e")
    assert str(error.value).endswith(line)


@pytest.mark.parametrize(
    ("env", "line"),
    [
        (
            corridor()._replace(init=shows(corridor().init, discount=lambda x: 0 * x.discount)),
            "the environment: init: discount is not 1.0 where an episode begins",
        ),
        (
            changed_step(discount=lambda x: 0.9 * x.discount),
            "the environment: step: discount is neither 1.0, nor 0 as at an end",
        ),
        (
            corridor()._replace(init=shows(corridor().init, truncated=jnp.bool(True))),
            "the environment: init: truncated is True where an episode begins",
        ),
        (changed_step(legal=lambda x: x.legal & False), "the environment: step: legal is False for every action"),
        (changed_step(reward=lambda x: x.reward / 0), "the environment: step: reward is not finite"),
        (changed_step(player=jnp.int32(1)), "the environment: step: player is not 0"),
        (
            changed_step(truncated=lambda x: x.discount == 0),
            "the environment: step: truncated is True where the discount is 0",
        ),
        (changed_spec(two_player=True), "the environment: init: discount is not -1.0 where an episode begins"),
    ],
)
def test_what_shapes_do_not_tell_is_found_by_playing(env: Env, line: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_env(env)
    assert str(error.value) == line


OWN = """
import jax
import jax.numpy as jnp
from gymnax.environments.bsuite.catch import Catch

CATCH = Catch()

def make_broken(config):
    return mistake

def make_text(config):
    return "text"

def make_stray(config):
    from helpers.corridor import corridor
    return corridor()._replace(init=lambda key, shared: jax.vmap(lambda x: jnp.zeros(3) + jnp.zeros(4))(jnp.zeros(2)))
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_envs.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize("name", ["gymnax.environments.bsuite.catch:Catch", "own_envs:CATCH"])
def test_a_class_or_an_environment_of_gymnax_is_one(own, name: str) -> None:
    env = make_env(load("smoke", [f"env={name}"]))
    assert env.spec.obs_shape == Catch().observation_space(Catch().default_params).shape
    check_env(env)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("make_broken", " raised NameError: name 'mistake' is not defined"),
        ("make_stray", ": init raised TypeError: add got incompatible shapes for broadcasting: (3,), (4,)."),
    ],
)
def test_an_error_in_a_function_of_the_user_shows_its_own_traceback_and_one_line(own, capsys, name, words) -> None:
    assert main(["train", "smoke", f"env=own_envs:{name}"]) == 2
    shown = capsys.readouterr().err
    assert "own_envs.py" in shown
    assert "purejax_sc/" not in shown
    assert "pjit.py" not in shown  # of JAX, which leaves some frames of its NumPy
    assert shown.endswith(f"purejax-sc: env='own_envs:{name}'{words}\n")


def test_what_makes_no_environment_is_refused(own) -> None:
    with pytest.raises(ConfigError, match=r"env=.own_envs:make_text. is a str: let it be a purejax_sc\.Env"):
        make_env(load("smoke", ["env=own_envs:make_text"]))
