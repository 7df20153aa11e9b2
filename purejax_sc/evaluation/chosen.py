"""What are the actions worth that an agent chooses, by its policy and by search? A search of real states says.

Returns and games tell two ways to act apart only after many episodes, in which each also meets other states. Here all
ways choose in the same real states, and where they choose the same they are worth the same.
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
    """Of W ways to act in S states: action int [W, S], and what it is worth [W, S] in raw returns."""

    action: Array
    worth: Array


def judge_search(simulations: int) -> SearchOptions:
    """The search that judges: over the environment itself, which is right at any depth."""
    return SearchOptions(simulations, "gumbel", dynamics="environment", max_depth=simulations)


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
      simulations: of the judge, see `worth`.

    Returns:
      Of the ways to act of `ways(searches)`.
    """
    key_states, key_choice, key_step, key_judge = jax.random.split(key, 4)
    choice = played.obs.valid & (jnp.sum(played.obs.legal, axis=-1) > 1)
    drawn = jax.random.choice(key_states, choice.size, (num_states,), p=jnp.ravel(choice).astype(jnp.float32))
    here: Play = jax.tree.map(lambda x: jnp.reshape(x, (-1, *x.shape[2:]))[drawn], played)
    node, legal = RealNode(here.env, here.carry, jnp.ones(num_states, bool)), here.obs.legal
    judge = planning.make_search(config, model, env, judge_search(simulations))
    looks = [*(planning.make_search(config, model, env, search) for search in searches.values()), judge]
    greedy = jnp.argmax(masked_logits(model.root_policy(params.root_policy, here.e), legal), axis=-1)
    found = (look(params, here.e, legal, node, key_choice).action for look in looks)
    actions = jnp.stack([greedy.astype(jnp.int32), *found])

    def worth(action: Array) -> Array:
        """r + gamma v [S] of a real step by action [S], where v is what the best action there is worth to the judge."""
        step, e, after = planning.step_on(env, model, params, jax.random.split(key_step, num_states), action, node)
        found = judge(params, e, step.legal, after, key_judge)
        value = jnp.take_along_axis(found.q, found.action[:, None], axis=-1)[:, 0]
        return step.reward + config.hyper.discount * step.discount * jnp.where(after.running, value, 0.0)

    return Chosen(actions, jax.lax.map(worth, actions))


def ways(searches: Mapping[str, SearchOptions]) -> list[str]:
    """How actions are chosen: greedily, by each search, and as the judge would."""
    return [GREEDY, *searches, JUDGE]


def summarise(names: Sequence[str], choices: Chosen) -> dict[str, Any]:
    """Of W ways to act [seeds, W, S], the first of which is greedy, by name and ready for JSON.

    worth: with an interval, as all of them, see `mean_of`.   over_greedy: less the worth by the first way.
    over_last: less that by the way before this one.   other: the share of states in which it is not the first's action.
    """
    action, worth = (np.asarray(x) for x in choices)
    last = np.concatenate([worth[:, :1], worth[:, :-1]], axis=1)
    columns = {
        "worth": worth,
        "over_greedy": worth - worth[:, :1],
        "over_last": worth - last,
        "other": action != action[:, :1],
    }
    return {
        name: {column: mean_of(x[:, way].astype(np.float64)) for column, x in columns.items()}
        for way, name in enumerate(names)
    }
