"""The containers that travel between modules. Axes: T steps, B environments or sequences, A actions.

`[B, ...]` stands for any number of trailing axes. Nothing here computes anything.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

Array = jax.Array
Key = jax.Array  # a typed key from `jax.random.key`
Tree = Any  # a pytree of arrays
Scalar = Array | float  # a number that may be traced

PRNG = "threefry2x32"  # of every key from a seed: with others, rows under `vmap` differ from single runs


class EnvSpec(NamedTuple):
    """Description of an environment for network and learner. Python values: static."""

    num_actions: int
    obs_shape: tuple[int, ...]
    obs_dtype: Any  # the dtype in which observations are stored: bool, uint8 or float32
    two_player: bool  # False: discounts are 0 or 1. True: 0 or -1, because the mover changes
    value_bounds: tuple[float, float] | None = None  # of every return, where the rules tell: -1 for lost, 1 for won


class Step(NamedTuple):
    """Output of one unbatched environment after `init` or `step`.

    obs:       [*obs_shape], from the view of the player to move.
    legal:     bool [A]; all True where the game has no mask.
    reward:    float32, to the player who just acted; 0 after `init`.
    discount:  float32: 0 terminated, 1 goes on, -1 goes on and the mover changed.
    truncated: bool: cut by a time limit (never together with discount 0).
    player:    int32, whose turn it is (0 in a single-player environment).
    metrics:   a dict of float32 scalars with fixed keys; what it says at the end of an episode is logged.
    """

    obs: Array
    legal: Array
    reward: Array
    discount: Array
    truncated: Array
    player: Array
    metrics: dict[str, Array]


class Env(NamedTuple):
    """One unbatched environment as pure functions. `step` never resets: the batched driver does.

    init: (key, shared) -> (state, step).   step: (key, state, action) -> (state, step).
    make_shared: (key) -> shared, of all episodes, such as levels; leaves have a leading axis, which devices share.
    refresh: (key, shared) -> shared, between updates.
    """

    spec: EnvSpec
    init: Callable[[Key, Tree], tuple[Tree, Step]]
    step: Callable[[Key, Tree, Array], tuple[Tree, Step]]
    make_shared: Callable[[Key], Tree] = lambda key: ()
    refresh: Callable[[Key, Tree], Tree] = lambda key, shared: shared


class Observation(NamedTuple):
    """Observation at time t, with leading axes [T, B] or [B].

    frame:       [..., *obs_shape] in the stored dtype.
    legal:       bool [..., A] legal actions.
    prev_action: int32 [...] the action before this observation (0 at an episode start).
    prev_reward: float32 [...] the reward that came with this observation (0 at an episode start).
    first:       bool [...] this is the first observation of an episode: recurrent state is reset here.
    valid:       bool [...] False on the final observation of a truncated episode, from which the step before
                 bootstraps. Its own action has no effect, and no loss has its root there.
    """

    frame: Array
    legal: Array
    prev_action: Array
    prev_reward: Array
    first: Array
    valid: Array


class Sequence(NamedTuple):
    """T transitions and the observation after the last: index t holds what was seen and done at t, and what followed.

    obs:      Observation [T + 1, B, ...] of the states acted in, and of the last one reached.
    action:   int32 [T, B] a_t.
    logits:   float32 [T, B, A] of the behaviour policy, illegal actions at a large negative number.
    reward:   float32 [T, B] R_{t+1}, raw, to the player who acted.
    discount: float32 [T, B] d_{t+1} of the environment: 0 ended, 1, or -1 (mover changed). Not yet times gamma.
    carry:    tree of [B, ...], the encoder's recurrent state before obs[0]; an empty tuple if feed-forward.
    """

    obs: Observation
    action: Array
    logits: Array
    reward: Array
    discount: Array
    carry: Tree


class EpisodeStats(NamedTuple):
    """float32 sums over the `count` episodes that ended at a step: undiscounted returns, lengths in steps, and what
    `Step.metrics` said at their ends.
    """

    count: Array  # type: ignore[assignment]  # hides tuple.count, which nobody needs of sums
    return_sum: Array
    length_sum: Array
    metric_sums: dict[str, Array]


class Params(NamedTuple):
    """Parameters by part. dynamics: start state, transition and decoder of the model.

    reward, value, policy: heads on imagined states (k >= 1).   root_value, root_policy: on encoded real states (k = 0).
    """

    encoder: Tree
    dynamics: Tree
    reward: Tree
    value: Tree
    root_value: Tree
    policy: Tree
    root_policy: Tree


class Model(NamedTuple):
    """Model, values and policy as pure functions, each of the parameters of its parts. M is one flat batch axis.

    `e` is the encoding of a real state, `z` a state of the model. Rewards and values leave as `out`, see `decode`.

    init:          (key) -> Params
    initial_carry: (batch size) -> tree of [B, ...], () if feed-forward
    encode:        (encoder, Observation [T, B, ...], carry [B, ...]) -> (e [T, B, ...], carry after the last step).
                   `first` resets the carry before that observation is read.
    start:         (dynamics, e [M, ...]) -> z [M, ...], the model's state before any imagined action
    step:          (dynamics, reward, z [M, ...], a [M, A]) -> (z_next, reward out). `a` is a distribution over
                   actions: one-hot for a deep network, the policy itself for a tabular one
    value:         (value, z [M, ...]) -> out       policy:      (policy, z [M, ...]) -> logits [M, A]
    root_value:    (root_value, e [M, ...]) -> out  root_policy: (root_policy, e [M, ...]) -> logits [M, A]
    decode:        (out) -> float32 [M] raw reward or value; differentiable
    reconstruct:   (dynamics, z [M, ...]) -> logits [M, ..., planes] of bits of the observation, or None
    visible:       (frame [..., *obs_shape]) -> bool [..., planes], the target of `reconstruct`, or None
    rules:         (policy, z [M, ...]) -> (logits [M, A] of `policy`, logits [M, A] that an action is legal), or None
    """

    init: Callable[[Key], Params]
    initial_carry: Callable[[int], Tree]
    encode: Callable[[Tree, Observation, Tree], tuple[Array, Tree]]
    start: Callable[[Tree, Array], Array]
    step: Callable[[Tree, Tree, Array, Array], tuple[Array, Array]]
    value: Callable[[Tree, Array], Array]
    policy: Callable[[Tree, Array], Array]
    root_value: Callable[[Tree, Array], Array]
    root_policy: Callable[[Tree, Array], Array]
    decode: Callable[[Array], Array]
    reconstruct: Callable[[Tree, Array], Array] | None = None
    visible: Callable[[Array], Array] | None = None
    rules: Callable[[Tree, Array], tuple[Array, Array]] | None = None


class Gates(NamedTuple):
    """Gradient gates of self-consistency, in [0, 1], may be traced. target: through the bootstrapped return G.

    value: into the parameters of the value compared with G.   model: through its state, into model and encoder.
    """

    target: Scalar
    value: Scalar
    model: Scalar


class Moment(NamedTuple):
    """Moving mean of squared advantages, before it is debiased. nu: [].   decay_product: beta^n after n updates."""

    nu: Array
    decay_product: Array


class LearnerState(NamedTuple):
    """State of an update. target: moving average of the parameters, which acts and makes all grounded targets.

    moment: second moment of the advantages.   updates: int32, updates done.
    """

    params: Params
    target: Params
    opt_state: Any
    moment: Moment
    updates: Array
