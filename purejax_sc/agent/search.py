"""Monte Carlo tree search over the learned model, by mctx. One batch of roots is searched side by side.

muzero: PUCT (MuZero, Schrittwieser et al. 2020, appendix B).
gumbel: sequential halving at the root, deterministic below (Danihelka et al. 2022); stronger with few simulations.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import chex
import jax
import jax.numpy as jnp
import mctx

from purejax_sc.agent import auxiliary
from purejax_sc.agent.transforms import masked_logits
from purejax_sc.types import Array, EnvSpec, Key, Model, Params, Scalar

Kind = Literal["muzero", "gumbel"]
Dynamics = Literal["model", "environment"]
KINDS: tuple[Kind, ...] = get_args(Kind)

# Weight of values relative to the prior (c_scale of Danihelka et al. 2022), per half of the range that values are
# scaled by; the higher one if the model reconstructs the board, which makes its values better.
GUMBEL_SCALE, GUMBEL_SCALE_SHOWN = 0.1, 0.3
# Root actions that are considered (m in the same paper). Few, so that each is visited again after its first reply was
# seen; the higher number from 4 visits of each in the first of log2(m) rounds on.
GUMBEL_CONSIDERED, GUMBEL_CONSIDERS_MORE = (4, 8), 4 * 8 * 3


class SearchOptions(NamedTuple):
    """Search settings. Python values: static.

    simulations: model steps per root; 0 for no search.
    kind:        which search.
    max_depth:   of the tree; None for as many steps as the model was unrolled in training.
    temperature: 0 plays the best action found; above, the action is drawn from the weights^(1 / temperature).
    dynamics:    whether a step of the tree is one of the `model` or of the `environment` (`evaluation.players`).
    considered:  of Gumbel search, the number of the prior's best actions it chooses from; None: GUMBEL_CONSIDERED.
    """

    simulations: int
    kind: Kind = "muzero"
    max_depth: int | None = None
    temperature: float = 0.0
    dynamics: Dynamics = "model"
    considered: int | None = None


NO_SEARCH = SearchOptions(0)


class SearchResult(NamedTuple):
    """Result of a search at B roots.

    action:  int32 [B], the one to play (drawn if the temperature is above 0); always legal, 0 where no action is.
    weights: float32 [B, A], which sum to 1: the share of the visits (muzero), or the improved policy (gumbel).
    value:   float32 [B] raw, of the root after the search, to the player to move.
    visits:  int32 [B, A] of the root's actions.   q: float32 [B, A] raw, their values; 0 where unvisited.
    """

    action: Array
    weights: Array
    value: Array
    visits: Array
    q: Array


# (params, key, action [B], node of every tree [B, ...]) -> (mctx.RecurrentFnOutput, the nodes that follow)
Expand = Callable[[Params, Key, Array, Any], tuple[mctx.RecurrentFnOutput, Any]]
# (params, roots, expand, legal bool [B, A], key) -> SearchResult
Plan = Callable[[Params, mctx.RootFnOutput, Expand, Array, Key], SearchResult]
# (params, encodings e [B, ...], legal bool [B, A], key, discount) -> SearchResult
Search = Callable[[Params, Array, Array, Key, Scalar], SearchResult]


def make_search(model: Model, spec: EnvSpec, options: SearchOptions, trained_depth: int | None = None) -> Search:
    """Build a pure search function of encoded states; the caller keeps the encoder's carry.

    trained_depth: steps that the model was unrolled in training, the default of `options.max_depth`; None: no limit.

    Returns search(params, e, legal, key, discount), with the positive discount of one step, which may be traced. Legal
    actions are known at the roots only; below, the model's predictions count (`auxiliary.masked_policy`).

    Raises ValueError for fewer than one simulation, and for a search over the environment (`evaluation.players`).
    """
    if options.dynamics != "model":
        raise ValueError(f"dynamics={options.dynamics} needs the environment: use evaluation.players.make_player")
    plan = make_plan(model, spec, options, trained_depth)

    def search(params: Params, e: Array, legal: Array, key: Key, discount: Scalar) -> SearchResult:
        expand = partial(_expand, model, spec, discount)
        return plan(params, make_root(model, params, e, legal, model.start(params.dynamics, e)), expand, legal, key)

    return search


def make_plan(model: Model, spec: EnvSpec, options: SearchOptions, trained_depth: int | None = None) -> Plan:
    """Build the search itself; `expand` is a step of the model or of the environment. Raises as `make_search` does."""
    if options.simulations < 1:
        raise ValueError(f"simulations={options.simulations} searches nothing: set simulations=1 or more")
    policy = partial(
        _policy(options),
        num_simulations=options.simulations,
        max_depth=trained_depth if options.max_depth is None else options.max_depth,
        qtransform=partial(_scaled_values, options.kind, spec, model.reconstruct is not None),
    )

    def plan(params: Params, root: mctx.RootFnOutput, expand: Expand, legal: Array, key: Key) -> SearchResult:
        chex.assert_shape(legal, root.prior_logits.shape)
        chex.assert_type(legal, bool)
        key_search, key_action = jax.random.split(key) if options.temperature else (key, key)
        with jax.numpy_dtype_promotion("standard"):  # mctx divides values by counts of visits
            found = policy(params, key_search, root, expand, invalid_actions=~legal)
        at_root = found.search_tree.summary()
        action = found.action
        if options.temperature:
            logits = masked_logits(jnp.log(found.action_weights) / options.temperature, legal)
            action = jax.random.categorical(key_action, logits).astype(action.dtype)
        q = jnp.where(at_root.visit_counts > 0, at_root.qvalues, 0.0)
        return SearchResult(action, found.action_weights, at_root.value, at_root.visit_counts, q)

    return plan


def make_root(model: Model, params: Params, e: Array, legal: Array, node: Any) -> mctx.RootFnOutput:
    """Evaluate B roots by the root heads. e: [B, ...]   legal: bool [B, A]   node: of the trees, [B, ...]."""
    return mctx.RootFnOutput(
        prior_logits=masked_logits(model.root_policy(params.root_policy, e), legal),
        value=model.decode(model.root_value(params.root_value, e)),
        embedding=node,
    )


def _policy(options: SearchOptions) -> Callable[..., Any]:
    """Return mctx's search without exploration: no noise at the root, and the best action instead of a sample."""
    if options.kind == "muzero":
        return partial(mctx.muzero_policy, dirichlet_fraction=0.0, temperature=0.0)
    considered = options.considered or GUMBEL_CONSIDERED[options.simulations >= GUMBEL_CONSIDERS_MORE]
    return partial(mctx.gumbel_muzero_policy, gumbel_scale=0.0, max_num_considered_actions=considered)


