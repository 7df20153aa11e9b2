"""What a trained agent imagines, beside what really came.

At every step of real episodes the policy is rolled out over the model: rewards r^k and values v^k of K imagined steps.
They are held against the rewards that were then paid, the root value v(s_{t+k}) of the states that were then reached,
the return-to-go, and against each other: the self-consistency error |v^k - G_{k:K}| (paper Eq. 7).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purejax_sc import memory
from purejax_sc.acting.episodes import make_choices
from purejax_sc.agent import auxiliary, consistency, losses, returns
from purejax_sc.agent.consistency import CONTROLS, UPDATES, Mu, StartStates
from purejax_sc.agent.transforms import masked_logits
from purejax_sc.config import Config
from purejax_sc.evaluation import real_play
from purejax_sc.evaluation.real_play import Play, later, look_ahead, mean_by_depth, root_heads, signed
from purejax_sc.types import Array, Env, EnvSpec, Key, Model, Params

CHUNK = 32  # steps that are played, or imagined from, at once
COLUMNS = {  # of the table by k -> what they are
    "sc_error": "|v^k - G_{k:K}|, both imagined",
    "value_gap": "|v^k - root value of the state really reached k steps later|",
    "return_gap": "|v^k - discounted return-to-go from there|",
    "reward_error": "|r^k - real reward|",
    "same": "share of rollouts whose first k actions were then really taken",
    "value_gap_same": "the value gap of those",
    "reward_error_same": "the reward error of those",
}


class ImaginationOptions(NamedTuple):
    """How to imagine. Python values: static.

    episodes:  N, played side by side.   max_steps: an episode that lasts longer is cut there.
    depth:     K model steps; None for as many as it was unrolled in training.
    sampled:   draw actions from the policy, really and in imagination; else the likeliest ones are taken.
    taken:     imagine the actions that are really taken, instead of the policy's own in the imagined states.
    seed:      of the play and of the samples.
    """

    episodes: int = 8
    max_steps: int = 2_500
    depth: int | None = None
    sampled: bool = False
    taken: bool = False
    seed: int = 0


class Imagined(NamedTuple):
    """K imagined steps from the states of T real steps of N environments, beside what came of those states.

    acted:  bool [T, N] the step belongs to the first episode, and what followed it is known. All else counts there.
    value:  [K + 1, T, N] raw, the root value at k = 0 and v^k.   reward: [K, T, N] raw r^k, k = 1 .. K.
    target: [K, T, N] raw G_{k:K}, k = 0 .. K - 1.                 action: int32 [K, T, N] imagined.
    policy: [T, N, A] probabilities at the root.   q: [T, N, A] raw r^1 + gamma v^1 of every action, see `legal`.
    legal:  bool [T, N, A].
    real_value, real_return: [K + 1, T, N] raw, of the state k steps on.   real_reward: [K, T, N] raw.
            After the end of the episode they are 0; beyond a cut they are NaN, for nobody knows.
    real_action: int32 [K, T, N]; -1 where there is none any more.
    same:   bool [K + 1, T, N] the first k imagined actions were really taken, as long as there were any to take.
    shown:  bool [K, T, height, width, planes] of the first environment alone, for a picture: the observations' first
            planes as the imagined states show them, k = 1 .. K; None of a model that shows nothing
            (`muesli.reconstruct=0`).

    Values count for the player to move then, and rewards for the one who moved.
    """

    acted: Array
    value: Array
    reward: Array
    target: Array
    action: Array
    policy: Array
    q: Array
    legal: Array
    real_value: Array
    real_return: Array
    real_reward: Array
    real_action: Array
    same: Array
    shown: Array | None


def play(env: Env, model: Model, params: Params, key: Key, config: Config, options: ImaginationOptions) -> Play:
    """Real steps [T, N] of the agent, alone or with itself, until every first episode is over or T > max_steps.

    `env` and `carry` are left out. Raises ConfigError where there is not enough memory.
    """
    key_begin, key_steps = jax.random.split(key)
    choose = make_choices(config, model, env.spec)["sampled" if options.sampled else "greedy"]
    begin = jax.jit(lambda key: real_play.begin(env, model, key, options.episodes))
    go_on = jax.jit(lambda params, x, key: real_play.play_on(env, model, params, choose, x, key, CHUNK))
    # before anything is begun: that alone might be too much
    program = memory.compiled(go_on, (params, jax.eval_shape(begin, key_begin), key_steps), "--episodes")
    stream = begin(key_begin)
    chunks: list[Play] = []
    over, held = np.zeros(options.episodes, bool), 0
    while not over.all() and CHUNK * len(chunks) <= options.max_steps:
        stream, chunk = program(params, stream, jax.random.fold_in(key_steps, len(chunks)))
        chunks.append(jax.device_get(chunk._replace(env=(), carry=())))
        over |= (chunks[-1].discount == 0).any(axis=0)
        held += sum(x.nbytes for x in jax.tree.leaves(chunks[-1]))
        # all of it is needed a second time, to imagine from
        memory.check(held, memory.free_on_host(), "this machine", "--episodes or --max-steps")
    return jax.tree.map(lambda *x: np.concatenate(x)[: options.max_steps + 1], *chunks)


def imagine(
    model: Model, params: Params, spec: EnvSpec, played: Play, key: Key, config: Config, options: ImaginationOptions
) -> Imagined:
    """Imagine from every step of a play. options.depth must be a number. Pure."""
    depth, discount = options.depth, config.hyper.discount
    assert depth is not None
    acted = first_episodes(played)
    v, log_pi = root_heads(model, params, played)
    actions = later(played.action, depth - 1)

    def at_a_step(x: tuple[Array, Array, Array, Array, Key]) -> tuple[Any, ...]:
        e, legal, log_pi, taken, key = x
        mu = make_mu(legal, taken, options)
        rollout = consistency.imagine(model, params, model.start(params.dynamics, e), log_pi, mu, key, depth)
        gates = UPDATES["residual"]  # nothing is learnt here: all numbers as they are
        errors = consistency.sc_errors(model, params, rollout, signed(discount, spec), gates, root=e)
        value = jnp.concatenate([jax.vmap(model.decode)(errors.prediction), model.decode(errors.end)[None]])
        every = jnp.broadcast_to(jnp.arange(spec.num_actions)[:, None], (spec.num_actions, len(e)))
        q = jax.lax.map(lambda action: look_ahead(model, params, e, action, spec, discount), every).T
        shown = None if model.reconstruct is None else model.reconstruct(params.dynamics, rollout.z[1:, 0]) > 0
        return value, rollout.reward, errors.target, jnp.argmax(rollout.action, axis=-1).astype(jnp.int32), shown, q

    keys = jax.random.split(key, len(v))
    rows = (played.e, played.obs.legal, log_pi, jnp.moveaxis(actions, 0, 1), keys)
    *by_k, q = jax.lax.map(at_a_step, rows, batch_size=CHUNK)
    value, reward, target, action, shown = jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1), by_k)
    real_value, real_return, real_reward, real_action = _what_came(played, acted, v, depth, config, spec)
    followed = jnp.cumprod((action == real_action) | (real_action < 0), axis=0, dtype=jnp.int32)
    return Imagined(
        acted=acted,
        value=value,
        reward=reward,
        target=target,
        action=action,
        policy=jnp.exp(log_pi),
        q=q,
        legal=played.obs.legal,
        real_value=real_value,
        real_return=real_return,
        real_reward=real_reward,
        real_action=real_action,
        same=jnp.concatenate([jnp.ones_like(acted)[None], followed.astype(bool)]),
        shown=shown,
    )


def first_episodes(played: Play) -> Array:
    """bool [T, N]: steps of the first episodes whose outcome is known.

    The final observation of an episode that a time limit ended is none, and neither is the last entry of all where the
    episode goes on: their root values stand for what would have followed.
    """
    ended = (played.discount == 0).astype(jnp.int32)
    last = jnp.arange(len(ended))[:, None] == len(ended) - 1
    known = played.obs.valid & ((ended == 1) | ~last)
    over = jnp.cumsum(1 - known.astype(jnp.int32), axis=0) + jnp.cumsum(ended, axis=0) - ended
    return known & (over == 0)


def make_mu(legal: Array, taken: Array, options: ImaginationOptions) -> Mu:
    """Who chooses the imagined actions. legal: bool [M, A] of the roots.   taken: int [K, M] really, from there."""
    starts = StartStates(legal, taken, logits_mu=None, epsilon=0.0)
    if options.taken:
        return CONTROLS["original"].make(starts)
    return CONTROLS["pi"].make(starts) if options.sampled else mu_greedy(legal)


def mu_greedy(legal: Array) -> Mu:
    """The likeliest action of the policy, with rho = 1: what is imagined is how the greedy policy goes on.

    legal: bool [M, A] of the roots. Of later imagined states the model may say which are (N12): they are masked then.
    """

    def mu(k: int, logits: Array, key: Key) -> tuple[Array, Array]:
        del key
        allowed = legal if k == 0 else jnp.ones_like(legal)
        action = jnp.argmax(masked_logits(logits, allowed), axis=-1)
        return jax.nn.one_hot(action, logits.shape[-1]), jnp.ones(len(logits))

    return mu


def _what_came(
    played: Play, acted: Array, v: Array, depth: int, config: Config, spec: EnvSpec
) -> tuple[Array, Array, Array, Array]:
    """`real_value, real_return, real_reward, real_action` of `Imagined`. v: [T, N] root values."""
    masks, discount = losses.unroll_masks(played.discount, acted, depth), config.hyper.discount
    ends = auxiliary.follow_ends(played.reward, masks, signed(discount, spec), config.muesli.absorbing)
    # an entry that is no step bears the root value of where its episode was cut, for all that would have followed
    reward, go_on = jnp.where(acted, played.reward, v), jnp.where(acted, discount * played.discount, 0.0)
    return_to_go = returns.lambda_returns(reward, go_on, v, 1.0)

    def known(x: Array, beyond: Array) -> Array:
        """x [K, T, N] of the state k steps on, and of absorbing states what is given; NaN where nothing is known."""
        num = len(x)
        return jnp.where(masks.live[:num], x, jnp.where(masks.absorbed[:num], beyond, jnp.nan))

    actions = jnp.where(masks.live[:depth], later(played.action, depth - 1), -1)
    v_there, return_there = (known(later(x, depth), ends.value) for x in (v, return_to_go))
    return v_there, return_there, known(ends.reward, ends.reward), actions


def errors_by_k(x: Imagined) -> dict[str, Array]:
    """name of `COLUMNS` -> [K + 1] means over all steps, k = 0 .. K; NaN where there is nothing to compare."""
    value_gap, reward_error = jnp.abs(x.value - x.real_value)[1:], jnp.abs(x.reward - x.real_reward)
    same = x.same[1:]

    def mean(error: Array, counts: Array | bool = True) -> Array:
        mask = x.acted[None] & counts & ~jnp.isnan(error)
        return mean_by_depth(error, mask)

    none = jnp.full(1, jnp.nan)
    from_one = {
        "value_gap": mean(value_gap),
        "reward_error": mean(reward_error),
        "same": mean(jnp.where(jnp.isnan(value_gap), jnp.nan, same.astype(value_gap.dtype))),
        "value_gap_same": mean(value_gap, same),
        "reward_error_same": mean(reward_error, same),
    }
    found = {name: jnp.concatenate([none, row]) for name, row in from_one.items()}
    found["sc_error"] = jnp.concatenate([mean(jnp.abs(x.value[:-1] - x.target)), none])
    found["return_gap"] = mean(jnp.abs(x.value - x.real_return))
    return found


def first_alone(x: Imagined) -> Imagined:
    """The first environment's episode: the axis N goes, and T is the steps that were acted. Of NumPy arrays."""
    steps = int(x.acted[:, 0].sum())
    by_action = {name: getattr(x, name)[:steps, 0] for name in ("policy", "q", "legal")}
    shown = None if x.shown is None else x.shown[:, :steps]
    others = {name: value[..., :steps, 0] for name, value in x._asdict().items() if name not in (*by_action, "shown")}
    return x._replace(**by_action, **others, shown=shown)
