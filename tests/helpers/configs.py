"""Small configurations: of an environment on the device, and of one on the host."""

from importlib import import_module

import jax
import numpy as np

from helpers import host_games
from purejax_sc.config import Config, from_tree
from purejax_sc.config.sections import FAMILIES

SMALL = {
    "env": "garnet",
    "network": {"kind": "mlp", "width": 16, "head_width": 0},
    "train": {"env_steps": 64, "num_envs": 4, "sequence_length": 4, "batch_sequences": 12, "replay_share": 2 / 3},
    "replay": {"capacity": 256},
    "muesli": {"unroll": 2, "bins": 11, "value_max": 5.0, "spacing": "even", "num_action_samples": 0},
    "sc": {"update": "direct", "unroll": 3},
}


def small(**sections: object) -> Config:
    """The small configuration with some sections updated."""
    tree = {key: dict(value) if isinstance(value, dict) else value for key, value in SMALL.items()}
    for name, section in sections.items():
        tree[name] = {**tree.get(name, {}), **section} if isinstance(section, dict) else section
    return from_tree(tree)


LENGTHS = (3, 2, 5, 7)
SMALL_HOST = {
    "env": "atari/Pong",
    "atari": {"stack": 2},
    "network": {"kind": "mlp", "width": 8, "head_width": 0},
    "train": {
        "env_steps": 4 * 6 * 8, "num_envs": 4, "sequence_length": 6, "batch_sequences": 8, "replay_share": 0.5,
        "log_points": 4,
    },
    "replay": {"capacity": 4 * 6 * 4},
    "host": {"actors": 2},
    "muesli": {"unroll": 2, "bins": 11, "value_max": 5.0, "spacing": "even", "num_action_samples": 0},
    "sc": {"update": "direct", "unroll": 3},
}  # fmt: skip


def small_host(**sections: dict) -> Config:
    tree = {key: dict(value) if isinstance(value, dict) else value for key, value in SMALL_HOST.items()}
    for name, section in sections.items():
        tree[name] = {**tree.get(name, {}), **section}
    return from_tree(tree)


def make_envs(num_envs: int, seed: int) -> host_games.CountingEnvs:
    return host_games.CountingEnvs(LENGTHS[:num_envs])


def assert_close(one, other, **tolerance):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance), one, other)


CONTINUOUS = {"Pendulum-v1", "MountainCarContinuous-v0", "PointRobot-misc", "Reacher-misc", "Swimmer-misc"}


def env_names() -> tuple[str, ...]:
    """Every value of `config.env` that runs on the device."""
    modules = [import_module(family.module) for family in FAMILIES.values() if not family.host]
    return tuple(name for module in modules for name in module.names() if name.partition("/")[2] not in CONTINUOUS)
