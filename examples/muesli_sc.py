"""Muesli with self-consistency in one file.

The agent of "Self-Consistent Models and Values" (Farquhar et al., 2021), built on Muesli (Hessel et al., 2021). Comments
mark the equations of the two papers as "paper Eq. 7" and "Muesli Eq. 10".

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
Metrics = dict[str, Array]


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


class Gates(NamedTuple):
    """Shares of the gradient of self-consistency: through the target G, into the value head, into model and encoder."""

    target: float
    value: float
    model: float


UPDATES = {
    "residual": Gates(target=1, value=1, model=1),  # paper Eq. 4
    "direct": Gates(target=0, value=1, model=1),  # paper Eq. 5
    "reverse": Gates(target=1, value=0, model=0),  # paper Eq. 6
    "dyna": Gates(target=0, value=1, model=0),  # paper Eq. 5, but only the value learns
    "model_only": Gates(target=0, value=0, model=1),  # paper Eq. 5, but only the model learns
}


class Batch(NamedTuple):
    """Sequences of real experience. `logits` are of the policy that acted; `discount` is 0 where the episode ended."""

    obs: Array  # [T + 1, B, ...]
    action: Array  # int [T, B]
    logits: Array  # [T, B, A]
    reward: Array  # [T, B]
    discount: Array  # [T, B]


# Network


class Conv(nn.Module):
    """3x3 convolution without padding, as a product of patches: on a CPU, XLA's own is many times slower in a scan."""

    features: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        kernel = self.param("kernel", nn.initializers.lecun_normal(), (3, 3, x.shape[-1], self.features))
        bias = self.param("bias", nn.initializers.zeros, (self.features,))
        rows, columns = x.shape[1] - 2, x.shape[2] - 2
        patches = [x[:, i : i + rows, j : j + columns] for i in range(3) for j in range(3)]
        return jnp.concatenate(patches, axis=-1) @ kernel.reshape(-1, self.features) + bias


class Encoder(nn.Module):
    """The representation h: observations [M, ...] -> z^0 [M, width]."""

    channels: tuple[int, ...]
    width: int

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        x = obs.astype(jnp.float32)
        for features in self.channels:
            x = nn.relu(Conv(features)(x))
        x = nn.relu(nn.Dense(self.width)(x.reshape(x.shape[0], -1)))
        return nn.standardize(nn.Dense(self.width)(x), epsilon=1e-6)


class Dynamics(nn.Module):
    """A step of the model m: z^k [M, width] and an action [M, A] -> z^{k+1}. Standardised latents stay bounded."""

    width: int

    @nn.compact
    def __call__(self, z: Array, a: Array) -> Array:
        x = nn.relu(nn.Dense(self.width)(z) + nn.Dense(self.width, use_bias=False)(a))
        return nn.standardize(z + nn.Dense(self.width)(x), epsilon=1e-6)


class Network(nn.Module):
    """Encoder, model and heads. Real states (k = 0) and states of the model (k >= 1) have separate heads."""

    num_actions: int
    args: Args

    def setup(self) -> None:
        scalar = partial(nn.Dense, self.args.bins, kernel_init=nn.initializers.zeros)  # rewards and values start at 0
        policy = partial(nn.Dense, self.num_actions, kernel_init=nn.initializers.truncated_normal(1e-2))
        self.encoder, self.dynamics = Encoder(self.args.channels, self.args.width), Dynamics(self.args.width)
        self.root_value, self.value, self.reward = scalar(), scalar(), scalar()
        self.root_policy, self.policy = policy(), policy()

    def root(self, obs: Array) -> tuple[Array, Array, Array]:
        """Encode observations [M, ...]: z^0, policy logits and value logits."""
        z = self.encoder(obs)
        return z, self.root_policy(z), self.root_value(z)

    def step(self, z: Array, a: Array) -> tuple[Array, Array, Array, Array]:
        """Take a step of the model: z^{k+1}, then logits of the reward, the policy and the value there."""
        z = self.dynamics(z, a)
        return z, self.reward(z), self.policy(z), self.value(z)

    def __call__(self, obs: Array) -> Tree:
        """Call every part, to initialise it."""
        return self.step(self.root(obs)[0], jnp.zeros((obs.shape[0], self.num_actions)))


# Rewards and values are distributions over bins of the transformed scalar h(x) (paper, appendix A).


