"""Texts that are no configuration: each ends in one line that says where and what, and none in a hang."""

from pathlib import Path

import pytest

from purejax_sc import config
from purejax_sc.config import ConfigError
from purejax_sc.envs import make_env
from purejax_sc.tabular.options import parse


def line(error: pytest.ExceptionInfo[ConfigError]) -> str:
    """The message: one line without control characters, and not a long one."""
    message = str(error.value)
    assert message.isprintable()
    assert len(message) < 400
    return message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("env: x\nseed: 1\nseed: 2\n", "line 3, column 1: not valid YAML: the key 'seed' is given twice"),
        ("env: x\n---\nenv: y\n", "line 2, column 1: not valid YAML: but found another document"),
        ("env: [\nseed: 1\n", "not valid YAML: "),
        ("env: x\x1b[31m\n", "not valid YAML: unacceptable character #x001b"),
        ('env: "\\U00110000"\n', "not valid YAML: "),
        ("env: gymnax/Catch-bsuite\nseed: 2024-02-30\n", "seed='2024-02-30': give a whole number"),
        ("envv: gymnax/Catch-bsuite\n", "unknown key 'envv': did you mean 'env'?"),
        ("env: gymnax/Catch-bsuite\nhyper:\n", "hyper=null: give its keys and values"),
    ],
)
def test_files_that_are_no_configuration_are_one_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        config.load(path)
    assert words in line(error)


def test_a_file_that_is_not_text_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(b"env: \xff\n")
    with pytest.raises(ConfigError, match="byte 5 is not UTF-8: give a text file"):
        config.load(path)


