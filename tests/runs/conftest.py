"""Runs that several tests look at. Who changes one copies it first."""

import shutil
from pathlib import Path

import pytest
from helpers.files import table
from helpers.runs import Watch

from purejax_sc import config
from purejax_sc.cli.commands import main
from purejax_sc.config import Config
from purejax_sc.runs.fit import train

SMOKE = ["smoke", "checkpoint.updates=4"]  # 16 updates in 4 log points


@pytest.fixture(scope="session")
def small() -> Config:
    return config.load(SMOKE[0], SMOKE[1:])


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run of the smallest configuration, by the command line."""
    out = tmp_path_factory.mktemp("whole") / "run"
    assert main(["train", *SMOKE, "--quiet", "--seeds", "2", "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="session")
def stopped_half(tmp_path_factory: pytest.TempPathFactory, small: Config) -> Path:
    """The same run, begun by `resume` where there was nothing, and stopped by Ctrl-C after half of its updates."""
    out = tmp_path_factory.mktemp("half") / "run"
    with pytest.raises(KeyboardInterrupt):
        train(small, out, num_seeds=2, resume=True, on_log=Watch(at=8))
    assert [int(row["update"]) for row in table(out)[::2]] == [4, 8]
    return out


@pytest.fixture
def half(stopped_half: Path, tmp_path: Path) -> Path:
    """A copy of the half run, to be changed."""
    return Path(shutil.copytree(stopped_half, tmp_path / "half"))