def to_bins(args: Args, x: Array) -> Array:
    """Encode raw scalars [...] as probabilities [..., bins] on the two bins nearest to h(x)."""
    atoms, spacing = jnp.linspace(-args.bins_max, args.bins_max, args.bins), 2 * args.bins_max / (args.bins - 1)
    offset = jnp.clip(rlax.signed_hyperbolic(x), -args.bins_max, args.bins_max)[..., None] - atoms
    # Unlike rlax.transform_to_2hot exact, and without a gradient on an atom
    return jax.nn.relu(1.0 - offset * jnp.sign(offset) / spacing)


def from_bins(args: Args, logits: Array) -> Array:
    """Decode logits [..., bins] as raw scalars [...]: h^-1 of the mean."""
    mean = jax.nn.softmax(logits) @ jnp.linspace(-args.bins_max, args.bins_max, args.bins)
    # rlax.signed_parabolic in a form without cancellation: advantages are small differences of such numbers
    w = 2.0 * mean / (jnp.sqrt(1.0 + 4e-3 * (jnp.abs(mean) + 1.001)) + 1.002)
    return w * (2.0 + jnp.abs(w))


# Algorithm 1 of the paper: targets, base loss, self-consistency, update


class Targets(NamedTuple):
    """Regression targets from the target network, without gradient: policy [T, B, A], value and advantage [T, B]."""

    policy: Array
    value: Array
    adv: Array


EMA_INIT, EMA_UPDATE = rlax.create_ema(decay=0.99)  # of the squared advantage (Muesli, section 4.5)


def make_targets(args: Args, net: Network, target: Tree, ema: Tree, batch: Batch) -> tuple[Targets, Tree]:
    """Compute one-step action values, Retrace returns and the CMPO policy."""
    shape, num_actions = batch.obs.shape[:2], net.num_actions
    z, logits, out = net.apply(target, flatten(batch.obs), method="root")
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
    return jax.lax.stop_gradient((Targets(policy[:-1], value, (g - v[:-1]) / sigma), ema))


def base_loss(args: Args, net: Network, params: Tree, targets: Targets, batch: Batch) -> tuple[Array, Array, Array]:
    """Compute the base loss (paper Eq. 2) with Muesli's policy gradient. Also return z^0 and policy logits [M, ...]."""
    z_0, logits, v_0 = net.apply(params, flatten(batch.obs[:-1]), method="root")
    one_hot, z, steps = jax.nn.one_hot(batch.action, net.num_actions), z_0, []
    for k in range(args.unroll):  # real actions; half of the gradient passes each step (MuZero)
        z, *out = net.apply(params, scale_gradient(z, 0.5), flatten(shift(one_hot, k)), method="step")
        steps.append(out)
    reward_k, policy_k, value_k = (jnp.stack(out) for out in zip(*steps, strict=True))  # logits [K, M, ...]

    # Past the end of an episode rewards and values are 0 and there is no policy target. Past the end of a sequence
    # nothing is known, and the shifted arrays wrap around under the masks.
    live, known = follow_episodes(args, batch)
    ahead = range(1, args.unroll + 1)
    reward_target = jnp.stack([shift(batch.reward, k - 1) for k in ahead]) * live[:-1]
    value_target = jnp.stack([shift(targets.value, k) for k in ahead]) * live[1:]
    policy_target = jnp.stack([shift(targets.policy, k) for k in ahead])

    def cross_entropy(logits: Array, probs: Array, mask: Array) -> Array:  # mean over T and B, then over k
        loss = optax.softmax_cross_entropy(logits.reshape(probs.shape), probs)
        return jnp.mean(jnp.sum(loss * mask, axis=(-2, -1)) / jnp.maximum(jnp.sum(mask, axis=(-2, -1)), 1.0))

    pi, mu = distrax.Categorical(logits=logits.reshape(batch.logits.shape)), distrax.Categorical(logits=batch.logits)
    rho = jnp.minimum(1.0, distrax.importance_sampling_ratios(pi, mu, batch.action))
    pg = jnp.mean(-jax.lax.stop_gradient(rho * targets.adv) * pi.log_prob(batch.action))  # Muesli Eq. 9
    cmpo = cross_entropy(logits, targets.policy, live[0])  # KL(CMPO, pi) of Muesli Eq. 9, up to a constant
    model_policy = cross_entropy(policy_k, policy_target, live[1:])  # Muesli Eq. 13
    value = cross_entropy(v_0, to_bins(args, targets.value), live[0])
    model_value = cross_entropy(value_k, to_bins(args, value_target), known[1:])
    reward = cross_entropy(reward_k, to_bins(args, reward_target), known[:-1])
    total = args.pg_weight * pg + cmpo + model_policy + args.value_weight * (value + model_value) + reward
    return total, z_0, logits


