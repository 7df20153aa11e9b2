"""Monte Carlo tree search over the learned model, by mctx. One batch of roots is searched side by side.

`muzero`: PUCT (MuZero, Schrittwieser et al. 2020, appendix B).   `gumbel`: sequential halving at the root and
deterministic choices below it (Danihelka et al. 2022), stronger where simulations are few.
Both are set up to play, not to explore: no noise at the root, and the best action instead of a sample.
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
ValueRange = Literal["auto", "known", "tree", "siblings"]
Dynamics = Literal["model", "environment"]
KINDS: tuple[Kind, ...] = get_args(Kind)

# How loud a value is beside the prior in Gumbel search, c_scale of Danihelka et al. 2022: per half of the range that
# values are scaled by, which is that of a game's result; the same over a model that shows the game's board, which is a
# better one; and, scaled by their siblings, for two players and for one.
GUMBEL_SCALE = 0.1
GUMBEL_SHOWN = 0.3
GUMBEL_SIBLINGS = {True: 1.0, False: 0.1}
# How many actions Gumbel search considers at the root, m of the same paper. With few of them each is looked at again,
# after the answers that its first visit showed; of sixteen, most are looked at once. Of the larger number each has to
# be looked at four times in the first of log2(m) rounds, after each of which half are dropped.
GUMBEL_CONSIDERED = (4, 8)
GUMBEL_CONSIDERS_MORE = 4 * 8 * 3  # simulations


class SearchOptions(NamedTuple):
    """How to search. Python values: static.

    simulations: model steps per root; 0 for no search.
    kind:        which search.
    value_range: by what values are scaled before they are weighed against the prior. `known`: the bounds of the game's
                 returns. `tree`: the smallest and the largest value of the whole tree (Schrittwieser et al. 2020, Eq.
                 5). `siblings`: those of one node, which makes the smallest difference loud. `auto`: known where the
                 game has bounds, else tree.
    max_depth:   of the tree; None for as many steps as the model was unrolled in training.
    temperature: 0 plays what the search found best; above, the action is drawn from its weights^(1 / temperature).
    dynamics:    what a step of the tree is: of the `model`, or of the `environment` itself, which is a perfect model
                 and shows what a better one could gain (`acting.planning`).
    value_scale: of Gumbel search, how loud a value is beside the prior: c_scale of Danihelka et al. 2022. The better
                 the model, the louder values may be: None is `default_scale`, or `GUMBEL_SIBLINGS`.
    considered:  of Gumbel search, how many of the prior's best actions it chooses from; None: `default_considered`.
    """

    simulations: int
    kind: Kind = "muzero"
    value_range: ValueRange = "auto"
    max_depth: int | None = None
    temperature: float = 0.0
    dynamics: Dynamics = "model"
    value_scale: float | None = None
    considered: int | None = None

    def idle(self) -> tuple[str, int | float] | None:
        """An option that is given and that this kind of search does not have, and its value; None: all have effect."""
        of_gumbel = {"value_scale": self.value_scale, "considered": self.considered}
        given = ((name, value) for name, value in of_gumbel.items() if value is not None)
        return None if self.kind == "gumbel" else next(given, None)


NO_SEARCH = SearchOptions(0)
VARIATION = 8  # moves of a principal variation


class SearchResult(NamedTuple):
    """What a search found at B roots.

    action:  int32 [B], the one to play (drawn if the temperature is above 0); always legal, 0 where no action is.
    weights: float32 [B, A], which sum to 1: the share of the visits (muzero), or the improved policy (gumbel).
    value:   float32 [B] raw, of the root after the search, to the player to move.
    visits:  int32 [B, A] of the root's actions.   q: float32 [B, A] raw, their values; 0 where unvisited.
    pv:      int32 [B, VARIATION], the action and then the most visited ones; -1 beyond what was looked at.
    """

    action: Array
    weights: Array
    value: Array
    visits: Array
    q: Array
    pv: Array


# (params, key, action [B], node of every tree [B, ...]) -> (mctx.RecurrentFnOutput, the nodes that follow)
Expand = Callable[[Params, Key, Array, Any], tuple[mctx.RecurrentFnOutput, Any]]
# (params, roots, expand, legal bool [B, A], key) -> SearchResult
Plan = Callable[[Params, mctx.RootFnOutput, Expand, Array, Key], SearchResult]
# (params, encodings e [B, ...], legal bool [B, A], key, discount) -> SearchResult
Search = Callable[[Params, Array, Array, Key, Scalar], SearchResult]


def make_search(model: Model, spec: EnvSpec, options: SearchOptions, trained_depth: int | None = None) -> Search:
    """A pure search function of encoded states: the caller keeps the encoder's carry.

    Args:
      model:         its root heads judge the roots, its model heads everything below.
      spec:          with two players, a value counts for the player to move and changes sign at every step.
      options:       how.
      trained_depth: steps that the model was unrolled in training, the default of `options.max_depth`; None: no limit.

    Returns:
      search(params, e, legal, key, discount), with the discount of one step as a positive number that may be traced.
      Legal moves are known at the roots only: below, the search keeps to the rules as far as the model knows them
      (`auxiliary.masked_policy`). Nor does a model say where episodes end: it must have learned what comes beyond
      (`auxiliary.follow_ends`).

    Raises ValueError for fewer than one simulation, for known bounds where there are none, for options of another
    search than this kind, and for a search over the environment, which is that of `acting.planning`.
    """
    if options.dynamics != "model":
        raise ValueError(f"dynamics={options.dynamics} needs the environment: use acting.planning.make_player")
    plan = make_plan(spec, options, trained_depth, default_scale(model))

    def search(params: Params, e: Array, legal: Array, key: Key, discount: Scalar) -> SearchResult:
        expand = partial(_expand, model, spec, discount)
        return plan(params, make_root(model, params, e, legal, model.start(params.dynamics, e)), expand, legal, key)

    return search


def default_scale(model: Model) -> float:
    """How loud values of known bounds are in Gumbel search where nobody says: louder if the model shows the board."""
    return GUMBEL_SCALE if model.reconstruct is None else GUMBEL_SHOWN


def default_considered(simulations: int) -> int:
    """m of Danihelka et al. 2022, of so many simulations, where nobody says: more actions if there is time for more."""
    few, more = GUMBEL_CONSIDERED
    return more if simulations >= GUMBEL_CONSIDERS_MORE else few


def make_plan(
    spec: EnvSpec, options: SearchOptions, trained_depth: int | None = None, scale: float = GUMBEL_SCALE
) -> Plan:
    """The search itself, which knows neither the model nor the environment: `expand` is a step of either.

    scale: the default of `options.value_scale` where values are scaled by known bounds.

    Raises ValueError as `make_search` does.
    """
    if options.simulations < 1:
        raise ValueError(f"simulations={options.simulations} searches nothing: set simulations=1 or more")
    if idle := options.idle():
        raise ValueError(f"{idle[0]}={idle[1]:g} has no effect on {options.kind} search: leave it out")
    policy = partial(
        _policy(options),
        num_simulations=options.simulations,
        max_depth=trained_depth if options.max_depth is None else options.max_depth,
        qtransform=_scaled_values(options, spec, scale),
    )

    def plan(params: Params, root: mctx.RootFnOutput, expand: Expand, legal: Array, key: Key) -> SearchResult:
        key_search, key_action = jax.random.split(key) if options.temperature else (key, key)
        found = _look(policy, params, root, expand, legal, key_search)
        at_root = found.search_tree.summary()
        action = found.action
        if options.temperature:
            logits = masked_logits(jnp.log(found.action_weights) / options.temperature, legal)
            action = jax.random.categorical(key_action, logits).astype(action.dtype)
        q = jnp.where(at_root.visit_counts > 0, at_root.qvalues, 0.0)
        pv = jax.vmap(_principal_variation)(found.search_tree, action)
        return SearchResult(action, found.action_weights, at_root.value, at_root.visit_counts, q, pv)

    return plan


def make_root(model: Model, params: Params, e: Array, legal: Array, node: Any) -> mctx.RootFnOutput:
    """B roots, which the root heads judge. e: [B, ...]   legal: bool [B, A]   node: of the trees, [B, ...]."""
    return mctx.RootFnOutput(
        prior_logits=masked_logits(model.root_policy(params.root_policy, e), legal),
        value=model.decode(model.root_value(params.root_value, e)),
        embedding=node,
    )


def _look(
    policy: Callable[..., Any], params: Params, root: mctx.RootFnOutput, expand: Expand, legal: Array, key: Key
) -> mctx.PolicyOutput:
    """Search from B roots by one of mctx's policies."""
    chex.assert_shape(legal, root.prior_logits.shape)
    chex.assert_type(legal, bool)
    with jax.numpy_dtype_promotion("standard"):  # mctx divides values by counts of visits
        return policy(params, key, root, expand, invalid_actions=~legal)


