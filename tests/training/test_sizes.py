"""What does not fit in memory is refused by name, before anything is compiled."""

import pytest
from helpers.configs import small

from purejax_sc.config import ConfigError, from_tree, to_tree
from purejax_sc.envs import make_env
from purejax_sc.memory import refuse_beyond
from purejax_sc.training import anakin


@pytest.mark.parametrize(
    ("section", "words"),
    [
        # three heads of [16, bins], each with Adam's two moments and a target: 3 * 16 * 4 * 4 bytes per bin, and biases
        ({"muesli": {"bins": 2_000_000_000}}, "muesli.bins=2000000000: the parameters, with what Adam keeps of them,"),
        ({"network": {"width": 1_000_000_000}}, "network.width=1000000000: the parameters"),
        ({"sc": {"rollout_ratio": 1e9}}, "sc.rollout_ratio=1000000000.0: the imagined values would take"),
        (
            {"train": {"num_envs": 1_000_000_000, "sequence_length": 2}, "replay": {"capacity": 2_000_000_000}},
            "train.num_envs=1000000000: the sequences of an acting phase would take",
        ),
        ({"env_options": {"states": 1_000_000}}, "env_options.states=1000000: its tables would take 14,901.2 GiB"),
    ],
)
def test_sizes_beyond_memory_are_refused_by_name(section: dict, words: str) -> None:
    config = small(**section)
    with pytest.raises(ConfigError) as error:
        anakin.make_trainer(config)
    assert words in str(error.value)
    assert str(error.value).endswith("GiB free: lower it")


def test_searches_for_levels_beyond_memory_are_refused_by_name() -> None:
    tree = to_tree(small()) | {"env": "jumanji/Sokoban", "levels": {"positions": 2**28, "pool": 1024, "refresh": 0}}
    # 2^30 slots of 4 bytes and 2^28 orders of 16: 8 GiB each
    with pytest.raises(ConfigError, match=r"levels.positions=268435456: 1,024 searches .* take 8,192.0 GiB"):
        make_env(from_tree(tree))


def test_the_largest_setting_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^b=3: they would take 2.0 GiB, the device has 1.0 GiB free: lower it$"):
        refuse_beyond(2**30, "the device", "they", 2**31, {"a": 2, "b": 3})
    refuse_beyond(2**31, "the device", "they", 2**31, {"a": 2})
