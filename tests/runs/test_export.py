"""Agents in one small file."""

import importlib
import shutil
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from helpers import agents

from purejax_sc.cli.commands import main
from purejax_sc.config import from_tree, load
from purejax_sc.envs import network_spec
from purejax_sc.evaluation.evaluate import evaluation_config
from purejax_sc.results.files import RunError
from purejax_sc.runs.agents import AGENTS, FILE, export, load_agents

TINY = {"env": "gymnax/Catch-bsuite", "network": {"kind": "mlp", "width": 8}, "muesli": {"bins": 5, "value_max": 2.0}}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return agents.save(agents.untrained(from_tree(TINY), (3, 4)), tmp_path_factory.mktemp("export") / "run")


@pytest.fixture(scope="module")
def kept(run, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("export") / "kept"
    facts = export(run, out, 4, pytest.fail)
    assert facts == {"seed": 4, "bytes": (out / "agent.npz").stat().st_size}
    assert facts["bytes"] < 25_000
    return out


def test_an_exported_agent_is_the_one_of_its_seed_to_half_precision(run, kept) -> None:
    whole, part = load_agents(run, pytest.fail), load_agents(kept, pytest.fail)
    assert part.seeds == [4]
    assert part.config == whole.config.model_copy(update={"seed": 4}) == load(kept / "config.yaml")
    acting = jax.tree.map(lambda x: np.asarray(x)[1], whole.learner.target)  # the prior acts
    for params in (part.learner.params, part.learner.target):
        jax.tree.map(lambda x, y: np.testing.assert_array_equal(x[0], y.astype(np.float16)), params, acting)
        assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(params))


LEVEL = "##########\n#@$.     #\n# $.     #\n# $.     #\n# $.     #\n" + "#        #\n" * 4 + "##########\n"


def test_an_agent_needs_no_file_of_the_machine_that_trained_it(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("here").mkdir()
    Path("here/levels.txt").write_text(LEVEL)
    tree = TINY | {"env": "jumanji/Sokoban", "levels": {"file": "here/levels.txt", "pool": 1, "refresh": 0}}
    run = agents.save(agents.untrained(from_tree(tree)), tmp_path / "run")
    Path("here/levels.txt").rename("levels.txt")
    export(run, tmp_path / "kept", None, pytest.fail)
    for directory in (run, tmp_path / "kept"):
        loaded = load_agents(directory, pytest.fail)
        override = ["levels.file=levels.txt"]
        assert network_spec(evaluation_config(loaded.config, 1, override)) == loaded.spec


def test_an_agent_whose_environment_cannot_be_imported_says_why(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    made = "from gymnax.environments.bsuite.catch import Catch\nfrom purejax_sc import from_gymnax\n"
    Path("world_of_mine.py").write_text(made + "def make(config):\n    return from_gymnax(Catch())\n")
    run = agents.save(agents.untrained(from_tree(TINY | {"env": "world_of_mine:make"})), tmp_path / "run")
    Path("world_of_mine.py").unlink()
    monkeypatch.delitem(sys.modules, "world_of_mine")
    importlib.invalidate_caches()
    assert main(["export", str(run), "--out", "kept"]) == 0
    assert main(["evaluate", str(run)]) == 2
    line = "purejax-sc: 'world_of_mine:make' cannot be imported (ModuleNotFoundError: No module named 'world_of_mine')"
    assert capsys.readouterr().err == f"{line}: mend or install it\n"


@pytest.mark.parametrize("spoil", [lambda data: data[: len(data) // 2], lambda data: b"", lambda data: b"no archive"])
def test_a_damaged_file_is_refused_in_one_line(kept, tmp_path, spoil) -> None:
    out = shutil.copytree(kept, tmp_path / "kept")
    (out / FILE).write_bytes(spoil((kept / FILE).read_bytes()))
    with pytest.raises(RunError, match=r"agent.npz is damaged \(.*\): restore it from a copy"):
        load_agents(out, pytest.fail)


def test_a_file_of_other_networks_or_versions_is_refused(kept, tmp_path) -> None:
    out = shutil.copytree(kept, tmp_path / "kept")
    with np.load(kept / FILE) as file:
        np.savez(out / FILE, **file, more=np.zeros(1))
    with pytest.raises(RunError, match=r"does not fit its configuration.*commit 68c11bc"):
        load_agents(out, pytest.fail)
    with (out / "config.yaml").open("a") as text:
        text.write("novelty: 1\n")
    with pytest.raises(RunError, match=r"novelty.*commit 68c11bc"):
        load_agents(out, pytest.fail)


@pytest.mark.parametrize("directory", sorted(path.parent for path in AGENTS.glob("*/agent.npz")), ids=lambda x: x.name)
def test_shipped_agents_can_be_loaded_and_are_small(directory) -> None:
    assert load_agents(directory, pytest.fail).config == load(directory / "config.yaml")
    assert (directory / FILE).stat().st_size < 2_000_000
    assert f"`{directory.name}`" in (AGENTS / "README.md").read_text(encoding="utf-8")


def test_nothing_is_overwritten_or_left_behind(run, kept, tmp_path, capsys) -> None:
    before = (kept / FILE).read_bytes()
    assert main(["export", str(run), "--out", str(kept)]) == 2
    assert "exists: choose another directory with --out" in capsys.readouterr().err
    assert (kept / FILE).read_bytes() == before
    assert main(["export", str(run), "--out", str(tmp_path / "new"), "--agent", "7"]) == 2
    assert "has no seed 7: choose from 3, 4" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
