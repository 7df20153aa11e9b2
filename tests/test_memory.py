"""Memory: what is free, what a program takes, and one line before anything is made where that is too much."""

import errno
import resource
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import runs

from purejax_sc import memory
from purejax_sc.cli.setup import UserError, work
from purejax_sc.config import ConfigError
from purejax_sc.memory import GIB
from purejax_sc.results.files import RunError
from purejax_sc.runs import sweep, train
from purejax_sc.tabular import study

MEMINFO = "MemTotal:  9000000 kB\nMemFree: 1 kB\nMemAvailable:  8388608 kB\nHugePages_Total:  0\nSwapFree: 1048576 kB\n"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], None]:
    """Pretends that files of the kernel hold this; 8 GiB are available, 1 GiB may be swapped out."""

    def write(files: dict[str, str]) -> None:
        for name, text in {"proc/meminfo": MEMINFO, **files}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    monkeypatch.setattr(memory, "PROC", tmp_path / "proc")
    monkeypatch.setattr(memory, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return write


def test_what_the_machine_has_is_free(machine) -> None:
    machine({})
    assert memory.free_on_host() == 9 * GIB


def test_a_control_group_leaves_less(machine) -> None:
    machine(
        {
            "proc/self/cgroup": "0::/user/job\n",
            "cgroup/user/memory.max": f"{4 * GIB}\n",
            "cgroup/user/memory.current": f"{3 * GIB}\n",
            "cgroup/user/memory.stat": f"anon 5\ninactive_file {GIB}\n",
            "cgroup/user/job/memory.max": "max\n",
            "cgroup/user/job/memory.current": "5\n",
            "cgroup/user/job/memory.stat": "anon 5\n",
        }
    )
    assert memory.free_on_host() == 2 * GIB  # 4 - 3, and 1 of files that can be read again


def test_a_control_group_of_the_first_version_leaves_less(machine) -> None:
    machine(
        {
            "proc/self/cgroup": "5:devices:/x\n4:memory:/out/of/sight\n",
            "cgroup/memory/memory.limit_in_bytes": f"{3 * GIB}\n",
            "cgroup/memory/memory.usage_in_bytes": f"{GIB}\n",
            "cgroup/memory/memory.stat": "total_inactive_file 0\n",
        }
    )
    assert memory.free_on_host() == 2 * GIB


def test_the_limit_of_a_process_leaves_less(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    page = resource.getpagesize()
    machine({"proc/self/statm": f"{GIB // page} 1 1\n"})
    monkeypatch.setattr(resource, "getrlimit", lambda _: (3 * GIB, 3 * GIB))
    assert memory.free_addresses() == 2 * GIB
    assert memory.free_on_host() == 2 * GIB


def test_a_program_that_does_not_fit_is_refused_with_what_it_takes(machine) -> None:
    machine({})
    # an argument and a result of 5 GiB, of 9 that are free: 90% of 9 / 10
    large = jax.ShapeDtypeStruct((5, 2**28), jnp.float32)
    line = (
        r"^out of memory: this takes 10\.0 GiB, and this machine has 9\.0 GiB free: lower the number of x to about 81%$"
    )
    with pytest.raises(ConfigError, match=line):
        memory.compiled(jax.jit(lambda x: x + 1.0), (large,), "the number of x")


def test_the_devices_of_a_cpu_share_its_memory(machine) -> None:
    machine({})
    sharding = jax.sharding.NamedSharding(jax.make_mesh((2,), ("x",)), jax.sharding.PartitionSpec("x"))
    halves = jax.ShapeDtypeStruct((4, 2**28), jnp.float32, sharding=sharding)  # 2 GiB on each
    program = jax.jit(lambda x: x + 1.0).lower(halves).compile()
    assert memory.program_bytes(program) == 4 * GIB
    memory.check_program(program, jax.devices()[0], "x", others=GIB)
    with pytest.raises(ConfigError, match=r"takes 10\.0 GiB"):
        memory.check_program(program, jax.devices()[0], "x", others=2 * GIB)


def from_itself(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "missing"),
    [
        (MemoryError(), True),
        (RuntimeError("std::bad_alloc"), True),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), True),
        (ImportError("libx.so: failed to map segment from shared object"), True),
        (jax.errors.JaxRuntimeError("INTERNAL: Out of memory allocating 12 bytes."), True),
        (from_itself(RunError("an environment thread failed"), MemoryError()), True),
        (RunError("engine 'x' ended (its last words: out of memory)"), False),
        (jax.errors.JaxRuntimeError("INTERNAL: a fault of the compiler"), False),
        (OSError(errno.ENOSPC, "No space left on device"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_which_errors_say_that_memory_is_missing(error: BaseException, missing: bool) -> None:
    assert memory.is_missing(error) is missing


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("Unable to allocate 90.0 GiB for an array", "90.0 GiB are asked for at once, and there are 9.0 GiB free: "),
        ("Out of memory allocating 19327352832 bytes.", "18.0 GiB are asked for at once, and there are 9.0 GiB free: "),
        ("std::bad_alloc", ""),
        ("Unable to allocate 1.0 GiB", ""),
    ],
)
def test_the_advice_says_how_much(said: str, line: str, machine) -> None:
    machine({})
    share = {"90": "about 9%", "18": "about 45%"}.get(line[:2])
    cure = f"lower it to {share}" if share else "lower it, to half at first"
    assert memory.advice(MemoryError(said), "it") == f"out of memory: {line}{cure}"


@pytest.mark.parametrize(
    "allocate",
    [jnp.zeros, jax.jit(jnp.zeros, static_argnums=0), lambda size: np.zeros(4 * size, np.int8)],
    ids=["alone", "compiled", "numpy"],
)
def test_out_of_memory_is_one_line_with_its_cure(allocate) -> None:
    line = (
        r"^out of memory: 262144\.0 GiB are asked for at once, and there are \d+\.\d GiB free: lower --x to less than"
    )
    with pytest.raises(UserError, match=line), work("--x"):
        jax.block_until_ready(allocate(2**46))


@pytest.fixture
def nothing_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "program_bytes", lambda compiled: 2**60)


LINE = r"^out of memory: this takes \d+\.0 GiB, and this machine has \d+\.\d GiB free: lower .* to less than 1%$"


def test_a_run_that_does_not_fit_leaves_no_directory_and_replaces_none(tmp_path: Path, nothing_fits) -> None:
    with pytest.raises(ConfigError, match=LINE):
        runs.count(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "config.yaml").write_text("kept")
    with pytest.raises(ConfigError, match=LINE):
        runs.count(tmp_path, force=True)
    assert {path.name: path.read_text() for path in tmp_path.glob("[!.]*")} == {"config.yaml": "kept"}


def test_a_study_that_does_not_fit_leaves_no_directory(tmp_path: Path, nothing_fits) -> None:
    with pytest.raises(ConfigError, match=LINE):
        study.run(["evaluation"], ["iterations=50", "log_every=50"], tmp_path / "new", num_seeds=2)
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_that_cannot_begin_leaves_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_program(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(train, "compile_program", compile_program)
    with pytest.raises(RunError, match="out of memory: lower the number of seeds"):
        sweep.sweep("smoke", ["hyper.learning_rate=1e-4,1e-3"], tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["train smoke", "evaluate ."])
def test_a_process_without_memory_says_so_at_the_start(command: str, tmp_path: Path) -> None:
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))\n"
        f"from purejax_sc.__main__ import main; sys.argv[1:] = {shlex.split(command)!r}; sys.exit(main())"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("purejax-sc: out of memory: 0.")
    assert result.stderr.endswith(" GiB are needed to start: raise the limit\n")
    assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
