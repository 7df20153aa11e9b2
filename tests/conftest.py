"""Settings of all tests: silent broadcasting between ranks is an error, nothing is cached on disk, eight devices."""

import os
import shutil

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_enable_compilation_cache", False)
jax.config.update("jax_num_cpu_devices", 8)

# Most tests compile for longer than they run. With these they compile three times as fast, into slower programs than
# users get; slow tests run those.
COMPILE_QUICKLY = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"


def pytest_configure(config: pytest.Config) -> None:
    if config.option.markexpr == "not slow":
        os.environ.setdefault("XLA_FLAGS", COMPILE_QUICKLY)


@pytest.fixture(scope="session")
def gnugo_command() -> str:
    """GNU Go as a GTP engine with Pgx's rules; without it, the test is skipped."""
    path = shutil.which("gnugo", path=f"{os.environ.get('PATH', '')}:/usr/games")  # where Debian has it
    if path is None:
        pytest.skip("GNU Go is not installed: apt-get install gnugo")
    rules = "--chinese-rules --positional-superko --play-out-aftermath --capture-all-dead"
    return f"{path} --mode gtp --level 1 {rules}"