def sc_loss(args: Args, net: Network, params: Tree, z: Array, logits: Array, key: Array) -> Array:
    """Compute the self-consistency loss (paper Eq. 7): v(z^k) against G_{k:K} of a rollout of the model under mu = pi.

    Args:
      z, logits: [M, width], [M, A] latents and policy of the real states that rollouts start from.
    """
    gates, value_params = UPDATES[args.update], params["params"]["value"]
    gated = {"params": params["params"] | {"value": scale_gradient(value_params, gates.value)}}
    rewards, values, predictions = [], [], []
    for key_k in jax.random.split(key, args.sc_unroll):
        action = distrax.Categorical(logits=jax.lax.stop_gradient(logits)).sample(seed=key_k)
        one_hot = jax.nn.one_hot(action, net.num_actions)
        z, reward, logits, value = net.apply(params, scale_gradient(z, 0.5), one_hot, method="step")
        prediction = net.apply(gated, scale_gradient(z, gates.model), method=lambda net, z: net.value(z))
        rewards.append(from_bins(args, reward))
        values.append(from_bins(args, value))
        predictions.append(prediction)
    # G_{k:K} = r^{k+1} + discount * G_{k+1:K}, with G_{K:K} = v(z^K). The term k = K compares v with itself: left out.
    g, losses = values[-1], []
    for reward, prediction in zip(rewards[:0:-1], predictions[-2::-1], strict=True):
        g = reward + args.discount * g
        losses.append(optax.softmax_cross_entropy(prediction, to_bins(args, scale_gradient(g, gates.target))))
    return jnp.mean(jnp.stack(losses))


class LearnerState(NamedTuple):
    """Online and target network, state of Adam, and moving second moment of the advantages."""

    params: Tree
    target: Tree
    opt_state: Tree
    ema: Tree


def update(args: Args, net: Network, state: LearnerState, batch: Batch, key: Array) -> tuple[LearnerState, Metrics]:
    """Learn from a batch: gradient, Adam, clipped update, decaying learning rate, target network."""
    targets, ema = make_targets(args, net, state.target, state.ema, batch)

    def loss(params: Tree) -> tuple[Array, Metrics]:
        base, z_0, logits = base_loss(args, net, params, targets, batch)
        sc = jnp.zeros(()) if args.update == "none" else sc_loss(args, net, params, z_0, logits, key)
        return base + args.sc_weight * sc, {"loss": base, "loss_sc": sc}  # paper Eq. 3

    grads, metrics = jax.grad(loss, has_aux=True)(state.params)
    updates, opt_state = make_optimiser(args).update(grads, state.opt_state)
    params = optax.apply_updates(state.params, updates)
    target = optax.incremental_update(params, state.target, args.target_rate)
    return LearnerState(params, target, opt_state, ema), metrics


def make_optimiser(args: Args) -> optax.GradientTransformation:
    """Build Adam with updates clipped to [-1, 1] before the learning rate multiplies them (Muesli)."""
    rate = optax.linear_schedule(args.learning_rate, 0.0, args.num_updates)
    return optax.chain(optax.scale_by_adam(), optax.clip(1.0), optax.scale_by_learning_rate(rate))


def init_learner(args: Args, net: Network, obs: Array, key: Array) -> LearnerState:
    """Initialise the learner, for observations like obs [B, ...]."""
    params = net.init(key, obs)
    return LearnerState(params, params, make_optimiser(args).init(params), EMA_INIT(jnp.zeros(())))


def follow_episodes(args: Args, batch: Batch) -> tuple[Array, Array]:
    """Follow K steps from every state of a batch. Return two masks [K + 1, T, B] of the states k = 0 .. K.

    live: step k of the same episode lies in the sequence.   known: it does, or the episode has ended by then.
    """
    index = jnp.arange(batch.reward.shape[0])[:, None]
    live, ended = [jnp.ones_like(batch.reward)], [jnp.zeros_like(batch.reward)]
    for k in range(1, args.unroll + 1):
        alive = shift(batch.discount, k - 1)
        ended.append(ended[-1] + live[-1] * (1.0 - alive))
        live.append(live[-1] * alive * (index + k < batch.reward.shape[0]))
    return jnp.stack(live), jnp.stack(live) + jnp.stack(ended)


def scale_gradient(x: Tree, scale: float) -> Tree:
    """Return x, and pass on `scale` times its gradient."""
    return jax.tree.map(lambda leaf: scale * leaf + (1 - scale) * jax.lax.stop_gradient(leaf), x)


def flatten(x: Array) -> Array:
    """Merge time and batch: [T, B, ...] -> [M, ...]."""
    return x.reshape(-1, *x.shape[2:])


def shift(x: Array, k: int) -> Array:
    """Move entry t + k to t; the last k entries wrap around."""
    return jnp.roll(x, -k, axis=0)


