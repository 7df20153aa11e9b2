"""Monte Carlo tree search over the learned model, by mctx. One batch of roots is searched side by side.

`muzero`: PUCT (MuZero, Schrittwieser et al. 2020, appendix B).   `gumbel`: sequential halving at the root and
deterministic choices below it (Danihelka et al. 2022), stronger where simulations are few.
Both are set up to play, not to explore: no noise at the root, and the best action instead of a sample.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import chex
import jax
import jax.numpy as jnp
import mctx

from purejax_sc.agent.transforms import masked_logits
from purejax_sc.types import Array, EnvSpec, Key, Model, Params, Scalar

Kind = Literal["muzero", "gumbel"]
# How loud a value is beside the prior: c_scale of Danihelka et al. 2022, for board games and for single players.
GUMBEL_SCALE = {True: 1.0, False: 0.1}


class SearchResult(NamedTuple):
    """What a search found at B roots.

    action:  int32 [B], the one to play; always legal, 0 where no action is.
    weights: float32 [B, A], which sum to 1: the share of the visits (muzero), or the improved policy (gumbel).
    value:   float32 [B] raw, of the root after the search, to the player to move.
    """

    action: Array
    weights: Array
    value: Array


# (params, encodings e [B, ...], legal bool [B, A], key, discount) -> SearchResult
Search = Callable[[Params, Array, Array, Key, Scalar], SearchResult]


def make_search(model: Model, spec: EnvSpec, simulations: int, kind: Kind = "muzero") -> Search:
    """A pure search function of encoded states: the caller keeps the encoder's carry.

    Args:
      model:       its root heads judge the roots, its model heads everything below.
      spec:        with two players, a value counts for the player to move and changes sign at every step.
      simulations: model steps per root, at least 1.
      kind:        which search.

    Returns:
      search(params, e, legal, key, discount), with the discount of one step as a positive number that may be traced.
      Legal moves are known at the roots only: below, the policy head alone keeps the search to the rules. Nor does a
      model say where episodes end: its values of absorbing states must have become 0 in training.
    """
    if simulations < 1:
        raise ValueError(f"simulations={simulations} searches nothing: set simulations=1 or more")
    policy: Callable[..., Any] = partial(mctx.muzero_policy, dirichlet_fraction=0.0, temperature=0.0)
    if kind == "gumbel":
        scaled = partial(mctx.qtransform_completed_by_mix_value, value_scale=GUMBEL_SCALE[spec.two_player])
        policy = partial(mctx.gumbel_muzero_policy, gumbel_scale=0.0, qtransform=scaled)

    def search(params: Params, e: Array, legal: Array, key: Key, discount: Scalar) -> SearchResult:
        chex.assert_shape(legal, (len(e), spec.num_actions))
        chex.assert_type(legal, bool)
        root = mctx.RootFnOutput(
            prior_logits=masked_logits(model.root_policy(params.root_policy, e), legal),
            value=model.decode(model.root_value(params.root_value, e)),
            embedding=model.start(params.dynamics, e),
        )
        gamma = -discount if spec.two_player else discount
        expand = partial(_expand, model, spec.num_actions, gamma)
        with jax.numpy_dtype_promotion("standard"):  # mctx divides values by counts of visits
            found = policy(params, key, root, expand, simulations, invalid_actions=~legal)
        return SearchResult(found.action, found.action_weights, found.search_tree.summary().value)

    return search


def _expand(
    model: Model, num_actions: int, gamma: Scalar, params: Params, key: Key, action: Array, z: Array
) -> tuple[mctx.RecurrentFnOutput, Array]:
    """One model step in each of B trees, from z [B, ...] by action [B]: mctx's recurrent function."""
    del key  # the model is deterministic
    z, reward = model.step(params.dynamics, params.reward, z, jax.nn.one_hot(action, num_actions))
    value = model.decode(model.value(params.value, z))
    output = mctx.RecurrentFnOutput(
        reward=model.decode(reward),
        discount=gamma * jnp.ones_like(value),
        prior_logits=model.policy(params.policy, z),
        value=value,
    )
    return output, z
