"""Memory: what does not fit is refused in one line before anything is made."""

from pathlib import Path

import jax
import jax.numpy as jnp
import psutil
import pytest
from helpers import runs

from purejax_sc import memory
from purejax_sc.config import ConfigError
from purejax_sc.memory import GIB

LINE = r"^out of memory: this takes \d[\d,]+\.0 GiB, and this machine has \d+\.\d GiB free: lower "


@pytest.fixture
def nine_gib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_on_host", lambda: 9 * GIB)


def test_what_is_available_is_free() -> None:
    assert 0 < memory.free_on_host() < psutil.virtual_memory().total


def test_a_program_that_does_not_fit_is_refused_with_what_it_takes(nine_gib) -> None:
    large = jax.ShapeDtypeStruct((5, 2**28), jnp.float32)  # an argument and a result of 5 GiB
    line = r"^out of memory: this takes 10\.0 GiB, and this machine has 9\.0 GiB free: lower the number of x$"
    with pytest.raises(ConfigError, match=line):
        memory.compiled(jax.jit(lambda x: x + 1.0), (large,), "the number of x")


def test_the_devices_of_a_cpu_share_its_memory(nine_gib) -> None:
    sharding = jax.sharding.NamedSharding(jax.make_mesh((2,), ("x",)), jax.sharding.PartitionSpec("x"))
    halves = jax.ShapeDtypeStruct((4, 2**28), jnp.float32, sharding=sharding)  # 2 GiB on each
    program = jax.jit(lambda x: x + 1.0).lower(halves).compile()
    assert memory.program_bytes(program) == 4 * GIB
    memory.check_program(program, jax.devices()[0], "x", others=GIB)
    with pytest.raises(ConfigError, match=r"takes 10\.0 GiB"):
        memory.check_program(program, jax.devices()[0], "x", others=2 * GIB)


def test_a_run_that_does_not_fit_leaves_no_directory_and_replaces_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "program_bytes", lambda compiled: 2**60)
    with pytest.raises(ConfigError, match=LINE):
        runs.count(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "config.yaml").write_text("kept")
    with pytest.raises(ConfigError, match=LINE):
        runs.count(tmp_path, force=True)
    assert {path.name: path.read_text() for path in tmp_path.glob("[!.]*")} == {"config.yaml": "kept"}
