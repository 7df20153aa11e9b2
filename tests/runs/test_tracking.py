"""Weights & Biases, in its offline mode."""

import sys
from pathlib import Path

import pytest
from helpers.runs import counting

from purejax_sc.cli.commands import main


@pytest.mark.integration
def test_a_run_is_tracked(tmp_path, monkeypatch) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    logged: list[dict[str, float]] = []
    log = wandb.sdk.wandb_run.Run.log
    monkeypatch.setattr(
        wandb.sdk.wandb_run.Run, "log", lambda run, data, **how: (logged.append(data), log(run, data, **how))[1]
    )
    with counting():
        assert main(["train", "smoke", "train.log_points=2", "--seeds", "2", "--track", "--quiet"]) == 0
    assert [len(data) for data in logged] == [len(logged[0])] * 2
    assert {"loss/loss/seed_0", "loss/loss/seed_1", "episode/episode_return/seed_0"} <= set(logged[0])
    assert list(Path("wandb").glob("offline-run-*/run-*.wandb"))


def test_without_the_package_it_is_refused_in_one_line(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert main(["train", "smoke", "--track", "--quiet"]) == 2
    assert capsys.readouterr().err == "purejax-sc: --track needs the package wandb: pip install wandb\n"
    assert not Path("runs").exists()
