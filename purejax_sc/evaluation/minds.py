"""An agent that can be asked what it thinks of positions, not only for a move."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purejax_sc.agent.search import SearchOptions, SearchResult, make_search
from purejax_sc.agent.transforms import masked_logits
from purejax_sc.config import Config
from purejax_sc.evaluation.gtp import Candidate
from purejax_sc.types import Array, EnvSpec, Key, Model, Observation, Params, Tree


class Mind(NamedTuple):
    """Thoughts about N positions at once.

    simulations: of the search behind them; 0 where the policy alone decides.
    init:  (N) -> memory, a tree of [N, ...].
    think: (Observation [N, ...], memory, key) -> (SearchResult, memory). Without a search `weights` is the policy, and
           nothing is visited. It is shown every position of a game in turn: it may remember what it has seen.
    """

    simulations: int
    init: Callable[[int], Tree]
    think: Callable[[Observation, Tree, Key], tuple[SearchResult, Tree]]


def make_mind(
    config: Config, model: Model, spec: EnvSpec, params: Params, search: SearchOptions, sampled: bool = False
) -> Mind:
    """The mind of an agent of `config`. sampled: without a search, draw moves instead of playing the likeliest."""
    look = make_search(model, spec, search, config.muesli.unroll) if search.simulations else None

    def decide(e: Array, legal: Array, key: Key) -> SearchResult:
        if look is not None:
            return look(params, e, legal, key, config.hyper.discount)
        logits = masked_logits(model.root_policy(params.root_policy, e), legal)
        action = jax.random.categorical(key, logits) if sampled else jnp.argmax(logits, axis=-1)
        value, none = model.decode(model.root_value(params.root_value, e)), jnp.zeros(legal.shape)
        action = action.astype(jnp.int32)
        return SearchResult(action, jax.nn.softmax(logits), value, none.astype(jnp.int32), none, action[:, None])

    def think(obs: Observation, memory: Tree, key: Key) -> tuple[SearchResult, Tree]:
        e, memory = model.encode(params.encoder, jax.tree.map(lambda x: x[None], obs), memory)
        return decide(e[0], obs.legal, key), memory

    return Mind(search.simulations, model.initial_carry, think)


def win_rate(value: float) -> float:
    """The chance to win that a value in [-1, 1] stands for."""
    return min(1.0, max(0.0, 0.5 + 0.5 * value))


def candidates(thought: SearchResult) -> list[Candidate]:
    """The moves of one position that a search visited, or, without a search, those that the policy likes best.

    thought: leaves without the leading axis of positions. The one that would be played comes first.
    """
    best, weights, visits = int(thought.action), np.asarray(thought.weights), np.asarray(thought.visits)
    order = np.lexsort((-weights, -visits))
    shown = [best, *(a for a in order if a != best and (visits[a] > 0 if visits.any() else weights[a] >= 0.01))]
    return [
        Candidate(
            action=int(a),
            visits=int(visits[a]),
            win_rate=win_rate(float(thought.q[a] if visits[a] else thought.value)),
            prior=float(weights[a]),
            variation=[int(x) for x in thought.pv if x >= 0] if a == best else [int(a)],
        )
        for a in shown
    ]
