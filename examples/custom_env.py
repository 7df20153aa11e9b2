"""Train on an environment of your own: a ring of cells, on which the agent walks to a goal.

An `Env` is two pure functions of one environment. Batching, resets and episode statistics are done for it.
"""

import jax
import jax.numpy as jnp

from purejax_sc import Env, EnvSpec, Step, load, make_train

CELLS, TIME_LIMIT = 8, 20


def show(position: jax.Array, goal: jax.Array, time: jax.Array) -> Step:
    """Return what the agent sees of a state, and what the last action earned."""
    arrived = position == goal
    return Step(
        obs=jnp.stack([jnp.arange(CELLS) == position, jnp.arange(CELLS) == goal]),
        legal=jnp.ones(2, bool),
        reward=jnp.where(arrived, 1.0, 0.0),
        discount=jnp.where(arrived, 0.0, 1.0),  # 0 ends the episode
        truncated=(time >= TIME_LIMIT) & ~arrived,  # a time limit: the value of the last state still counts
        player=jnp.int32(0),
        metrics={},
    )


def init(key: jax.Array, shared: tuple[()]) -> tuple[tuple[jax.Array, ...], Step]:
    """Start at cell 0, with the goal on any other cell."""
    state = (jnp.int32(0), jax.random.randint(key, (), 1, CELLS), jnp.int32(0))
    return state, show(*state)


def step(key: jax.Array, state: tuple[jax.Array, ...], action: jax.Array) -> tuple[tuple[jax.Array, ...], Step]:
    """Walk one cell: action 0 to the left, action 1 to the right."""
    position, goal, time = state
    state = ((position + 2 * action - 1) % CELLS, goal, time + 1)
    return state, show(*state)


def main() -> None:
    """Train and print the length of episodes: on average the nearest way takes 2.3 steps."""
    spec = EnvSpec(num_actions=2, obs_shape=(2, CELLS), obs_dtype=jnp.dtype(bool), two_player=False)
    config = load("catch", ["train.env_steps=20_000", "sc.update=direct"])  # its sizes suit other small tasks
    train = make_train(config, env=Env(spec, init, step))
    _, metrics = jax.jit(train)(jax.random.key(0))
    for part in (slice(0, 10), slice(-10, None)):
        length = metrics["episode_length_sum"][part].sum() / metrics["episode_count"][part].sum()
        print(f"mean episode length: {length:.1f} steps")


if __name__ == "__main__":
    main()
