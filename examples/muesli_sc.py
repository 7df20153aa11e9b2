"""Muesli with self-consistency in one file.

The agent of "Self-Consistent Models and Values" (Farquhar et al., 2021), built on Muesli (Hessel et al., 2021), from
the environment to the learning curves. Comments number equations as in "paper Eq. 7" and "Muesli Eq. 10". It needs jax,
flax, optax, distrax, rlax, gymnax and matplotlib; `pip install -e ".[test]"` brings them all.

    python examples/muesli_sc.py --env Catch-bsuite --seeds 5 --update direct
    python examples/muesli_sc.py --env Breakout-MinAtar --seeds 1 --update none

`make_train(args)` returns `train(key)`, a whole run as one pure function: `jax.jit(jax.vmap(train))(keys)` trains many
seeds. Arrays are time-major. T: steps of a sequence, B: sequences, A: actions, M = T * B: states in one flat batch,
K: steps of the model. Index t of rewards and discounts holds what followed the action a_t.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import distrax
import flax.linen as nn
import gymnax
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
import rlax
from jax import Array

Tree = Any  # a pytree of arrays
merge = partial(jax.lax.collapse, start_dimension=0, stop_dimension=2)  # time and batch: [T, B, ...] -> [M, ...]


class Args(NamedTuple):
    """Settings of a run. The defaults are those for Catch; without a comment, a number is the paper's."""

    env: str = "Catch-bsuite"
    update: str = "direct"  # a row of UPDATES, or "none" for Muesli alone
    seeds: int = 5
    seed: int = 0
    env_steps: int = 64_000
    num_envs: int = 16  # each of them adds one fresh sequence to every batch
    sequence_length: int = 8  # T; 30 in the paper
    replayed: int = 16  # replayed sequences in every batch
    replay_capacity: int = 20_000  # environment steps
    channels: tuple[int, ...] = ()  # of 3x3 convolutions before the hidden layer
    width: int = 64  # of the latent and of the hidden layer
    bins: int = 21  # 601 in the paper
    bins_max: float = 5.0  # 300 in the paper
    unroll: int = 5  # K of the base loss
    sc_unroll: int = 3  # K of self-consistency
    learning_rate: float = 2e-3  # decays linearly to 0; 3e-4 in the paper
    discount: float = 0.99  # 0.995 in the paper
    trace: float = 0.95  # lambda of Retrace
    target_rate: float = 0.1  # share of the online network that the target network takes over per update
    prior_behaviour: float = 0.03  # shares of the behaviour policy and of the uniform policy in the prior (Muesli)
    prior_uniform: float = 0.003
    pg_weight: float = 3.0
    value_weight: float = 0.25
    sc_weight: float = 0.25

    @property
    def num_updates(self) -> int:
        """Iterations of acting, storing and learning once."""
        return -(-self.env_steps // (self.num_envs * self.sequence_length))


# The exploration by a larger uniform share and the slow target network keep the policy from becoming deterministic.
MINATAR = Args(env="Breakout-MinAtar", env_steps=1_000_000, num_envs=4, sequence_length=32, replayed=4)._replace(
    replay_capacity=100_000, channels=(16, 16), width=128, bins=51, bins_max=10.0
)
MINATAR = MINATAR._replace(learning_rate=3e-3, discount=0.995, target_rate=0.025, prior_uniform=0.1)


# Where the gradient of self-consistency flows: through the target G, into the value head, into model and encoder
UPDATES = {
    "residual": (1.0, 1.0, 1.0),  # paper Eq. 4
    "direct": (0.0, 1.0, 1.0),  # paper Eq. 5
    "reverse": (1.0, 0.0, 0.0),  # paper Eq. 6
    "dyna": (0.0, 1.0, 0.0),  # paper Eq. 5, but only the value learns
    "model_only": (0.0, 0.0, 1.0),  # paper Eq. 5, but only the model learns
}


class Batch(NamedTuple):
    """Sequences of real experience. `logits` are of the policy that acted; `discount` is 0 where the episode ended."""

    obs: Array  # [T + 1, B, ...]
    action: Array  # int [T, B]
    logits: Array  # [T, B, A]
    reward: Array  # [T, B]
    discount: Array  # [T, B]


def convolve(x: Array, kernel: Array, *_: Any, **__: Any) -> Array:
    """Convolve 3x3 without padding, as a product of patches: in a scan on a CPU, XLA's own is many times slower."""
    rows, columns = x.shape[1] - 2, x.shape[2] - 2
    patches = [x[:, i : i + rows, j : j + columns] for i in range(3) for j in range(3)]
    return jnp.concatenate(patches, axis=-1) @ kernel.reshape(-1, kernel.shape[-1])


class Network(nn.Module):  # type: ignore[misc]
    """Encoder, model and heads. Real states (k = 0) and states of the model (k >= 1) have separate heads."""

    num_actions: int
    args: Args

    def setup(self) -> None:
        width, layers = self.args.width, []
        for features in self.args.channels:
            layers += [nn.Conv(features, (3, 3), padding="VALID", conv_general_dilated=convolve), nn.relu]
        layers += [lambda x: x.reshape(x.shape[0], -1), nn.Dense(width), nn.relu, nn.Dense(width)]
        self.encoder = nn.Sequential(layers)
        self.from_z, self.from_a, self.to_z = nn.Dense(width), nn.Dense(width, use_bias=False), nn.Dense(width)
        scalar = partial(nn.Dense, self.args.bins, kernel_init=nn.initializers.zeros)  # rewards and values start at 0
        policy = partial(nn.Dense, self.num_actions, kernel_init=nn.initializers.truncated_normal(1e-2))
        self.root_value, self.value, self.reward = scalar(), scalar(), scalar()
        self.root_policy, self.policy = policy(), policy()

    def root(self, obs: Array) -> tuple[Array, Array, Array]:
        """Encode observations [M, ...]: z^0 [M, width], policy logits [M, A] and value logits [M, bins]."""
        z = nn.standardize(self.encoder(obs.astype(jnp.float32)), epsilon=1e-6)
        return z, self.root_policy(z), self.root_value(z)

    def step(self, z: Array, a: Array) -> tuple[Array, Array, Array, Array]:
        """Take a step of the model by actions a [M, A]: z^{k+1}, and logits of reward, policy and value."""
        x = nn.relu(self.from_z(z) + self.from_a(a))
        z = nn.standardize(z + self.to_z(x), epsilon=1e-6)  # bounded, however many steps follow
        return z, self.reward(z), self.policy(z), self.value(z)

    def __call__(self, obs: Array) -> Tree:
        """Call every part, to initialise it."""
        return self.step(self.root(obs)[0], jnp.zeros((obs.shape[0], self.num_actions)))


def to_bins(args: Args, x: Array) -> Array:
    """Encode rewards or values [...] as probabilities [..., bins] on the two bins nearest to h(x) (paper, appendix)."""
    atoms, spacing = jnp.linspace(-args.bins_max, args.bins_max, args.bins), 2 * args.bins_max / (args.bins - 1)
    offset = jnp.clip(rlax.signed_hyperbolic(x), -args.bins_max, args.bins_max)[..., None] - atoms
    # Unlike rlax.transform_to_2hot exact, and without a gradient on an atom
    return jax.nn.relu(1.0 - offset * jnp.sign(offset) / spacing)


def from_bins(args: Args, logits: Array) -> Array:
    """Decode logits [..., bins] as rewards or values [...]: h^-1 of the mean."""
    mean = jax.nn.softmax(logits) @ jnp.linspace(-args.bins_max, args.bins_max, args.bins)
    # rlax.signed_parabolic in a form without cancellation: advantages are small differences of such numbers
    w = 2.0 * mean / (jnp.sqrt(1.0 + 4e-3 * (jnp.abs(mean) + 1.001)) + 1.002)
    return w * (2.0 + jnp.abs(w))


EMA_INIT, EMA_UPDATE = rlax.create_ema(decay=0.99)  # of the squared advantage (Muesli, section 4.5)


def make_targets(args: Args, net: Network, target: Tree, ema: Tree, batch: Batch) -> tuple[Tree, Tree]:
    """Compute policies (CMPO) [T, B, A], values and advantages [T, B] by the target network, without gradient."""
    shape, num_actions = batch.obs.shape[:2], net.num_actions
    z, logits, out = net.apply(target, merge(batch.obs), method="root")
    v, pi = from_bins(args, out).reshape(shape), jax.nn.softmax(logits).reshape(*shape, num_actions)

    def look_ahead(a: Array) -> Array:  # q(s, a) = r^1 + discount * v^1 (Muesli Eq. 14)
        _, reward, _, value = net.apply(target, z, jnp.broadcast_to(a, (z.shape[0], num_actions)), method="step")
        return from_bins(args, reward) + args.discount * from_bins(args, value)

    q = jax.vmap(look_ahead, out_axes=-1)(jnp.eye(num_actions)).reshape(pi.shape)

    # Nobody has acted in the last state yet: the target policy stands in for the behaviour there.
    behaviour = jnp.concatenate([jax.nn.softmax(batch.logits), pi[-1:]])
    share_pi = 1.0 - args.prior_behaviour - args.prior_uniform
    prior = share_pi * pi + args.prior_behaviour * behaviour + args.prior_uniform / num_actions
    mu = distrax.Categorical(logits=batch.logits)
    rho = distrax.importance_sampling_ratios(distrax.Categorical(logits=jnp.log(prior[:-1])), mu, batch.action)

    v_q, rho = jnp.sum(prior * q, axis=-1), jnp.minimum(1.0, rho)
    q_taken = jnp.take_along_axis(q[:-1], batch.action[..., None], axis=-1)[..., 0]
    retrace = jax.vmap(rlax.general_off_policy_returns_from_q_and_v, in_axes=1, out_axes=1)  # Munos et al. (2016)
    g = retrace(q_taken[1:], v_q[1:], batch.reward, args.discount * batch.discount, args.trace * rho[1:])
    value = v_q[:-1] + rho * (g - q_taken)  # G estimates q(s_t, a_t): corrected for a_t, it estimates v(s_t)

    moments, ema = EMA_UPDATE(jnp.mean((g - v[:-1]) ** 2), ema)
    sigma = jnp.sqrt(moments.mean + 1e-12)
    adv = jnp.clip((q - v[..., None]) / sigma, -1.0, 1.0)
    policy = jax.nn.softmax(jnp.log(prior) + adv)  # CMPO (paper Eq. 8, Muesli Eq. 10), exact over all actions
    return jax.lax.stop_gradient(((policy[:-1], value, (g - v[:-1]) / sigma), ema))


def base_loss(args: Args, net: Network, params: Tree, targets: Tree, batch: Batch) -> tuple[Array, Array, Array]:
    """Compute the base loss (paper Eq. 2) with Muesli's policy gradient. Also return z^0 and policy logits [M, ...]."""
    (policy, v_target, adv), num_steps = targets, batch.reward.shape[0]

    def follow(x: Array, first: int) -> Array:  # [K, T, B, ...] of t + first and after, which wraps around at the end
        return jnp.stack([jnp.roll(x, -k, axis=0) for k in range(first, first + args.unroll)])

    # live: k steps on, the episode and the sequence go on.   known: they do, or the episode has ended by then.
    inside = jnp.arange(num_steps)[:, None] + jnp.arange(args.unroll + 1)[:, None, None] < num_steps
    goes_on = jnp.where(inside[:-1], follow(batch.discount, 0), 1.0)
    alive = jnp.cumprod(jnp.concatenate([jnp.ones_like(goes_on[:1]), goes_on]), axis=0)
    live, known = alive * inside, alive * inside + 1.0 - alive

    z_0, logits, v_0 = net.apply(params, merge(batch.obs[:-1]), method="root")
    z, steps = z_0, []
    for a in follow(jax.nn.one_hot(batch.action, net.num_actions), 0):
        z, *out = net.apply(params, scale_gradient(z, 0.5), merge(a), method="step")  # half the gradient (MuZero)
        steps.append(out)
    reward_k, policy_k, value_k = (jnp.stack(out) for out in zip(*steps, strict=True))  # logits [K, M, ...]

    def cross_entropy(logits: Array, probs: Array, mask: Array) -> Array:  # mean over T and B, then over k
        loss = optax.softmax_cross_entropy(logits.reshape(probs.shape), probs)
        return jnp.mean(jnp.sum(loss * mask, axis=(-2, -1)) / jnp.maximum(jnp.sum(mask, axis=(-2, -1)), 1.0))

    pi, mu = distrax.Categorical(logits=logits.reshape(batch.logits.shape)), distrax.Categorical(logits=batch.logits)
    rho = jnp.minimum(1.0, distrax.importance_sampling_ratios(pi, mu, batch.action))
    pg = jnp.mean(-jax.lax.stop_gradient(rho * adv) * pi.log_prob(batch.action))  # Muesli Eq. 9
    cmpo = cross_entropy(logits, policy, live[0])  # KL(CMPO, pi) of Muesli Eq. 9, up to a constant
    model_policy = cross_entropy(policy_k, follow(policy, 1), live[1:])  # Muesli Eq. 13
    value = cross_entropy(v_0, to_bins(args, v_target), live[0])
    # Once an episode has ended, rewards and values are 0 (Muesli).
    model_value = cross_entropy(value_k, to_bins(args, follow(v_target, 1) * live[1:]), known[1:])
    reward = cross_entropy(reward_k, to_bins(args, follow(batch.reward, 0) * live[:-1]), known[:-1])
    total = args.pg_weight * pg + cmpo + model_policy + args.value_weight * (value + model_value) + reward
    return total, z_0, logits


def sc_loss(args: Args, net: Network, params: Tree, z: Array, logits: Array, key: Array) -> Array:
    """Compute the self-consistency loss (paper Eq. 7) of rollouts under mu = pi from z [M, width], logits [M, A]."""
    to_target, to_value, to_model = UPDATES[args.update]
    # v(z^k) is compared with G_{k:K} = r^{k+1} + discount * G_{k+1:K}, G_{K:K} = v(z^K), for k = 1 .. K - 1.
    value_head = {"params": scale_gradient(params["params"]["value"], to_value)}
    rewards, values, predictions = [], [], []
    for key_k in jax.random.split(key, args.sc_unroll):
        action = distrax.Categorical(logits=jax.lax.stop_gradient(logits)).sample(seed=key_k)
        one_hot = jax.nn.one_hot(action, net.num_actions)
        z, reward, logits, value = net.apply(params, scale_gradient(z, 0.5), one_hot, method="step")
        rewards.append(from_bins(args, reward))
        values.append(from_bins(args, value))
        predictions.append(nn.Dense(args.bins).apply(value_head, scale_gradient(z, to_model)))
    g, losses = values[-1], []
    for reward, prediction in zip(rewards[:0:-1], predictions[-2::-1], strict=True):
        g = reward + args.discount * g
        losses.append(optax.softmax_cross_entropy(prediction, to_bins(args, scale_gradient(g, to_target))))
    return jnp.mean(jnp.stack(losses))


class LearnerState(NamedTuple):
    """Online and target network, state of Adam, and moving second moment of the advantages."""

    params: Tree
    target: Tree
    opt_state: Tree
    ema: Tree


def make_learner(args: Args, net: Network) -> tuple[Callable[..., LearnerState], Callable[..., Any]]:
    """Build init(key, obs [B, ...]) -> state and update(state, batch, key) -> (state, metrics)."""
    # Adam's updates are clipped, then multiplied by a learning rate that decays to 0 (Muesli).
    rate = optax.linear_schedule(args.learning_rate, 0.0, args.num_updates)
    optimiser = optax.chain(optax.scale_by_adam(), optax.clip(1.0), optax.scale_by_learning_rate(rate))

    def init(key: Array, obs: Array) -> LearnerState:
        params = net.init(key, obs)
        return LearnerState(params, params, optimiser.init(params), EMA_INIT(jnp.zeros(())))

    def update(state: LearnerState, batch: Batch, key: Array) -> tuple[LearnerState, Tree]:
        targets, ema = make_targets(args, net, state.target, state.ema, batch)

        def loss(params: Tree) -> tuple[Array, Tree]:
            base, z_0, logits = base_loss(args, net, params, targets, batch)
            sc = jnp.zeros(()) if args.update == "none" else sc_loss(args, net, params, z_0, logits, key)
            return base + args.sc_weight * sc, {"loss": base, "loss_sc": sc}  # paper Eq. 3

        grads, metrics = jax.grad(loss, has_aux=True)(state.params)
        updates, opt_state = optimiser.update(grads, state.opt_state)
        params = optax.apply_updates(state.params, updates)
        target = optax.incremental_update(params, state.target, args.target_rate)
        return LearnerState(params, target, opt_state, ema), metrics

    return init, update


def scale_gradient(x: Tree, scale: float) -> Tree:
    """Return x, and pass on `scale` times its gradient."""
    return jax.tree.map(lambda leaf: scale * leaf + (1 - scale) * jax.lax.stop_gradient(leaf), x)


class TrainState(NamedTuple):
    """All that training carries from one iteration to the next."""

    learner: LearnerState
    envs: Tree  # gymnax's states, observations, and returns of the episodes so far, all [B, ...]
    replay: Batch  # whose leading axis are sequences
    key: Array


def make_train(args: Args) -> Callable[[Array], tuple[TrainState, Tree]]:
    """Build train(key) -> (state, metrics [updates]), a pure function: `jit` it, `vmap` it over keys."""
    env, env_params = gymnax.make(args.env)
    net = Network(env.num_actions, args)
    init_learner, update = make_learner(args, net)
    dtype = jnp.bool_ if args.env.endswith("MinAtar") else jnp.float32  # of stored observations
    blocks = args.replay_capacity // (args.num_envs * args.sequence_length)  # of num_envs rows in the replay

    def act(params: Tree, start: Tree, key: Array) -> Tree:
        """Act for T steps by the policy of the target network, which Muesli calls the prior."""

        def step(now: Tree, key: Array) -> Tree:
            (state, obs, score), (key_act, key_env) = now, jax.random.split(key)
            _, logits, _ = net.apply(params, obs, method="root")
            action = distrax.Categorical(logits=logits).sample(seed=key_act)
            step_env = jax.vmap(env.step, (0, 0, 0, None))  # resets at the end of an episode
            keys = jax.random.split(key_env, args.num_envs)
            obs_next, state, reward, terminated, truncated, _ = step_env(keys, state, action, env_params)
            done = terminated | truncated  # a time limit counts as an end here
            score, returns = score + reward, jnp.where(done, score + reward, 0.0)
            now = (state, obs_next.astype(dtype), jnp.where(done, 0.0, score))
            return now, ((obs, action, logits, reward, 1.0 - done), (jnp.sum(returns), jnp.sum(done)))

        end, ((obs, *rest), ends) = jax.lax.scan(step, start, jax.random.split(key, args.sequence_length))
        return end, Batch(jnp.concatenate([obs, end[1][None]]), *rest), jax.tree.map(jnp.sum, ends)

    def init(key: Array) -> TrainState:
        key, key_env, key_params = jax.random.split(key, 3)
        obs, state = jax.vmap(env.reset, (0, None))(jax.random.split(key_env, args.num_envs), env_params)
        start = (state, obs.astype(dtype), jnp.zeros(args.num_envs))
        learner = init_learner(key_params, start[1])
        shapes = jax.eval_shape(act, learner.params, start, key)[1]
        replay = jax.tree.map(lambda x: jnp.zeros((blocks * args.num_envs, x.shape[0], *x.shape[2:]), x.dtype), shapes)
        return TrainState(learner, start, replay, key)

    def iterate(state: TrainState, i: Array) -> tuple[TrainState, Tree]:
        key, key_act, key_replay, key_update = jax.random.split(state.key, 4)
        end, fresh, (total, count) = act(state.learner.target, state.envs, key_act)
        rows, row = jax.tree.map(lambda x: x.swapaxes(0, 1), fresh), i % blocks * args.num_envs
        replay = jax.tree.map(partial(jax.lax.dynamic_update_slice_in_dim, start_index=row, axis=0), state.replay, rows)
        filled = jnp.minimum(i + 1, blocks) * args.num_envs
        index = jax.random.randint(key_replay, (args.replayed,), 0, filled)
        old = jax.tree.map(lambda x: x[index].swapaxes(0, 1), replay)
        batch = jax.tree.map(lambda *x: jnp.concatenate(x, axis=1), fresh, old)
        learner, metrics = update(state.learner, batch, key_update)
        return TrainState(learner, end, replay, key), metrics | {"return_sum": total, "episodes": count}

    return lambda key: jax.lax.scan(iterate, init(key), jnp.arange(args.num_updates))


def parse_args() -> Args:
    """Read the command line: any field of `Args` but `channels`, over the preset of the environment."""
    parser = argparse.ArgumentParser(description="Muesli with self-consistency in one file.")
    for name, value in Args()._asdict().items():
        if name != "channels":
            choices = ["none", *UPDATES] if name == "update" else None
            option = f"--{name.replace('_', '-')}"
            parser.add_argument(option, type=type(value), choices=choices, default=argparse.SUPPRESS)
    given = vars(parser.parse_args())
    return (MINATAR if given.get("env", "").endswith("MinAtar") else Args())._replace(**given)


def main() -> None:
    """Train all seeds, print their last returns and draw their learning curves."""
    args = parse_args()
    train, started = make_train(args), time.perf_counter()
    over_seeds = partial(jax.lax.map, train) if jax.default_backend() == "cpu" else jax.vmap(train)  # one by one
    keys = jax.random.split(jax.random.key(args.seed), args.seeds)
    metrics = jax.device_get(jax.jit(lambda keys: over_seeds(keys)[1])(keys))
    print(f"{args.seeds} seeds of {args.env_steps:,} steps in {time.perf_counter() - started:.0f} s with compilation")
    ends = np.linspace(0, args.num_updates, min(50, args.num_updates) + 1).astype(int)  # of the points of the curves
    total, count = (np.add.reduceat(metrics[name], ends[:-1], axis=1) for name in ("return_sum", "episodes"))
    steps, curves = ends[1:] * args.num_envs * args.sequence_length, total / np.where(count > 0, count, np.nan)
    print("mean return in the last tenth of training, by seed:", np.nanmean(curves[:, -5:], axis=1).round(3))
    axes = plt.figure(layout="constrained").subplots()
    axes.plot(steps, curves.T, color="tab:blue", alpha=0.3)
    axes.plot(steps, curves.mean(axis=0), color="tab:blue", label=f"{args.update}, mean of {args.seeds} seeds")
    axes.set(xlabel="environment steps", ylabel="episode return", title=args.env)
    axes.legend()
    plt.savefig(f"muesli_sc_{args.env}_{args.update}.png")


if __name__ == "__main__":
    main()