def _policy(options: SearchOptions) -> Callable[..., Any]:
    """mctx's search, without exploration."""
    if options.kind == "gumbel":
        considered = default_considered(options.simulations) if options.considered is None else options.considered
        return partial(mctx.gumbel_muzero_policy, gumbel_scale=0.0, max_num_considered_actions=considered)
    return partial(mctx.muzero_policy, dirichlet_fraction=0.0, temperature=0.0)


def _scaled_values(options: SearchOptions, spec: EnvSpec, scale: float) -> Callable[[mctx.Tree, Array], Array]:
    """(tree, node) -> what the actions there [A] are worth beside the logits of the prior: mctx's `qtransform`."""
    kind, by, loud = options.kind, options.value_range, options.value_scale
    if by == "known" and spec.value_bounds is None:
        raise ValueError("value_range=known needs a game with known bounds, such as Pgx's of two players: use tree")
    if by == "siblings":
        if kind == "muzero":
            return mctx.qtransform_by_parent_and_siblings
        loud = GUMBEL_SIBLINGS[spec.two_player] if loud is None else loud
        return partial(mctx.qtransform_completed_by_mix_value, value_scale=loud)

    known = None if by == "tree" else spec.value_bounds
    if loud is None:
        loud = GUMBEL_SCALE if known is None else scale

    def scaled(tree: mctx.Tree, node: Array) -> Array:
        low, high = _bounds(tree, spec.two_player) if known is None else known
        if kind == "muzero":
            return mctx.qtransform_by_min_max(tree, node, min_value=low, max_value=high)
        per_unit = loud * 2.0 / (high - low)
        return mctx.qtransform_completed_by_mix_value(tree, node, value_scale=per_unit, rescale_values=False)

    return scaled


