"""The command line: every mistake is one line on stderr with exit status 2, and writes nothing."""

import os
import pwd
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from purejax_sc import config
from purejax_sc.cli.commands import cli, main
from purejax_sc.cli.setup import Stopped, report_errors


@pytest.fixture(autouse=True)
def empty_directory(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refusal(capsys, command: str) -> str:
    """What a refused command prints: one line on stderr, nothing on stdout."""
    before = contents(Path())
    assert main(shlex.split(command)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("purejax-sc: ")
    assert captured.err.count("\n") == 1
    assert contents(Path()) == before
    return captured.err


def contents(root: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in root.rglob("*")}


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("train no_such_name", "no configuration 'no_such_name'"),
        ("train smok", "smoke"),
        ("train", "CONFIG"),
        ("train smoke env=gymnax/Brekout-MinAtar", "gymnax/Breakout-MinAtar"),
        ("train smoke env=gymnax/Pendulum-v1", "Pendulum"),
        ("train smoke env=keydoor.make_env", "did you mean 'env=keydoor:make_env'?"),
        ("train smoke env=keydoor", "docs/configurations.md"),
        ("train missing.yaml", "there is no file 'missing.yaml'"),
        ("train smoke hyper.sc_wieght=1.0", "hyper.sc_weight"),
        ("train smoke learning_rate=1e-3", "did you mean hyper.learning_rate=0.001?"),
        ("train smoke sc.learning_rate=1e-3", "did you mean hyper.learning_rate=0.001?"),
        ("train smoke width=64", "did you mean network.width=64?"),
        ("train smoke --hyper.learning_rate 1e-3", "written KEY=VALUE, without dashes"),
        ("train smoke --learning-rate=1e-3", "written KEY=VALUE, without dashes"),
        ("train smoke train.num_envs=1e8", "train.num_envs=100000000: lower that"),
        ("train smoke train.num_envs=many", "train.num_envs='many'"),
        ("train smoke replay.capacity=64", "replay.capacity=128"),
        ("train smoke muesli.unroll=9", "muesli.unroll=9 is longer"),
        ("train smoke sc.unroll=0", "sc.unroll=0"),
        ("train smoke hyper.sc_weight=-1.0", "hyper.sc_weight=-1.0"),
        ("train smoke sc.update", "key=value"),
        ("train smoke seed=2147483647 --seeds 2", "lower seed"),
        ("train smoke --seeds 0", "'--seeds': 0 is not in the range x>=1"),
        ("evaluate nowhere --episodes 10", "nowhere is no directory: give one that train or export wrote"),
        ("train smoke --placement everywhere", "--placement"),
        ("train smoke --no-such-option", "--no-such-option"),
        ("train smoke --out 'a[1]'", "a[1]: Orbax loses checkpoints under a path with *, ? or ["),
        ("sweep smoke hyper.sc_weight=0.1,0.2 --out 'a[1]'", "a[1]: Orbax loses checkpoints"),
        ("study smoke --out 'a[1]'", "a[1]: Orbax loses checkpoints"),
        ("match a b --boards 4", "--boards has no effect without --opponent"),
        ("no_such_command", "no_such_command"),
        ("plot nowhere", "nowhere holds no readable metrics.csv"),
        ("plot", "DIR"),
    ],
)
def test_mistakes_are_one_line(capsys, command: str, words: str) -> None:
    assert words in refusal(capsys, command)


@pytest.mark.parametrize("setting", ["JAX_ENABLE_X64", "JAX_DISABLE_JIT"])
def test_settings_of_jax_that_nothing_runs_with_are_one_line(capsys, setting: str) -> None:
    with jax.enable_x64(setting == "JAX_ENABLE_X64"), jax.disable_jit(setting == "JAX_DISABLE_JIT"):
        assert f"{setting}=1" in refusal(capsys, "train smoke")


def test_a_name_that_is_not_utf8_is_one_line(capsys) -> None:
    assert "not UTF-8" in refusal(capsys, "train smoke --out 'a\udcff'")


def test_a_tilde_that_no_shell_has_seen_is_the_home(capsys, monkeypatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert "/home/somebody/runs is no directory" in refusal(capsys, "evaluate '~/runs'")


@pytest.mark.parametrize(("platform", "joins"), [("cuda", False), ("cqu", False), ("cqu", True)])
def test_platforms_without_a_device_are_one_line(platform: str, joins: bool) -> None:
    """Also where several processes are to train together."""
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        words = ["--coordinator", f"localhost:{listener.getsockname()[1]}", "--num-processes", "1", "--process-id", "0"]
    command = [sys.executable, "-m", "purejax_sc", "train", "smoke", *(words if joins else [])]
    environment = {**os.environ, "JAX_PLATFORMS": platform, "CUDA_VISIBLE_DEVICES": ""}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"purejax-sc: JAX_PLATFORMS={platform}: JAX finds no such device here")
    assert ended.stderr.count("\n") == 1


def test_a_user_without_a_home_has_no_cache_of_programs(monkeypatch) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", "JAX_COMPILATION_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)  # as of a user id that the machine does not know
    before = jax.config.jax_compilation_cache_dir
    with report_errors(""):
        assert jax.config.jax_compilation_cache_dir == before


def test_existing_run_is_not_overwritten(capsys) -> None:
    Path("runs/smoke").mkdir(parents=True)
    Path("runs/smoke/config.yaml").write_text("kept")
    error = refusal(capsys, "train smoke")
    assert "--out" in error
    assert "--force" in error


def test_force_leaves_other_directories_alone(capsys) -> None:
    Path("notes").mkdir()
    Path("notes/diary.txt").write_text("kept")
    assert "no config.yaml" in refusal(capsys, "train smoke --out notes --force")
    Path("notes/config.yaml").write_text("kept too")
    assert "diary.txt" in refusal(capsys, "train smoke --out notes --force")


def test_unwritable_directory_is_one_line(capsys) -> None:
    Path("file").write_text("not a directory")
    assert "--out" in refusal(capsys, "train smoke --out file/run")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a,b\n1,2\n",
        "seed,update,env_steps,wall_time,episode_return,episode_length\n1,2",
        "seed,update,env_steps,wall_time,episode_return,episode_length\n0,1,20,1,0,9\n0,2,10,2,0,9\n",  # steps go back
    ],
)
def test_damaged_run_is_one_line(capsys, text: str) -> None:
    Path("run").mkdir()
    Path("run/metrics.csv").write_text(text)
    assert "metrics.csv" in refusal(capsys, "plot run")


def test_print_config_can_be_loaded_again(capsys) -> None:
    assert main(["train", "smoke", "sc.update=dyna", "--print-config"]) == 0
    printed = config.from_tree(config.read(capsys.readouterr().out))
    assert printed == config.load("smoke", ["sc.update=dyna"])


@pytest.mark.parametrize("command", ["", "--help", "train --help", "plot --help", "--version"])
def test_help_exits_with_0(capsys, command: str) -> None:
    assert main(shlex.split(command)) == 0
    assert capsys.readouterr().out


def test_every_command_is_in_the_help(capsys) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in cli.commands)


def test_ctrl_c_has_the_line_of_its_command() -> None:
    with (
        pytest.raises(Stopped, match=r"^stopped: what was written stays$") as caught,
        report_errors("", "what was written stays"),
    ):
        raise KeyboardInterrupt
    assert caught.value.status == 130
