"""The public names, and a trained agent from Python: the same numbers as everywhere else."""

import inspect
import re
from functools import partial
from pathlib import Path

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import agents

import purejax_sc
from purejax_sc import Agent, Config, ConfigError, RunError, load, load_agent, load_learner, make_train
from purejax_sc.agent.search import SearchOptions
from purejax_sc.cli.commands import main
from purejax_sc.config import from_tree
from purejax_sc.envs import base
from purejax_sc.evaluation.players import make_choice
from purejax_sc.runs.agents import load_agents

RECURRENT = {"kind": "impala", "width": 8, "model_width": 8, "channels": (4,), "head_width": 0}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "smoke"
    assert main(["train", "smoke", "train.env_steps=64", "train.log_points=1", "--quiet", "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def two_seeds(tmp_path_factory) -> Path:
    config = from_tree({"env": "gymnax/Catch-bsuite", "network": {"kind": "mlp", "width": 4, "head_width": 0}})
    return agents.save(agents.two_minds(config, (3, 4)), tmp_path_factory.mktemp("two_seeds"))


def observe(env, batch: int) -> purejax_sc.types.Observation:
    return jax.jit(lambda key: base.init(env, key, batch).obs)(jax.random.key(1))


def test_public_names_are_there_and_documented() -> None:
    table = re.findall(r"^    (\S.*?)  ", inspect.cleandoc(purejax_sc.__doc__ or ""), re.MULTILINE)
    documented = set(re.findall(r"\w+", " ".join(table)))
    for name in purejax_sc.__all__:
        assert getattr(purejax_sc, name) is not None
        assert name in dir(purejax_sc)
        assert name in documented


def test_an_agent_is_what_training_left(run) -> None:
    agent, trained = load_agent(str(run)), load_agents(run, print)
    assert agent.config == trained.config
    assert agent.seed == trained.seeds[0] == 0
    assert agent.spec == agent.make_env().spec
    for mine, theirs in zip(jax.tree.leaves(agent.params), jax.tree.leaves(trained.learner.target), strict=True):
        np.testing.assert_array_equal(mine, theirs[0])


def test_actions_are_those_of_evaluation(run) -> None:
    agent = load_agent(run)
    obs, key = observe(agent.make_env(), 7), jax.random.key(2)
    given = agent.config, agent.model, agent.spec
    choices = {name: make_choice(*given, name) for name in ("greedy", "sampled")}
    choices["search"] = make_choice(*given, search=SearchOptions(4, "gumbel"))

    @jax.jit
    def all_choices(params):
        e, _ = agent.model.encode(params.encoder, jax.tree.map(lambda x: x[None], obs), ())
        return {name: choose(params, e[0], obs.legal, key) for name, choose in choices.items()}

    expected = all_choices(agent.params)
    for name, greedy in (("greedy", True), ("sampled", False)):
        action, carry = jax.jit(partial(agent.act, greedy=greedy))(obs, agent.initial_carry(7), key)
        np.testing.assert_array_equal(action, expected[name])
        assert action.dtype == jnp.int32
        assert carry == ()
    found, _ = jax.jit(partial(agent.search, simulations=4, kind="gumbel"))(obs, (), key)
    np.testing.assert_array_equal(found.action, expected["search"])
    np.testing.assert_allclose(np.sum(found.weights, axis=-1), 1.0, rtol=1e-5)
    assert found.value.shape == (7,)


def test_a_seed_is_chosen_by_its_number(two_seeds) -> None:
    assert load_agent(two_seeds).seed == 3
    assert load_agent(two_seeds, seed=4).seed == 4
    with pytest.raises(RunError, match="has no seed 7: choose from 3, 4"):
        load_agent(two_seeds, seed=7)
    with pytest.raises(RunError, match="give one that train or export wrote"):
        load_agent(two_seeds / "nothing")


def test_the_prior_acts_where_it_did_in_training(two_seeds) -> None:
    agent = load_agent(two_seeds)  # zeros, but for a logit of 1 for action 1 in the target network, which is the prior
    obs, keys = observe(agent.make_env(), 1), jax.random.split(jax.random.key(0), 2_000)
    assert jax.jit(agent.act)(obs, (), keys[0])[0].tolist() == [1]
    drawn = jax.jit(jax.vmap(lambda key: agent.act(obs, (), key, greedy=False)[0][0]))(keys)
    # e / (2 + e) = 0.576, with a standard error of 0.011
    assert abs(np.mean(np.asarray(drawn) == 1) - 0.576) < 0.04


def test_an_agent_is_a_tree_of_its_parameters(two_seeds) -> None:
    agent = load_agent(two_seeds)
    other = jax.tree.map(lambda x: -x, agent)
    obs, traced = observe(agent.make_env(), 1), []

    @jax.jit
    def act(agent, *args):
        traced.append(agent)
        return agent.act(*args)

    assert act(agent, obs, (), jax.random.key(0))[0].tolist() == [1]
    assert act(other, obs, (), jax.random.key(0))[0].tolist() == [0]  # now action 1 is the least likely
    assert len(traced) == 1


def test_a_recurrent_agent_hands_on_what_it_remembers(tmp_path) -> None:
    config = from_tree({"env": "gymnax/Breakout-MinAtar", "network": RECURRENT})
    agent = load_agent(agents.save(agents.untrained(config), tmp_path / "run"))
    obs, carry = observe(agent.make_env(), 2), agent.initial_carry(2)
    act, search = jax.jit(agent.act), jax.jit(partial(agent.search, simulations=1))
    _, once = act(obs, carry, jax.random.key(0))
    _, searched = search(obs, carry, jax.random.key(0))
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-6), once, searched)
    _, twice = act(obs._replace(first=np.zeros(2, bool)), once, jax.random.key(0))
    assert any(np.any(one != two) for one, two in zip(jax.tree.leaves(once), jax.tree.leaves(twice), strict=True))