def _scaled_values(kind: Kind, spec: EnvSpec, shown: bool, tree: mctx.Tree, node: Array) -> Array:
    """Scale a node's action values [A] by the game's bounds, or by the range of the whole tree (MuZero, Eq. 5)."""
    low, high = _bounds(tree, spec.two_player) if spec.value_bounds is None else spec.value_bounds
    if kind == "muzero":
        return mctx.qtransform_by_min_max(tree, node, min_value=low, max_value=high)
    per_unit = (GUMBEL_SCALE_SHOWN if shown and spec.value_bounds is not None else GUMBEL_SCALE) * 2.0 / (high - low)
    return mctx.qtransform_completed_by_mix_value(tree, node, value_scale=per_unit, rescale_values=False)


def _bounds(tree: mctx.Tree, two_player: bool) -> tuple[Array, Array]:
    """Range of the network's value of the root and of r + gamma v of all actions tried; of both signs in a game."""
    q = tree.children_rewards + tree.children_discounts * tree.children_values  # [nodes, A]
    tried, root = tree.children_visits > 0, tree.raw_values[tree.ROOT_INDEX]
    low = jnp.minimum(root, jnp.min(jnp.where(tried, q, jnp.inf)))
    high = jnp.maximum(root, jnp.max(jnp.where(tried, q, -jnp.inf)))
    if two_player:
        high = jnp.maximum(high, -low)
        low = -high
    return low, jnp.maximum(high, low + 1e-8)


def _expand(
    model: Model, spec: EnvSpec, discount: Scalar, params: Params, _: Key, action: Array, z: Array
) -> tuple[mctx.RecurrentFnOutput, Array]:
    """One model step in each of B trees, from z [B, ...] by action [B]: mctx's recurrent function."""
    z, reward = model.step(params.dynamics, params.reward, z, jax.nn.one_hot(action, spec.num_actions))
    value = model.decode(model.value(params.value, z))
    discount_t = (-discount if spec.two_player else discount) * jnp.ones_like(value)
    logits, reward = auxiliary.masked_policy(model, params, z), model.decode(reward)
    return mctx.RecurrentFnOutput(reward=reward, discount=discount_t, prior_logits=logits, value=value), z
