"""MinAtar with rejax's PPO: appends its learning curves to bench/results/peers_minatar.csv.

    python -m venv peers && peers/bin/pip install rejax==0.1.3 gymnax==1.0.1
    peers/bin/python bench/peers.py Asterix Breakout Freeway SpaceInvaders

The settings are those of `ppo` in rejax's benchmark/breakout_1m.yaml, the only ones it has published for MinAtar. Its
learning rate is constant. Returns are of the episodes that ended in training since the point before, as ours are.
"""

import argparse
import csv
import time
from pathlib import Path
from typing import Any, NamedTuple

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import rejax

SETTINGS = {
    "agent_kwargs": {"activation": "tanh"},
    "num_envs": 32,
    "num_steps": 32,
    "num_epochs": 4,
    "num_minibatches": 4,
    "learning_rate": 0.00025674088686342003,
    "max_grad_norm": 1.0,
    "gamma": 0.995,
    "gae_lambda": 0.95,
    "clip_eps": 0.2,
    "ent_coef": 0.01,
    "vf_coef": 0.5,
}
STEPS, SEEDS, POINT = 1_000_000, 5, 10_000  # POINT: environment steps between log points
RESULTS = Path(__file__).parent / "results" / "peers_minatar.csv"


class Episodes(NamedTuple):
    """State of the environment, return of the episode so far, and the number and returns of those that ended."""

    env: Any
    so_far: jax.Array
    ended: jax.Array
    returns: jax.Array


class Counted:
    """A gymnax environment that counts its episodes and returns the five values that rejax unpacks."""

    def __init__(self, env: Any) -> None:
        self.wrapped = env
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.default_params = env.default_params

    def reset(self, key: jax.Array, params: Any) -> tuple[Any, ...]:
        obs, state = self.wrapped.reset(key, params)
        return obs, Episodes(state, jnp.zeros(()), jnp.zeros(()), jnp.zeros(()))

    def step(self, key: jax.Array, state: Episodes, action: jax.Array, params: Any) -> tuple[Any, ...]:
        obs, env, reward, terminated, truncated, info = self.wrapped.step(key, state.env, action, params)
        done, total = terminated | truncated, state.so_far + reward
        state = Episodes(env, total * (1 - done), state.ended + done, state.returns + total * done)
        return obs, state, reward, done, info


def train(game: str) -> tuple[np.ndarray, np.ndarray]:
    """Environment steps [points] and mean returns [seeds, points], NaN where no episode ended."""
    algorithm = rejax.get_algo("ppo").create(
        env=Counted(gymnax.make(game)[0]),
        total_timesteps=STEPS,
        eval_freq=POINT,
        skip_initial_evaluation=True,
        **SETTINGS,
    )
    algorithm = algorithm.replace(
        eval_callback=lambda _, state, key: (
            state.global_step,
            state.env_state.ended.sum(),
            state.env_state.returns.sum(),
        )
    )
    keys = jax.vmap(jax.random.key)(jnp.arange(SEEDS))
    _, (steps, ended, returns) = jax.jit(jax.vmap(algorithm.train))(keys)
    episodes, totals = np.diff(ended, prepend=0.0), np.diff(returns, prepend=0.0)
    return np.asarray(steps[0]), np.where(episodes > 0, totals / np.maximum(episodes, 1), np.nan)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("games", nargs="+", help="for example Asterix")
    for game in parser.parse_args().games:
        env, start = f"{game}-MinAtar", time.perf_counter()
        steps, returns = train(env)
        with RESULTS.open("a", newline="", encoding="utf-8") as file:
            for seed, curve in enumerate(returns):
                csv.writer(file, lineterminator="\n").writerows(
                    ("rejax PPO", env, STEPS, seed, step, round(float(value), 3))
                    for step, value in zip(steps, curve, strict=True)
                    if step <= STEPS and np.isfinite(value)
                )
        print(f"{env}: {np.nanmean(returns[:, -10:]):.1f}, {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