def test_evaluate_from_python_writes_the_report(two_seeds) -> None:
    searches = (purejax_sc.SearchOptions(2),)
    report = purejax_sc.evaluate(str(two_seeds), purejax_sc.EvaluationOptions(episodes=2, searches=searches))
    assert list(report["policies"]) == ["greedy", "sampled", "search"]
    assert report["policies"]["greedy"]["per_seed"]["length"] == [9.0, 9.0]
    assert (two_seeds / "evaluation.json").is_file()


def test_what_cannot_be_configured_is_a_public_error() -> None:
    with pytest.raises(ConfigError, match="did you mean"):
        purejax_sc.load("smoke", ["hyper.sc_wieght=1"])
    with pytest.raises(ConfigError, match=r"^env=3: Input should be a valid string$"):
        Config(env=3)


@pytest.mark.parametrize(
    "overrides", ["sc.unroll=4", ["seed=0", "sc.unroll=4"], {"sc.unroll": 4}, {"sc": {"unroll": 4}}]
)
def test_overrides_are_one_text_several_or_a_dict(overrides) -> None:
    assert load("smoke", overrides) == load("smoke", "seed=0", "sc.unroll=4")


@pytest.mark.parametrize("env", ["gymnax/CartPole-v1", gymnax.make("CartPole-v1")[0]])
def test_environments_are_given_by_name_or_as_gymnax_has_them(env) -> None:
    state, _ = jax.eval_shape(make_train("smoke", env), jax.random.key(0))
    assert state.driver.obs.frame.shape == (8, 4)


def test_what_is_no_environment_and_no_number_is_one_line() -> None:
    with pytest.raises(ConfigError, match="the environment is a tuple: let it be a"):
        make_train("smoke", gymnax.make("CartPole-v1"))
    with pytest.raises(ConfigError, match=r"hyper\.sc_wieght.*did you mean"):
        jax.eval_shape(make_train("smoke"), jax.random.key(0), {"sc_wieght": 1.0})


def test_an_agent_of_a_state_and_a_state_of_a_checkpoint(run) -> None:
    """Rows of a batch of states are agents. Training goes on from a checkpoint's learner."""
    trainer = purejax_sc.make_trainer("smoke")
    states = jax.jit(jax.vmap(trainer.init))(jax.random.split(jax.random.key(0), 2))
    one, other = (Agent.from_state("smoke", jax.tree.map(lambda x, i=i: x[i], states)) for i in range(2))
    assert any(np.any(x != y) for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))
    obs = observe(one.make_env(), 2)
    assert one.act(obs, one.initial_carry(2), jax.random.key(0))[0].shape == (2,)
    learner = load_learner(run)
    assert learner.updates == 1
    jax.tree.map(np.testing.assert_array_equal, learner.target, load_agent(run).params)
    state = jax.tree.map(lambda x: x[0], states)._replace(learner=learner)
    assert jax.jit(trainer.iterate)(state, load("smoke").hyper)[0].learner.updates == 2


def test_what_is_printed_fits_a_screen(run) -> None:
    assert repr(load("smoke", "seed=3")).startswith("Config(env='gymnax/Catch-bsuite', seed=3, network=")
    assert "learning_rate=0.5" in repr(load("smoke", "hyper.learning_rate=0.5"))
    assert all(len(repr(load(path.stem))) < 1_000 for path in purejax_sc.config.CONFIG_DIR.glob("*.yaml"))
    assert re.fullmatch(
        r"Agent\(env='gymnax/Catch-bsuite', seed=0, sc.update=direct, [\d,]+ numbers\)", repr(load_agent(run))
    )
