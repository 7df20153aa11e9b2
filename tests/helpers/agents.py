"""Agents without training, and run directories that hold them."""

from pathlib import Path

import jax
import numpy as np

from purejax_sc import networks
from purejax_sc.agent import muesli
from purejax_sc.config import Config
from purejax_sc.envs import make_env
from purejax_sc.runs import checkpoint
from purejax_sc.runs.agents import Agents, spec_to_tree
from purejax_sc.runs.directory import Run
from purejax_sc.training.train_state import TrainState
from purejax_sc.types import Env


def untrained(config: Config, seeds: tuple[int, ...] = (0,), env: Env | None = None) -> Agents:
    """Learners as training would begin with them, one per seed."""
    init, keys = _initialiser(config, env), [jax.random.key(seed) for seed in seeds]
    learner = jax.device_get(jax.jit(jax.vmap(init))(jax.numpy.stack(keys)))
    return Agents(config, list(seeds), learner, (env or make_env(config)).spec)


def two_minds(config: Config, seeds: tuple[int, ...] = (3, 4), env: Env | None = None, preferred: int = 1) -> Agents:
    """Parameters of zeros, but that the target network, which acts, prefers an action by a logit of 1, and the online
    network the other one of 0 and 1."""
    shapes = jax.eval_shape(_initialiser(config, env), jax.random.key(0))
    learner = jax.tree.map(lambda x: np.zeros((len(seeds), *x.shape), x.dtype), shapes)
    for action, params in ((1 - preferred, learner.params), (preferred, learner.target)):
        params.root_policy["params"]["Dense_0"]["bias"][:, action] = 1.0
    return Agents(config, list(seeds), learner, (env or make_env(config)).spec)


def save(agents: Agents, directory: Path) -> Path:
    """A directory with a checkpoint as `train` writes it, for whoever needs its learner only."""
    states = TrainState(agents.learner, (), (), (), (), jax.random.split(jax.random.key(0), len(agents.seeds)))
    directory.mkdir(parents=True, exist_ok=True)
    facts = {"run_seconds": 0.0, "metrics": "", "program": ["."], "spec": spec_to_tree(agents.spec)}
    checkpoint.save(Run(agents.config, agents.seeds, directory), 0, states, facts)
    return directory


def _initialiser(config: Config, env: Env | None):
    spec = (env or make_env(config)).spec
    return muesli.make_learner(config, networks.make_model(config, spec), spec).init
