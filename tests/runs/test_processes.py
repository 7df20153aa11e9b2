"""One run in two processes on this machine, talking over the loopback interface."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from helpers.files import table

from purejax_sc.cli.commands import main
from purejax_sc.runs.agents import load_agents

# the smallest program that has an SC loss, as each process compiles it
SMOKE = ["smoke", "--quiet", "train.data_shards=2", "checkpoint.updates=4", "muesli.unroll=1", "sc.unroll=2"]


def in_two_processes(out: Path, cache: Path, *words_of_each: list[str]) -> list[tuple[int, str]]:
    """Exit status and stderr of the two processes of a run, each with one device and words of its own."""
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        port = int(listener.getsockname()[1])
    command = [sys.executable, "-m", "purejax_sc", "train", *SMOKE, "--out", str(out)]
    command += ["--coordinator", f"localhost:{port}", "--num-processes", "2"]
    processes = [
        subprocess.Popen(
            [*command, "--process-id", str(i), *words],
            env={**os.environ, "JAX_NUM_CPU_DEVICES": "1", "XDG_CACHE_HOME": str(cache)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for i, words in enumerate(words_of_each)
    ]
    errors = [process.communicate(timeout=300)[1] for process in processes]
    return [(process.returncode, error) for process, error in zip(processes, errors, strict=True)]


def test_two_processes_equal_one_with_two_devices(tmp_path: Path) -> None:
    ends = in_two_processes(tmp_path / "two", tmp_path, [], [])
    assert [status for status, _ in ends] == [0, 0], ends
    assert main(["train", *SMOKE, "--out", str(tmp_path / "one")]) == 0
    two, one = table(tmp_path / "two"), table(tmp_path / "one")
    assert len(two) == len(one) == 4
    for ours, theirs in zip(two, one, strict=True):
        assert ours["episode_return"] == theirs["episode_return"]
        assert float(ours["loss"]) == pytest.approx(float(theirs["loss"]), rel=1e-4)
    agents = [load_agents(tmp_path / name, pytest.fail).learner.params for name in ("two", "one")]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), *agents)


def test_processes_that_were_started_for_different_runs_are_refused(tmp_path: Path) -> None:
    ends = in_two_processes(tmp_path / "run", tmp_path, [], ["seed=1"])
    for status, error in ends:
        assert status == 2
        assert "purejax-sc: the processes differ: start all of them with the same configuration and options" in error
    assert not (tmp_path / "run").exists()


def test_options_of_processes_go_together(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "smoke", "--process-id", "1"]) == 2
    assert "--num-processes and --process-id need --coordinator HOST:PORT" in capsys.readouterr().err
