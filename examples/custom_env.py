"""Train on an environment of your own: fetch a key in one corner of a grid, then leave by another.

An `Env` is two pure functions of one environment. Batching, resets and episode statistics are done for it.

    PYTHONPATH=examples purejax-sc train starter env=custom_env:make_env train.env_steps=64_000 --seeds 5
"""

import jax
import jax.numpy as jnp

from purejax_sc import Config, Env, EnvSpec, Step, load, make_train

SIZE, TIME_LIMIT = 5, 40
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
State = tuple[jax.Array, jax.Array, jax.Array]  # position [2], whether the key is held, time


def make_env(config: Config | None = None, scale: float = 1.0) -> Env:
    """Build the grid: 0.1 for the first visit of the key, 1 for the exit with it, both times `scale`."""

    def show(state: State, found: jax.Array, left: jax.Array) -> Step:
        position, held, time = state
        here = jnp.zeros((SIZE, SIZE)).at[position[0], position[1]].set(1.0)
        return Step(
            obs=jnp.stack([here, jnp.full((SIZE, SIZE), held, jnp.float32)], axis=-1),
            legal=jnp.ones(len(MOVES), bool),
            reward=jnp.float32(scale) * (0.1 * found + 1.0 * left),
            discount=jnp.where(left, 0.0, 1.0),  # 0 ends the episode
            truncated=(time >= TIME_LIMIT) & ~left,  # a time limit: the value of the last state still counts
            player=jnp.int32(0),
            metrics={},
        )

    def init(key: jax.Array, shared: tuple[()]) -> tuple[State, Step]:
        state = (jax.random.randint(key, (2,), 0, SIZE), jnp.array(False), jnp.int32(0))
        return state, show(state, jnp.array(False), jnp.array(False))

    def step(key: jax.Array, state: State, action: jax.Array) -> tuple[State, Step]:
        position, held, time = state
        position = jnp.clip(position + jnp.array(MOVES)[action], 0, SIZE - 1)
        found = jnp.all(position == 0) & ~held
        state = (position, held | found, time + 1)
        return state, show(state, found, jnp.all(position == SIZE - 1) & state[1])

    spec = EnvSpec(num_actions=len(MOVES), obs_shape=(SIZE, SIZE, 2), obs_dtype=jnp.dtype("float32"), two_player=False)
    return Env(spec, init, step)


def main() -> None:
    """Print the mean return of two seeds, with rewards a hundredth as large."""
    config = load("starter", ["train.env_steps=16_000"])
    train = make_train(config, env=make_env(scale=0.01))
    _, metrics = jax.jit(jax.vmap(train))(jax.vmap(jax.random.key)(jnp.arange(2)))
    returns, episodes = (metrics[f"episode_{name}"][:, -20:].sum(1) for name in ("return_sum", "count"))
    print("mean return by seed, of at most 0.011:", returns / episodes)


if __name__ == "__main__":
    main()
