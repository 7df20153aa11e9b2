"""One run in two processes on this machine, talking over the loopback interface."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from helpers.files import table

from purejax_sc.cli.commands import main
from purejax_sc.runs import checkpoint

# the smallest program that has an SC loss, as each process compiles it
SMALL = ["muesli.unroll=1", "sc.unroll=2"]
SMOKE = ["smoke", "--quiet", "train.data_shards=2", "checkpoint.updates=4", *SMALL]


def start(out: Path, cache: Path, process: int, port: int, *words: str) -> subprocess.Popen[str]:
    """One of two processes of a run, with one device."""
    hosts = ["--coordinator", f"localhost:{port}", "--num-processes", "2", "--process-id", str(process)]
    return subprocess.Popen(
        [sys.executable, "-m", "purejax_sc", "train", *SMOKE, *words, *hosts, "--out", str(out)],
        env={**os.environ, "JAX_NUM_CPU_DEVICES": "1", "XDG_CACHE_HOME": str(cache)},
        stderr=subprocess.PIPE,
        text=True,
    )


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return int(listener.getsockname()[1])


def test_two_processes_equal_one_with_two_devices(tmp_path: Path) -> None:
    port = free_port()
    processes = [start(tmp_path / "two", tmp_path, i, port) for i in range(2)]
    errors = [process.communicate(timeout=300)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], errors
    assert main(["train", *SMOKE, "--out", str(tmp_path / "one")]) == 0
    two, one = table(tmp_path / "two"), table(tmp_path / "one")
    assert len(two) == len(one) == 4
    for ours, theirs in zip(two, one, strict=True):
        assert ours["episode_return"] == theirs["episode_return"]
        assert float(ours["loss"]) == pytest.approx(float(theirs["loss"]), rel=1e-4)
    agents = [checkpoint.load_agents(tmp_path / name, pytest.fail).learner.params for name in ("two", "one")]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), *agents)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("lost", [0, 1])
def test_a_lost_process_stops_the_other_and_one_alone_goes_on(lost: int, tmp_path: Path) -> None:
    port, out = free_port(), tmp_path / "run"
    words = ["train.env_steps=192_000", "train.log_points=200"]
    processes = [start(out, tmp_path, i, port, *words) for i in range(2)]
    while not list(out.glob("checkpoints/[0-9]*")):
        assert all(process.poll() is None for process in processes)
        time.sleep(0.2)
    processes[lost].send_signal(signal.SIGKILL)
    _, error = processes[1 - lost].communicate(timeout=30)
    assert processes[1 - lost].returncode == 2
    assert error == f"purejax-sc: lost process {lost}: start them all again with --resume --out {out}\n"
    processes[lost].communicate()
    assert main(["train", *SMOKE, *words, "train.data_shards=1", "--out", str(out), "--resume"]) == 0
    assert int(table(out)[-1]["update"]) == 192_000 // 64