# Acting, replay and training


class TrainState(NamedTuple):
    """All that training carries on. score: [B] returns so far.   replay: `Batch` whose leading axis is the row."""

    learner: LearnerState
    env: Tree
    obs: Array
    score: Array
    replay: Batch
    key: Array


def make_train(args: Args) -> Callable[[Array], tuple[TrainState, Metrics]]:
    """Build train(key) -> (state, metrics [updates]), a pure function: `jit` it, `vmap` it over keys."""
    env, env_params = gymnax.make(args.env)
    net = Network(env.num_actions, args)
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
        learner = init_learner(args, net, start[1], key_params)
        shapes = jax.eval_shape(act, learner.params, start, key)[1]
        replay = jax.tree.map(lambda x: jnp.zeros((blocks * args.num_envs, x.shape[0], *x.shape[2:]), x.dtype), shapes)
        return TrainState(learner, *start, replay, key)

    def iterate(state: TrainState, i: Array) -> tuple[TrainState, Metrics]:
        key, key_act, key_replay, key_update = jax.random.split(state.key, 4)
        end, fresh, (total, count) = act(state.learner.target, state[1:4], key_act)
        rows, row = jax.tree.map(lambda x: x.swapaxes(0, 1), fresh), i % blocks * args.num_envs
        replay = jax.tree.map(partial(jax.lax.dynamic_update_slice_in_dim, start_index=row, axis=0), state.replay, rows)
        filled = jnp.minimum(i + 1, blocks) * args.num_envs
        index = jax.random.randint(key_replay, (args.replayed,), 0, filled)
        old = jax.tree.map(lambda x: x[index].swapaxes(0, 1), replay)
        batch = jax.tree.map(lambda *x: jnp.concatenate(x, axis=1), fresh, old)
        learner, metrics = update(args, net, state.learner, batch, key_update)
        return TrainState(learner, *end, replay, key), metrics | {"return_sum": total, "episodes": count}

    return lambda key: jax.lax.scan(iterate, init(key), jnp.arange(args.num_updates))


def learning_curves(args: Args, metrics: Metrics, points: int = 50) -> tuple[np.ndarray, np.ndarray]:
    """Average the returns of the episodes that ended in each part of a run: steps [points], returns [seeds, points]."""
    ends = np.linspace(0, args.num_updates, min(points, args.num_updates) + 1).astype(int)
    total, count = (np.add.reduceat(np.asarray(metrics[x]), ends[:-1], axis=1) for x in ("return_sum", "episodes"))
    return ends[1:] * args.num_envs * args.sequence_length, total / np.where(count > 0, count, np.nan)


def parse_args() -> Args:
    """Read the command line: any field of `Args`, over the preset of the environment."""
    parser = argparse.ArgumentParser(description="Muesli with self-consistency in one file.")
    for name, value in Args()._asdict().items():
        options: dict[str, Any] = {"nargs": "*", "type": int} if name == "channels" else {"type": type(value)}
        choices = ["none", *UPDATES] if name == "update" else None
        parser.add_argument(f"--{name.replace('_', '-')}", choices=choices, default=argparse.SUPPRESS, **options)
    given = vars(parser.parse_args())
    given |= {"channels": tuple(given["channels"])} if "channels" in given else {}
    return (MINATAR if given.get("env", "").endswith("MinAtar") else Args())._replace(**given)


def main() -> None:
    """Train all seeds, print their last returns and draw their learning curves."""
    args = parse_args()
    train, started = make_train(args), time.perf_counter()
    over_seeds = partial(jax.lax.map, train) if jax.default_backend() == "cpu" else jax.vmap(train)  # one by one
    keys = jax.random.split(jax.random.key(args.seed), args.seeds)
    metrics = jax.device_get(jax.jit(lambda keys: over_seeds(keys)[1])(keys))
    print(f"{args.seeds} seeds of {args.env_steps:,} steps in {time.perf_counter() - started:.0f} s with compilation")
    steps, curves = learning_curves(args, metrics)
    print("mean return in the last tenth of training, by seed:", np.nanmean(curves[:, -5:], axis=1).round(3))
    axes = plt.figure(layout="constrained").subplots()
    axes.plot(steps, curves.T, color="tab:blue", alpha=0.3)
    axes.plot(steps, curves.mean(axis=0), color="tab:blue", label=f"{args.update}, mean of {args.seeds} seeds")
    axes.set(xlabel="environment steps", ylabel="episode return", title=args.env)
    axes.legend()
    plt.savefig(f"muesli_sc_{args.env}_{args.update}.png")


if __name__ == "__main__":
    main()