@pytest.mark.parametrize("name", ["x" * 5_000, "a\0b", "\x1b[31m"])
def test_names_of_no_file_are_one_line(name: str) -> None:
    with pytest.raises(ConfigError) as error:
        config.find(name)
    line(error)


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("seed=[1", "'seed=[1', line 1, column 3: not valid YAML"),
        (f"sc.update={'x' * 1_000}:y", "(1,002 characters): there is no module"),
        ("train.num_envs=1.5e0", "train.num_envs=1.5: give a whole number"),
        ("train.num_envs=yes", "train.num_envs=true: give a whole number"),
        ("train.num_envs=0", "train.num_envs=0: give more than 0"),
        ("sc.include_last=1", "sc.include_last=1: give true or false"),
        ("sc.loss=huber", "sc.loss='huber': choose 'cross_entropy' or 'distributional'"),
        ("hyper.discount=2", "hyper.discount=2: give 1 or less"),
        ("hyper.discount=.nan", "hyper.discount=nan: give a finite number"),
        ("hyper.gates=[[1], 2, 3]", "give three numbers from 0 to 1"),
        ("hyper=[0.1]", "give its keys and values"),
        (
            "hyper.reconstruction_weight=1",
            "hyper.reconstruction_weight has no effect with muesli.reconstruct=0 and muesli.legal=false",
        ),
        ("hyper={}", "'hyper' is set to an empty mapping, which has no effect"),
        ("network.width=[1]", "network.width=[1]: give a whole number"),
        ("muesli.bins=9223372036854775808", "muesli.bins=9223372036854775808: give 2,147,483,647 or less"),
        ("network.head_width=1e20", "network.head_width=1e+20: give 2,147,483,647 or less"),
        ("hyper.learning_rate=1e39", "hyper.learning_rate=1e+39: give 3e+38 or less"),
        ("train.env_steps=1e99", "train.env_steps=1e+99: give less than 9,223,372,036,854,775,808"),
        ("hyper.learning_rate=-1e99", "hyper.learning_rate=-1e+99: give 0 or more"),
        ("train.num_envs=[yes, ~, {a: 1e30}]", "train.num_envs=[true, null, {a: 1e+30}]: give a whole number"),
        ('train.num_envs=[{"\\e[1m": 1}]', r"train.num_envs=[{\x1b[1m: 1}]: give a whole number"),
        ("network.depth=1e6", "network.depth=1000000: give 1,000 or less"),
        ("train.env_steps=9e18", "train.env_steps=9000000000000000000 takes 140,625,000,000,000,000 updates"),
        ("levels.depth=3", "levels.depth=3 has no effect with env='gymnax/Catch-bsuite'"),
        ("network.kind=os:path", "'os:path' is a module: let it be a purejax_sc.networks.parts.Kind"),
        ("sc.update=os:path", "'os:path' is a module: let it be a purejax_sc.types.Gates"),
        ("sc.update=no_such_module:x", "there is no module 'no_such_module'"),
        ("sc.update=:x", "cannot be imported"),
        ("\x1b[31m=3", r"unknown key '\x1b[31m'"),
    ],
)
def test_words_that_set_nothing_are_one_line(word: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        config.load("smoke", [word])
    assert words in line(error)


def test_another_kind_of_network_begins_with_its_own_defaults() -> None:
    planes = config.load("go_5x5", ["network={kind: muzero, channels: [8], blocks: 1}"]).network
    assert planes.model_dump() == {
        "kind": "muzero", "head_width": 0, "reads": None, "crop": 0, "precision": "float32", "channels": (8,),
        "blocks": 1, "policy_blocks": 0, "conv": "auto",
    }  # fmt: skip
    flat = config.override(config.load("go_5x5"), ["network.width=64", "network.kind=mlp"]).network
    assert (flat.kind, flat.width, flat.head_width) == ("mlp", 64, 0)
    same = config.load("go_5x5", ["network.kind=minatar"]).network
    assert same == config.load("go_5x5").network


def test_code_of_the_users_own_that_fails_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken_gates.py").write_text("gates = (\n")
    (tmp_path / "lacking_gates.py").write_text("import no_such_package\n")
    for name, words in (
        ("broken_gates", "cannot be imported (SyntaxError"),
        ("lacking_gates", "needs no_such_package"),
    ):
        with pytest.raises(ConfigError) as error:
            config.load("smoke", [f"sc.update={name}:gates"])
        assert words in line(error)


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e6", 1_000_000), ("1.5e3", 1_500), ("1_000_000", 1_000_000), ("010", 10), ("-2E3", -2_000), ("+7", 7)],
)
def test_whole_numbers_are_integers(text: str, value: int) -> None:
    assert config.read(text) == value
    assert isinstance(config.read(text), int)


@pytest.mark.parametrize(("text", "value"), [("3e-4", 3e-4), ("3.0", 3.0), (".5", 0.5), ("1e400", float("inf"))])
def test_other_numbers_are_floats(text: str, value: float) -> None:
    assert config.read(text) == value
    assert isinstance(config.read(text), float)


@pytest.mark.parametrize("text", ["2024-02-30", "0x10", "1:30", "1e", "e6", "'1e6'", "<<", "="])
def test_all_else_is_text(text: str) -> None:
    assert config.read(text) == text.strip("'")


@pytest.mark.parametrize("name", ["1e6", "010", "1_0", "yes", "null", "a: b", "\x1b", "'", ""])
def test_text_survives_yaml(name: str) -> None:
    loaded = config.load("atari_small", ["replay.file=x"])
    loaded = loaded.model_copy(update={"replay": loaded.replay.model_copy(update={"file": name})})
    assert config.from_tree(config.read(config.to_yaml(loaded))) == loaded


def test_a_mapping_adds_to_its_section() -> None:
    loaded = config.load("smoke", ["hyper={learning_rate: 0.1}", "sc={update: dyna}"])
    assert loaded.hyper == config.load("smoke").hyper._replace(learning_rate=0.1)
    assert loaded.sc == config.load("smoke", ["sc.update=dyna"]).sc
    with pytest.raises(ConfigError, match=r"sc.unroll has no effect with sc.update=none"):
        config.load("smoke", ["sc={update: none, unroll: 4}"])


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("gymnax/Ctach", "gymnax/Catch-bsuite"),
        ("atari/Pnog", "atari/Pong"),
        ("Breakout", "gymnax/Breakout-MinAtar, pgx/minatar-breakout, atari/Breakout"),
    ],
)
def test_the_nearest_environments_are_of_the_family_that_was_named(name: str, near: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown env '{name}': the nearest are {near}$"):
        make_env(config.load("smoke", [f"env={name}"]))


def test_where_no_environment_is_near_those_of_the_family_are_listed() -> None:
    with pytest.raises(ConfigError, match=r"unknown env 'jumanji/Nope': choose jumanji/Sokoban$"):
        make_env(config.load("smoke", ["env=jumanji/Nope"]))


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("stats=3", "unknown key 'stats': did you mean 'states'?"),
        ("alpha_sc=x", "alpha_sc='x': give a number"),
        ("alpha_sc=[1],[1]", "alpha_sc=[[1], [1]] repeats a value: drop it"),
        ("states=1e6", "states=1000000: the tables of one replica would take 14,"),
        ("states=[", "'states=[', line 1, column 2: not valid YAML"),
    ],
)
def test_the_tabular_study_reads_the_same_way(word: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse([word])
    assert words in line(error)
