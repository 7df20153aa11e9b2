"""Reading YAML and KEY=VALUE words: what becomes which value, and what is refused in one line with advice."""

from pathlib import Path
from typing import Any

import pytest

from purejax_sc import config
from purejax_sc.config import ConfigError, files
from purejax_sc.envs import make_env
from purejax_sc.tabular.options import parse


def line(error: pytest.ExceptionInfo[ConfigError]) -> str:
    """The message: one line without control characters, and not a long one."""
    message = str(error.value)
    assert message.isprintable()
    assert len(message) < 400
    return message


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("[1e6, 1.5e3, 1_000, 010, -2E3]", [1_000_000, 1_500, 1_000, 10, -2_000]),  # whole numbers are integers
        ("[1e-4, 3e-3, 3.0, .5, 1e400]", [1e-4, 3e-3, 3.0, 0.5, float("inf")]),
        ("[true, yes, ON, false, no, off, null, ~]", [True, True, True, False, False, False, None, None]),
        ("['1e6', 1e, 0x10, 1:30, 2024-02-30, =, y]", ["1e6", "1e", "0x10", "1:30", "2024-02-30", "=", "y"]),
        ("{1: a, on: b}", {"1": "a", "on": "b"}),  # keys are text
    ],
)
def test_values_are_read_as_people_write_them(text: str, values: Any) -> None:
    assert repr(config.read(text)) == repr(values)  # 1 is not 1.0, nor True


def test_values_survive_yaml() -> None:
    values = [1e-05, 1e16, 0.1, 7, True, None, "1e6", "010", "1_0", "yes", "null", "a: b", "\x1b", "'", ""]
    assert files.parse(files.dump(values), "") == values


@pytest.mark.parametrize(
    "tag", ["object/apply:os.system ['touch {0}']", "object/new:subprocess.Popen [[touch, '{0}']]", "name:os.system"]
)
def test_no_code_in_a_configuration_is_executed(tmp_path: Path, tag: str) -> None:
    path, canary = tmp_path / "bad.yaml", tmp_path / "executed"
    value = f"!!python/{tag.format(canary)}"
    path.write_text(f"env: {value}\n")
    with pytest.raises(ConfigError):
        config.load(path)
    with pytest.raises(ConfigError):
        config.load("smoke", [f"env={value}"])
    assert not canary.exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"env: x\nseed: 1\nseed: 2\n", "line 3, column 1: not valid YAML: the key 'seed' is given twice: leave one"),
        (b"env: [\nseed: 1\n", "line 3, column 1: not valid YAML: expected ',' or ']', but got '<stream end>'"),
        (b"env: x\x1b[31m\n", "not valid YAML: unacceptable character #x001b"),
        (b"env: \xff\n", "not valid YAML: unacceptable character #x00ff"),
        (b"- 1\n", "holds no mapping: start it with a line such as 'env: gymnax/Catch-bsuite'"),
        (b"", "holds no mapping"),
        (b"env: gymnax/Catch-bsuite\nhyper:\n", "hyper=null: "),
    ],
)
def test_files_that_are_no_configuration_are_refused(tmp_path: Path, text: bytes, words: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(text)
    with pytest.raises(ConfigError) as error:
        config.load(path)
    assert words in line(error)


@pytest.mark.parametrize("name", ["x" * 5_000, "a\0b"])
def test_names_of_no_file_are_refused(name: str) -> None:
    with pytest.raises(ConfigError) as error:
        config.find(name)
    line(error)


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("seed=[1", "'seed=[1', line 1, column 3: not valid YAML"),
        ("\x1b[31m=3", r"unknown key '\x1b[31m'"),
        (
            "train.num_envs=[yes, ~, {a: 1e3}]",
            'train.num_envs=[true, null, {"a": 1000}]: Input should be a valid integer',
        ),
        ("train.num_envs=0", "train.num_envs=0: Input should be greater than 0"),
        ("muesli.bins=9223372036854775808", "muesli.bins=9223372036854775808: Input should be less"),
        ("hyper.discount=.nan", "hyper.discount=NaN: Input should be a finite number"),
        ("hyper.gates=[1, 2, 3]", "hyper.gates.1=2: Input should be less than or equal to 1"),
        ("hyper={acting_epsilon: 1}", "'hyper' is a section: set its keys one by one, as in hyper.KEY=VALUE"),
        ("sc.include_last=1", "sc.include_last=1: Input should be a valid boolean"),
        ("sc.loss=huber", "sc.loss='huber': Input should be 'cross_entropy' or 'distributional'"),
        ("levels.depth=30", "levels.depth=30 has no effect with env='gymnax/Catch-bsuite'"),
        ("hyper.aux_weight=1", "has no effect with muesli.reconstruct_planes=0 and muesli.predict_legal=false"),
        ("network.kind=os:path", "'os:path' is a module: let it be a purejax_sc.networks.parts.Kind"),
        (f"sc.update={'x' * 1_000}:y", "(1,004 characters) cannot be imported (ModuleNotFoundError"),
        ("sc.update=:x", "cannot be imported"),
    ],
)
def test_words_that_set_nothing_are_refused(word: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        config.load("smoke", [word])
    assert words in line(error)


def test_another_kind_of_network_begins_with_its_own_defaults() -> None:
    planes = config.load("go_5x5", ["network.kind=muzero", "network.channels=[8]", "network.blocks=1"]).network
    assert planes.model_dump() == {
        "kind": "muzero", "head_width": 0, "input_planes": None, "crop": 0, "precision": "float32", "channels": (8,),
        "blocks": 1, "policy_blocks": 0, "conv": "auto",
    }  # fmt: skip
    flat = config.override(config.load("go_5x5"), ["network.width=64", "network.kind=mlp"]).network
    assert (flat.kind, flat.width, flat.head_width) == ("mlp", 64, 0)
    same = config.load("go_5x5", ["network.kind=cnn"]).network
    assert same == config.load("go_5x5").network


def test_code_of_the_users_own_that_fails_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken_gates.py").write_text("gates = (\n")
    (tmp_path / "lacking_gates.py").write_text("import no_such_package\n")
    for name, words in (
        ("broken_gates", "cannot be imported (SyntaxError"),
        ("lacking_gates", "No module named 'no_such_package'"),
    ):
        with pytest.raises(ConfigError) as error:
            config.load("smoke", [f"sc.update={name}:gates"])
        assert words in line(error)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("atari/Pnog", "the nearest are atari/Pong, atari/UpNDown"),  # of the family that is named
        ("Breakout", "the nearest are atari/Breakout, .*gymnax/Breakout-MinAtar.*"),
        ("jumanji/Nope", "choose jumanji/Sokoban"),  # none is near
    ],
)
def test_unknown_environments_are_refused_with_the_nearest(name: str, advice: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown env '{name}': {advice}$"):
        make_env(config.load("smoke", [f"env={name}"]))


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("stats=3", "unknown key 'stats': did you mean 'states'?"),
        ("alpha_td=[1],[1]", "alpha_td=[[1], [1]]: alpha_td takes one value"),
        ("states=1e6", "states=1000000: Input should be less than or equal to 1000"),
    ],
)
def test_the_tabular_study_reads_the_same_way(word: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse([word])
    assert words in line(error)
