"""How much value do the actions lose that an agent chooses, by its policy and by search? A search of real states says.

Returns and games tell two ways to act apart only after many episodes, in which each also meets other states. Here all
ways choose in the same real states, and where they choose the same they lose the same.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purejax_sc.acting import planning
from purejax_sc.acting.planning import RealNode
from purejax_sc.agent.search import SearchOptions
from purejax_sc.agent.transforms import masked_logits
from purejax_sc.config import Config
from purejax_sc.evaluation.evaluate import mean_of
from purejax_sc.evaluation.real_play import Play
from purejax_sc.types import Array, Env, Key, Model, Params

GREEDY, JUDGE = "greedy", "the judge"


class Chosen(NamedTuple):
    """Of W ways to act in S states: action int [W, S], and the value [W, S] that it loses, in raw returns."""

    action: Array
    lost: Array


def judge_search(simulations: int, num_actions: int) -> SearchOptions:
    """The search that judges: over the environment itself, which is right at any depth, of every legal action."""
    return SearchOptions(simulations, "gumbel", dynamics="environment", max_depth=simulations, considered=num_actions)


def choose_and_judge(
    env: Env,
    model: Model,
    params: Params,
    config: Config,
    played: Play,
    key: Key,
    searches: Mapping[str, SearchOptions],
    num_states: int,
    simulations: int,
) -> Chosen:
    """Choose in each way, in the same S = `num_states` real states of a play [T, N] in which there is a choice.

    Args:
      searches:    by name.
      num_states:  drawn with replacement.
      simulations: of the judge, at least as many as there are legal actions.

    Returns:
      Of the ways to act of `ways(searches)`, what the judge says: the value of the action that it values most, less
      that of the one that is chosen. An action that it did not look at has the value of the state.
    """
    key_states, key_choice, key_judge = jax.random.split(key, 3)
    choice = played.obs.valid & (jnp.sum(played.obs.legal, axis=-1) > 1)
    drawn = jax.random.choice(key_states, choice.size, (num_states,), p=jnp.ravel(choice).astype(jnp.float32))
    here: Play = jax.tree.map(lambda x: jnp.reshape(x, (-1, *x.shape[2:]))[drawn], played)
    node, legal = RealNode(here.env, here.carry, jnp.ones(num_states, bool)), here.obs.legal
    looks = [planning.make_search(config, model, env, search) for search in searches.values()]
    judge = planning.make_search(config, model, env, judge_search(simulations, env.spec.num_actions))

    greedy = jnp.argmax(masked_logits(model.root_policy(params.root_policy, here.e), legal), axis=-1)
    judged = judge(params, here.e, legal, node, key_judge)
    found = (look(params, here.e, legal, node, key_choice).action for look in looks)
    action = jnp.stack([greedy.astype(jnp.int32), *found, judged.action])
    q = jnp.where(judged.visits > 0, judged.q, judged.value[:, None])
    best = jnp.max(jnp.where(legal, q, -jnp.inf), axis=-1, keepdims=True)
    lost = best - jnp.take_along_axis(q, action.T, axis=-1)
    return Chosen(action, lost.T)


def ways(searches: Mapping[str, SearchOptions]) -> list[str]:
    """How actions are chosen: greedily, by each search, and as the judge would."""
    return [GREEDY, *searches, JUDGE]


def summarise(names: Sequence[str], choices: Chosen) -> dict[str, Any]:
    """Of W ways to act [seeds, W, S], the first of which is greedy, by name and ready for JSON.

    lost: with an interval, as all of them, see `mean_of`.   over_greedy: how much less than by the first way.
    over_last: how much less than by the way before.   other: the share of states in which it is not the first's action.
    """
    action, lost = (np.asarray(x) for x in choices)
    last = np.concatenate([lost[:, :1], lost[:, :-1]], axis=1)
    columns = {
        "lost": lost,
        "over_greedy": lost[:, :1] - lost,
        "over_last": last - lost,
        "other": action != action[:, :1],
    }
    return {
        name: {column: mean_of(x[:, way].astype(np.float64)) for column, x in columns.items()}
        for way, name in enumerate(names)
    }