def _bounds(tree: mctx.Tree, two_player: bool) -> tuple[Array, Array]:
    """The smallest and the largest of the network's value of the root and of r + gamma v of all actions tried.

    With two players the value of a node is that of whoever moves there, so both signs count.
    """
    q = tree.children_rewards + tree.children_discounts * tree.children_values  # [nodes, A]
    tried, root = tree.children_visits > 0, tree.raw_values[tree.ROOT_INDEX]
    low = jnp.minimum(root, jnp.min(jnp.where(tried, q, jnp.inf)))
    high = jnp.maximum(root, jnp.max(jnp.where(tried, q, -jnp.inf)))
    if two_player:
        high = jnp.maximum(high, -low)
        low = -high
    return low, jnp.maximum(high, low + 1e-8)


def _principal_variation(tree: mctx.Tree, action: Array) -> Array:
    """[VARIATION] the action at the root of one tree, and then the most visited one of every node; -1 beyond."""

    def step(x: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
        node, action = x
        child = jnp.where(node >= 0, tree.children_index[node, action], tree.UNVISITED)
        visits = tree.children_visits[child]
        last = (child < 0) | (jnp.max(visits) == 0)
        after = jnp.where(last, tree.UNVISITED, child), jnp.argmax(visits).astype(action.dtype)
        return after, jnp.where(node >= 0, action, -1)

    begin = jnp.int32(tree.ROOT_INDEX), action.astype(jnp.int32)
    return jax.lax.scan(step, begin, None, length=VARIATION)[1]


def _expand(
    model: Model, spec: EnvSpec, discount: Scalar, params: Params, key: Key, action: Array, z: Array
) -> tuple[mctx.RecurrentFnOutput, Array]:
    """One model step in each of B trees, from z [B, ...] by action [B]: mctx's recurrent function."""
    del key  # the model is deterministic
    z, reward = model.step(params.dynamics, params.reward, z, jax.nn.one_hot(action, spec.num_actions))
    value = model.decode(model.value(params.value, z))
    gamma = -discount if spec.two_player else discount
    output = mctx.RecurrentFnOutput(
        reward=model.decode(reward),
        discount=gamma * jnp.ones_like(value),
        prior_logits=auxiliary.masked_policy(model, params, z),
        value=value,
    )
    return output, z
