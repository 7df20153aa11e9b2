"""Accelerators without one: every shipped configuration is lowered for GPUs and TPUs, and nothing of a CPU stays."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from plan import abstract_update

from purejax_sc import envs
from purejax_sc.config import CONFIG_DIR, Config, load
from purejax_sc.training.sharding import default_placement, make_functions, make_layout, make_local_trainer
from purejax_sc.training.train_state import as_arrays

ACCELERATORS = ("cuda", "tpu")
NAMES = sorted(path.stem for path in CONFIG_DIR.glob("*.yaml"))
OVERRIDES = {"atari_small": ["atari.full_actions=true"]}  # whose number needs no engine
SHORT = ["muesli.unroll=1", "sc.update=direct", "sc.unroll=2"]  # steps are alike, and take long to trace
ITERATIONS = ("smoke", "minatar_breakout")  # of which the whole is lowered, without -m slow


def lowered(function, arguments, platforms=ACCELERATORS) -> str:
    return export.export(jax.jit(function), platforms=platforms)(*arguments).mlir_module()


def check(config: Config, text: str) -> None:
    """What a program for accelerators must be."""
    assert "f64" not in text
    assert "callback" not in text
    assert not set(re.findall(r"custom_call @(\w+)", text)), "what is no operation of XLA may be that of a CPU alone"
    assert ("stablehlo.convolution" in text) == (config.network.kind != "mlp")


def distinct() -> list[str]:
    """One configuration of each kind of network that no whole run below covers, that with most options of the model.

    The other ones are for -m slow.
    """
    configs = {name: load(name, OVERRIDES.get(name, [])) for name in reversed(NAMES)}
    muesli = {name: config.muesli for name, config in configs.items()}
    most_last = sorted(configs, key=lambda name: (muesli[name].terminal_value != "zero") + muesli[name].predict_legal)
    found = {configs[name].network.kind: name for name in most_last}
    return sorted(found[kind] for kind in found.keys() - {configs[name].network.kind for name in ITERATIONS})


@pytest.mark.parametrize("name", distinct())
def test_the_update_of_every_kind_is_one_for_accelerators(name: str) -> None:
    words = [*OVERRIDES.get(name, []), *SHORT]
    if "blocks" in type(load(name, words, strict=False).network).model_fields:
        words.append("network.blocks=1")  # blocks are alike, too
    check_update(load(name, words, strict=False))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_update_of_every_configuration_is_one_for_accelerators_at_full_length(name: str) -> None:
    check_update(load(name, OVERRIDES.get(name, [])))


def check_update(config: Config) -> None:
    update = abstract_update(config)
    check(config, lowered(update.run, update.arguments))


@pytest.mark.parametrize("name", ITERATIONS)
def test_a_whole_run_is_one_program_for_accelerators(name: str) -> None:
    check_run(load(name, SHORT))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if not envs.is_host(load(name))])
def test_a_whole_run_is_one_program_for_accelerators_at_full_length(name: str) -> None:
    # a replay of paper size need not fit into this machine: what is lowered is the same
    check_run(load(name, ["replay.capacity=20_000"] if load(name).replay_sequences else []))


def check_run(config: Config) -> None:
    """Two seeds side by side, as `train` places them on an accelerator."""
    layout = make_layout(2, placement=default_placement("gpu"), num_devices=1)
    init, chunk = make_functions(make_local_trainer(config, layout), config, layout)
    states = jax.eval_shape(init, np.zeros(2, np.int32))
    hyper = jax.eval_shape(lambda: jax.tree.map(lambda x: jnp.stack([x, x]), as_arrays(config.hyper)))
    check(config, lowered(chunk, (states, hyper, np.int32(1))))


def test_seeds_are_placed_as_suits_the_platform_of_the_devices() -> None:
    assert {name: default_placement(name) for name in ("cpu", "gpu", "tpu")} == {
        "cpu": "map", "gpu": "vmap", "tpu": "vmap",
    }  # fmt: skip
    layout = make_layout(2)
    assert layout.placement == default_placement(layout.platform)
