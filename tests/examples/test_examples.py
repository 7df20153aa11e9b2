"""Every small example runs from start to end, as a user would run it but for shorter training."""

import runpy
import sys
from pathlib import Path

import jax
import pytest

import purejax_sc

EXAMPLES = Path(__file__).parents[2] / "examples"
SHORT = {  # what each prints, if it worked
    "train.py": "greedy: mean return",
    "custom_env.py": "mean return by seed",
    "custom_loss.py": "lambda-returns: mean return",
    "custom_network.py": "mean return",
    "seed_sweep.py": "sc_weight 1.0, by seed",
    "plan_with_model.py": "32 simulations: cell 2",
}
SOONER = ["train.env_steps=4_000", "muesli.unroll=1", "sc.unroll=2"]  # which compile sooner


@pytest.mark.parametrize("name", SHORT)
def test_example_runs(name, tmp_path, monkeypatch, capsys):
    load = purejax_sc.load
    monkeypatch.setattr(purejax_sc, "load", lambda name, words: load(name, [*words, *SOONER], strict=False))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name])
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert SHORT[name] in capsys.readouterr().out


@pytest.mark.parametrize("name", SHORT)
def test_example_is_short(name):
    assert len((EXAMPLES / name).read_text().splitlines()) < 60
