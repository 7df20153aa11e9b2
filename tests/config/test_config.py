"""Configurations: what is read, what is refused, and in which words."""

import pytest

from purejax_sc import config
from purejax_sc.config import Config, ConfigError

SHIPPED = sorted(path.stem for path in config.CONFIG_DIR.glob("*.yaml"))


def fault(tree: dict) -> str:
    """The message that refuses a configuration: always one line."""
    with pytest.raises(ConfigError) as caught:
        config.from_tree({"env": "gymnax/Catch-bsuite", **tree})
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_configurations_load_and_survive_yaml(name: str) -> None:
    loaded = config.load(name)
    assert config.from_tree(config.read(config.to_yaml(loaded))) == loaded
    assert hash(loaded) == hash(config.load(name))


def test_defaults_survive_yaml() -> None:
    default = Config(env="gymnax/Catch-bsuite")
    assert config.from_tree(config.read(config.to_yaml(default))) == default


def test_overrides_change_single_values() -> None:
    loaded = config.load("smoke", ["hyper.learning_rate=1e-3", "train.env_steps=2_048", "sc.update=dyna", "seed=7"])
    assert loaded.hyper.learning_rate == 1e-3
    assert loaded.train.env_steps == 2048
    assert loaded.sc.update == "dyna"
    assert loaded.seed == 7
    assert loaded.network == config.load("smoke").network


def test_override_without_a_value_is_refused() -> None:
    with pytest.raises(ConfigError, match="key=value"):
        config.load("smoke", ["hyper.sc_weight"])


def test_override_through_a_value_is_refused() -> None:
    with pytest.raises(ConfigError, match="not a section"):
        config.load("smoke", ["env.name=x"])


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"trian": {}}, "did you mean 'train'"),
        ({"hyper": {"sc_wieght": 1.0}}, "did you mean 'hyper.sc_weight'"),
        ({"sc": {"zzz": 1}}, "known: update, unroll"),
        ({"env_options": {"seed": 5}}, "env_options.mdp_seed"),
    ],
)
def test_unknown_keys_are_refused_with_the_nearest(tree: dict, words: str) -> None:
    assert words in fault(tree)


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"train": {"num_envs": "many"}}, "train.num_envs='many'"),
        ({"train": {"num_envs": 1.5}}, "train.num_envs=1.5"),
        ({"sc": {"update": "indirect"}}, "sc.update='indirect'"),
        ({"hyper": {"learning_rate": "fast"}}, "hyper.learning_rate='fast'"),
        ({"seed": -1}, "seed=-1"),
        ({"network": 3}, "network=3"),
        ({"hyper": None}, "hyper=null"),
    ],
)
def test_wrong_types_are_refused(tree: dict, words: str) -> None:
    assert words in fault(tree)


@pytest.mark.parametrize("weight", [name for name in config.Hyper._fields if name.endswith("_weight")])
def test_negative_weights_are_refused(weight: str) -> None:
    assert f"hyper.{weight}=-0.5" in fault({"hyper": {weight: -0.5}})


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"train": {"replay_share": 1.0}}, "leaves no fresh sequence"),
        ({"train": {"num_envs": 3, "batch_sequences": 4, "replay_share": 0.5}}, "set train.num_envs=2"),
        ({"train": {"num_envs": 8}, "replay": {"capacity": 100}}, "set replay.capacity=256"),
        ({"train": {"num_envs": 8, "sequence_length": 4}}, "muesli.unroll=5 is longer"),
        ({"train": {"num_envs": 8}, "sc": {"update": "direct", "unroll": 0}}, "sc.unroll=0"),
        ({"train": {"num_envs": 8}, "sc": {"update": "direct", "unroll": 1}}, "set sc.unroll=2"),
        (
            {"train": {"num_envs": 8}, "sc": {"update": "direct", "rollout_policy": "original", "unroll": 31}},
            "lower sc.unroll",
        ),
        ({"train": {"num_envs": 8}, "hyper": {"prior_behaviour": 0.9, "prior_uniform": 0.2}}, "above 1"),
        ({"train": {"num_envs": 8}, "muesli": {"predict_legal": True}}, "where actions are always legal: leave it out"),
    ],
)
def test_impossible_sizes_are_refused_with_advice(tree: dict, words: str) -> None:
    assert words in fault(tree)


def test_missing_environment_is_named() -> None:
    with pytest.raises(ConfigError, match="'env' is missing"):
        config.from_tree({})


def test_unknown_names_suggest_shipped_ones() -> None:
    with pytest.raises(ConfigError, match="cartpole"):
        config.find("cart_pole")


def test_paper_sizes() -> None:
    """60 sequences of 30 steps, 52 of them replayed: 8 fresh ones, used by one update per 8 * 30 = 240 steps."""
    atari = config.load("atari")
    assert (atari.replay_sequences, atari.fresh_sequences) == (52, 8)
    assert atari.steps_per_iteration / atari.updates_per_iteration == 240
    assert atari.replay_capacity_sequences == 75_000  # 2,250,000 / 30
    assert config.load("sokoban").replay_sequences == 6
    assert config.load("go_9x9").replay_sequences == 0
