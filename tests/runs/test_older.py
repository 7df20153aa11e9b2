"""A run directory that version 0.1.0 wrote: `train smoke --seeds 2 checkpoint.keep=1`, stopped by Ctrl-C half way.

`data/run_0_1_0.csv` is what the same run left there in its metrics.csv without the stop.
"""

import tarfile
from pathlib import Path

import pytest
from helpers.files import table

from purejax_sc.cli.commands import main
from purejax_sc.config import ConfigError, from_tree, load, to_tree
from purejax_sc.runs.checkpoint import load_agents

DATA = Path(__file__).parent / "data"


@pytest.fixture
def older(tmp_path: Path) -> Path:
    with tarfile.open(DATA / "run_0_1_0.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "half"


def test_its_agents_are_read(older: Path) -> None:
    agents = load_agents(older, pytest.fail)
    assert (agents.seeds, agents.learner.updates.tolist()) == ([0, 1], [8, 8])


def test_it_goes_on_to_the_end_that_it_would_have_had(older: Path) -> None:
    command = ["train", "smoke", "--seeds", "2", "checkpoint.keep=1", "--resume", "--quiet", "--out", str(older)]
    assert main(command) == 0
    (older.parent / "whole").mkdir()
    (older.parent / "whole" / "metrics.csv").write_bytes((DATA / "run_0_1_0.csv").read_bytes())
    whole, resumed = table(older.parent / "whole"), table(older)
    assert resumed[0].keys() == whole[0].keys()
    for row, wanted in zip(resumed, whole, strict=True):
        assert {name: float(x) for name, x in row.items()} == pytest.approx(
            {name: float(x) for name, x in wanted.items()}, rel=1e-4, abs=1e-6
        )


def test_it_is_evaluated_and_plotted(older: Path, tmp_path: Path) -> None:
    assert main(["evaluate", str(older), "--episodes", "2"]) == 0
    assert main(["plot", str(older), "--out", str(tmp_path / "old.png")]) == 0


def test_settings_that_had_no_effect_are_left_out(older: Path) -> None:
    config = load(older / "config.yaml")
    options = {"kind", "head_width", "reads", "crop", "precision", "width", "depth", "model_blocks"}
    assert set(type(config.network).model_fields) == options
    assert config == load("smoke", ["checkpoint.keep=1"])


def test_a_network_of_version_0_1_has_its_strides() -> None:
    tree = to_tree(load("sokoban"))
    network = {"depth": 1, "padding": "VALID", "blocks": 6, "model_blocks": 1, **tree["network"]}
    network["pool"] = network.pop("strides")
    del network["precision"], network["reads"], network["crop"]  # which there were not yet
    assert from_tree(tree | {"network": network}) == load("sokoban")
    with pytest.raises(ConfigError, match=r"network\.pool"):  # in a file of today it is a mistake
        load("sokoban", ["network.pool=[1,1,2,2]"])
