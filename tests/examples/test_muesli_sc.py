"""The agent in one file against the library: the same update for the same parameters and batch, and it learns."""

import importlib.util
import sys
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purejax_sc import Params, load
from purejax_sc.agent import muesli
from purejax_sc.envs import make_env
from purejax_sc.networks import make_model
from purejax_sc.types import Observation, Sequence

PATH = Path(__file__).parents[2] / "examples" / "muesli_sc.py"
PRESETS = {"catch": "Args", "minatar_breakout": "MINATAR"}


@pytest.fixture(scope="module")
def example():
    """The example as a module, under the promotion rules of a user's program."""
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        spec = importlib.util.spec_from_file_location("muesli_sc", PATH)
        module = sys.modules["muesli_sc"] = importlib.util.module_from_spec(spec)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of TensorFlow Probability, which distrax imports
            spec.loader.exec_module(module)
        yield module
        del sys.modules["muesli_sc"]


def to_example(params: Params):
    """The library's parameters in the example's tree."""
    encoder, dynamics = params.encoder["params"]["torso"], params.dynamics["params"]
    convs = sorted(name for name in encoder if name.startswith("Conv"))
    places = [2 * i for i in range(len(convs))]  # of layers with parameters: convolution, relu, ..., flatten, Dense
    places += [2 * len(convs) + 1, 2 * len(convs) + 3]
    layers = {f"layers_{i}": encoder[x] for i, x in zip(places, [*convs, "Dense_0", "Dense_1"], strict=True)}
    heads = ("reward", "value", "root_value", "policy", "root_policy")
    model = {"from_z": dynamics["Dense_0"], "from_a": dynamics["Dense_1"], "to_z": dynamics["Dense_2"]}
    return {"params": {"encoder": layers, **model, **{x: getattr(params, x)["params"]["Dense_0"] for x in heads}}}


def sequences(spec, num_steps, num_sequences):
    """A random batch of the library with two ends of episodes."""
    key_obs, key_logits, key_action, key_reward = jax.random.split(jax.random.key(0), 4)
    shape = (num_steps, num_sequences)
    frame = jax.random.bernoulli(key_obs, 0.3, (num_steps + 1, num_sequences, *spec.obs_shape)).astype(spec.obs_dtype)
    logits = jax.random.normal(key_logits, (*shape, spec.num_actions))
    discount = jnp.ones(shape).at[1, 0].set(0.0).at[4, 1].set(0.0)
    zeros, true = jnp.zeros((num_steps + 1, num_sequences)), jnp.ones((num_steps + 1, num_sequences), bool)
    legal = jnp.ones((*true.shape, spec.num_actions), bool)
    obs = Observation(frame, legal, zeros.astype(jnp.int32), zeros, ~true, true)
    action, reward = jax.random.categorical(key_action, logits), jax.random.normal(key_reward, shape)
    return Sequence(obs, action, logits, reward, discount, ())


def learner_states(config, env, batch, num_updates):
    """The library's state before, with parameters that are not zero anywhere, and after some updates."""
    model = make_model(config, env.spec)
    learner = muesli.make_learner(config, model, env.spec)
    before = learner.init(jax.random.key(1))
    leaves, structure = jax.tree.flatten(before.params)
    noise = [0.1 * jax.random.normal(jax.random.key(i), x.shape) for i, x in enumerate(leaves)]
    params = structure.unflatten([x + y for x, y in zip(leaves, noise, strict=True)])
    before = before._replace(params=params, target=jax.tree.map(lambda x: 0.9 * x + 0.01, params))
    after, step = before, jax.jit(learner.update)
    for i in range(num_updates):
        after, _ = step(after, batch, jax.random.key(i), jax.tree.map(jnp.float32, config.hyper))
    return before, after


def likeliest(key, logits, axis=-1, shape=None, **options):
    """In place of a sample, so that two programs need not draw alike."""
    action = jnp.argmax(logits, axis=axis)
    return action if shape is None else jnp.broadcast_to(action, shape)


def assert_agree(one, other):
    """Adam divides a gradient by its size, which magnifies rounding where there is next to none: in few parameters."""
    errors = jax.tree.map(lambda x, y: np.abs(x - y).ravel(), one, other)
    errors = np.concatenate(jax.tree.leaves(errors))
    assert np.mean(errors > 1e-5) < 1e-4
    assert errors.max() < 1e-3


def check_updates(example, monkeypatch, name, update, num_updates=2):
    """Two updates by the example lead from the library's parameters to the library's parameters."""
    args = getattr(example, PRESETS[name])
    args = (args() if callable(args) else args)._replace(update=update)
    # the file has the paper's even bins
    bins = [f"muesli.bins={args.bins}", f"muesli.value_max={args.bins_max}", "muesli.spacing=even"]
    config = load(name, [f"sc.update={update}", *bins])
    monkeypatch.setattr(jax.random, "categorical", likeliest)
    env = make_env(config)
    batch = sequences(env.spec, config.train.sequence_length, 3)
    before, after = learner_states(config, env, batch, num_updates)

    init, step = example.make_learner(args, example.Network(env.spec.num_actions, args))
    state = init(jax.random.key(0), batch.obs.frame[0])
    state = state._replace(params=to_example(before.params), target=to_example(before.target))
    given, step = example.Batch(batch.obs.frame, *batch[1:5]), jax.jit(step)
    for i in range(num_updates):
        state, _ = step(state, given, jax.random.key(i))

    moved = jax.tree.map(lambda x, y: np.abs(x - y).max(), before.params, after.params)
    assert min(jax.tree.leaves(moved)) > 1e-5, "a part of the library's network has not moved"
    assert_agree(state.params, to_example(after.params))
    assert_agree(state.target, to_example(after.target))


def test_updates_equal_those_of_the_library(example, monkeypatch):
    check_updates(example, monkeypatch, "catch", "direct")


@pytest.mark.slow
def test_updates_of_minatar_equal_those_of_the_library(example, monkeypatch):
    check_updates(example, monkeypatch, "minatar_breakout", "direct", num_updates=1)


@pytest.mark.slow
def test_learns_catch(example):
    args = example.Args(update="direct")
    _, metrics = jax.jit(example.make_train(args))(jax.random.key(0))
    last = slice(-args.num_updates // 10, None)
    assert metrics["return_sum"][last].sum() / metrics["episodes"][last].sum() > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("update", ["none", "residual", "reverse", "dyna", "model_only"])
def test_other_updates_equal_those_of_the_library(example, monkeypatch, update):
    check_updates(example, monkeypatch, "catch", update)
