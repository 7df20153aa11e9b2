"""A trained agent in Python."""

import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from purejax_sc import networks
from purejax_sc.agent.search import Kind, SearchOptions, SearchResult, make_search
from purejax_sc.config import Config, as_config
from purejax_sc.envs import as_env, make_env
from purejax_sc.envs.episodes import encode
from purejax_sc.evaluation.players import make_choice
from purejax_sc.runs.agents import load_agents, row_of, take_row
from purejax_sc.training.train_state import AnyState
from purejax_sc.types import Array, Env, EnvSpec, Key, LearnerState, Model, Observation, Params, Tree


@partial(jax.tree_util.register_dataclass, data_fields=["params"], meta_fields=["config", "model", "spec", "seed"])
@dataclass(frozen=True, eq=False)
class Agent:
    """The agent of one seed of a run. Its methods are pure functions of arrays, for `jit` and `vmap`.

    Attributes:
      params: of the target network, which acted in training. They are the leaves of the agent, which is a pytree: a
        compiled function takes another agent of the same run without compiling again.
      config, seed: of the run, and of the agent in it.
      model: the network as functions of parameters.   spec: of its observations and actions.

    B environments act at once. docs/python.md plays an episode; `envs.episodes.play` plays many in one program.
    """

    params: Params
    config: Config
    model: Model
    spec: EnvSpec
    seed: int

    @classmethod
    def from_state(cls, config: Config | str, state: AnyState, env: Any = None, model: Model | None = None) -> "Agent":
        """Return the agent that `make_train` or a trainer left: `state` is of one seed; the rest as was given to them.

        Its `seed` is that of the configuration. Raises ConfigError.
        """
        config = as_config(config)
        spec = make_env(config).spec if env is None else as_env(env, "the environment").spec
        return cls(state.learner.target, config, model or networks.make_model(config, spec), spec, config.seed)

    def __repr__(self) -> str:
        size = sum(jnp.size(x) for x in jax.tree.leaves(self.params))
        return f"Agent(env={self.config.env!r}, seed={self.seed}, sc.update={self.config.sc.update}, {size:,} numbers)"

    def make_env(self) -> Env:
        """The environment of the run. Raises ConfigError for one on the host, such as Atari's."""
        return make_env(self.config)

    def initial_carry(self, batch: int) -> Tree:
        """Return the recurrent state before the first observation, a tree of [B, ...]; () if feed-forward."""
        return self.model.initial_carry(batch)

    def act(self, obs: Observation, carry: Tree, key: Key, greedy: bool = True) -> tuple[Array, Tree]:
        """Choose actions int32 [B] by the policy. Return also the next carry.

        obs: [B, ...], as `envs.base` gives it.   carry: [B, ...] recurrent state.
        greedy: static; True takes the likeliest legal actions, False samples the policy, as training does.
        """
        choose = make_choice(self.config, self.model, self.spec, "greedy" if greedy else "sampled")
        e, carry = encode(self.model, self.params, obs, carry)
        return choose(self.params, e, obs.legal, key).astype(jnp.int32), carry

    def search(
        self,
        obs: Observation,
        carry: Tree,
        key: Key,
        simulations: int = 50,
        kind: Kind = "muzero",
        max_depth: int | None = None,
        temperature: float = 0.0,
    ) -> tuple[SearchResult, Tree]:
        """Search over the learned model. Return also the next carry. Raises ValueError for fewer than one simulation.

        obs, carry: as of `act`.   simulations and what follows: see `SearchOptions`; static.
        """
        options = SearchOptions(simulations, kind, max_depth, temperature)
        search = make_search(self.model, self.spec, options, self.config.muesli.unroll)
        e, carry = encode(self.model, self.params, obs, carry)
        return search(self.params, e, obs.legal, key, self.config.hyper.discount), carry


def load_agent(directory: str | Path, seed: int | None = None) -> Agent:
    """Load the agent of one seed (None: the first) of a run directory, or a shipped one, as in "tic_tac_toe".

    It is read from the newest readable checkpoint; Python warns of unreadable ones. Raises RunError.
    """
    agents = load_agents(directory, partial(warnings.warn, stacklevel=3))
    row = row_of(seed, agents.seeds, directory)
    model = networks.make_model(agents.config, agents.spec)
    return Agent(take_row(agents.learner.target, row), agents.config, model, agents.spec, agents.seeds[row])


def load_learner(directory: str | Path, seed: int | None = None) -> LearnerState:
    """Load parameters, target network and optimiser of one seed (None: the first) of a run directory. Raises RunError.

    `trainer.init(key)._replace(learner=...)` goes on from there.
    """
    agents = load_agents(directory, partial(warnings.warn, stacklevel=3))
    row = row_of(seed, agents.seeds, directory)
    learner: LearnerState = take_row(agents.learner, row)
    return learner
