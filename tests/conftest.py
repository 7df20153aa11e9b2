"""Settings of all tests: no silent promotion of ranks or dtypes, eight devices, one cache of compiled programs."""

import gc
import os
import shutil
import signal
import tempfile
import threading

import jax
import pytest

from purejax_sc.cli.setup import PATIENCE

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_num_cpu_devices", 8)

# Traced programs are many objects that stay: looking for garbage among them so often takes a seventh of the time.
gc.set_threshold(50_000, 10, 10)

# Most tests compile for longer than they run. With these they compile three times as fast, into slower programs than
# users get; slow tests run those. Each worker has one core: a program is compiled in one piece.
COMPILE_QUICKLY = "--xla_backend_optimization_level=0"
if jax.__version_info__ < (0, 11):  # from there on XLA dies of flags that it no longer knows
    COMPILE_QUICKLY += " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"

COMPILED = pytest.StashKey[str]()

# What compiles much, starts processes or trains. Everything else is the default tier, which answers in a few minutes.
INTEGRATION = (
    "agent/test_search.py", "envs/test_sokoban.py", "envs/test_levels.py", "envs/test_pgx.py", "evaluation/",
    "examples/", "games/", "networks/test_precision.py", "runs/test_experiments.py", "runs/test_interrupts.py",
    "runs/test_processes.py", "runs/test_sweep.py", "studies/test_study.py", "tabular/test_study.py", "test_api.py",
    "test_docs.py::test_python_examples_run[docs", "test_docs.py::test_what_is_added", "test_tour.py",
    "training/test_platforms.py", "training/test_sebulba.py::test_a", "training/test_sebulba.py::test_environments",
    "training/test_sebulba.py::test_two", "training/test_selfplay.py",
)  # fmt: skip

# What begins first: files that take long, of which each is run by one worker. Otherwise one worker ends with such a
# file while the other one has nothing left.
LONG = (
    "examples/test_examples.py", "training/", "runs/test_processes.py", "test_docs.py", "test_tour.py", "runs/",
    "studies/", "agent/", "evaluation/",
)  # fmt: skip


@pytest.hookimpl(tryfirst=True)  # before the marks decide what runs
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _is_in(item, INTEGRATION):
            item.add_marker("integration")
    items.sort(key=lambda item: next((i for i, name in enumerate(LONG) if _is_in(item, (name,))), len(LONG)))


def _is_in(item: pytest.Item, names: tuple[str, ...]) -> bool:
    return item.nodeid.removeprefix("tests/").startswith(names)


def pytest_configure(config: pytest.Config) -> None:
    if threading.current_thread() is threading.main_thread():  # jobs in the background of a shell are deaf to Ctrl-C
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if "slow" not in config.option.markexpr.replace("not slow", ""):
        os.environ.setdefault("XLA_FLAGS", f"{COMPILE_QUICKLY} {PATIENCE}")  # as commands have it: programs are shared
    if not hasattr(config, "workerinput"):  # workers, and what tests start, inherit this environment
        shared = os.environ.get("JAX_COMPILATION_CACHE_DIR")  # of several sessions, as in .ci/run
        if not shared:
            shared = config.stash[COMPILED] = tempfile.mkdtemp(prefix="compiled-")
        _keep_every_program(shared)


def _keep_every_program(directory: str) -> None:
    """A program is compiled once for all workers and for all processes that they start, however short it is."""
    settings = {
        "jax_compilation_cache_dir": directory,
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    for name, value in settings.items():
        os.environ[name.upper()] = str(value)
        jax.config.update(name, value)


def pytest_unconfigure(config: pytest.Config) -> None:
    if COMPILED in config.stash:
        shutil.rmtree(config.stash[COMPILED], ignore_errors=True)


@pytest.fixture(scope="session")
def gnugo_command() -> str:
    """GNU Go as a GTP engine with Pgx's rules; without it, the test is skipped."""
    path = shutil.which("gnugo", path=f"{os.environ.get('PATH', '')}:/usr/games")  # where Debian has it
    if path is None:
        pytest.skip("GNU Go is not installed: apt-get install gnugo")
    rules = "--chinese-rules --positional-superko --play-out-aftermath --capture-all-dead"
    return f"{path} --mode gtp --level 1 {rules}"
