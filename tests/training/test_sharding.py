"""Many devices equal one: seeds spread over them, a batch shared by them, and both. Eight virtual CPU devices."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.batches import SPEC, batch_of, hyper_of, make
from helpers.configs import assert_close, small
from jax.sharding import Mesh, PartitionSpec

from purejax_sc.agent import transforms
from purejax_sc.agent.muesli import make_learner
from purejax_sc.config import Config, ConfigError, load
from purejax_sc.envs import make_env
from purejax_sc.memory import free_on_host
from purejax_sc.networks import make_model
from purejax_sc.training import sharding
from purejax_sc.training.anakin import sequence_shapes
from purejax_sc.training.sharding import DATA, SEED, compile_program, make_functions, make_layout, make_local_trainer
from purejax_sc.training.train_state import as_arrays, tree_bytes

CLOSE = {"rtol": 2e-3, "atol": 2e-5}


def mesh_of(num: int) -> Mesh:
    return Mesh(np.array(jax.devices()[:num]), (DATA,))


def trained(config: Config, seeds: list[int], iterations: int):
    """Learners, metrics and first observations of rows of seeds, on as many devices as there are."""
    layout = make_layout(len(seeds), config.train.data_shards)
    trainer = make_local_trainer(config, layout)
    compiled = compile_program(trainer, config, seeds, [config.hyper] * len(seeds), layout)
    states = compiled.init()
    frames = jax.device_get(states.driver.obs.frame)
    states, metrics = compiled.chunk(states, iterations)
    return *jax.device_get((states.learner, metrics)), frames


def test_a_mean_of_gradients_under_shard_map_is_a_mean() -> None:
    """The trap: with check_vma, the gradient of a replicated number is summed before anyone averages it."""
    x = jnp.arange(8.0)  # d/dw mean (w x) = mean x = 3.5

    def gradient(w: jax.Array, x: jax.Array) -> jax.Array:
        return transforms.device_mean(jax.grad(lambda w: jnp.mean(w * x))(w), DATA)

    specs = {"in_specs": (PartitionSpec(), PartitionSpec(DATA)), "out_specs": PartitionSpec()}
    shared = jax.shard_map(gradient, mesh=mesh_of(8), check_vma=False, **specs)
    assert float(jax.jit(shared)(jnp.float32(2.0), x)) == 3.5


def test_devices_that_train_different_seeds_never_wait_for_each_other() -> None:
    """XLA aborts the process when one of a CPU's devices has waited 40 s for another."""
    config, layout = small(muesli={"unroll": 1}, sc={"update": "none"}), make_layout(2, num_devices=2)
    init, chunk = make_functions(make_local_trainer(config, layout), config, layout)
    states = jax.eval_shape(init, np.zeros(2, np.int32))
    hyper = jax.eval_shape(lambda: jax.tree.map(lambda x: jnp.stack([x] * 2), as_arrays(config.hyper)))
    text = jax.jit(chunk).lower(states, hyper, np.int32(1)).as_text()
    assert "while" in text
    assert [word for word in ("all_gather", "all_reduce") if word in text] == []


# One of two devices computes for 75 s, the other waits for it.
UNEQUAL = """
import time, jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, PartitionSpec
from purejax_sc.cli.setup import report_errors
def f(n):
    x = jax.lax.fori_loop(0, n[0], lambda _, x: jnp.tanh(x @ x), jnp.ones((256, 256)))
    return jax.lax.psum(x[0, 0], "data")
with report_errors(""):
    mesh = Mesh(np.array(jax.devices()), ("data",))
    f = jax.shard_map(f, mesh=mesh, in_specs=PartitionSpec("data"), out_specs=PartitionSpec(), check_vma=False)
    run = jax.jit(f).lower(np.ones(2, np.int32)).compile()
    start = time.perf_counter()
    jax.block_until_ready(run(np.array([1, 1000], np.int32)))
    rate = 1000 / (time.perf_counter() - start)
    jax.block_until_ready(run(np.array([1, 75 * rate], np.int32)))
    print(time.perf_counter() - start)
"""


@pytest.mark.slow
def test_devices_that_share_a_seed_wait_for_each_other() -> None:
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "2"}
    done = subprocess.run([sys.executable, "-c", UNEQUAL], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) > 62


def test_masked_means_of_uneven_parts_average_to_the_mean_of_all() -> None:
    # the devices count 0, 1, 2 and 1 entries: (3 + 4 + 6 + 8) / 4
    x = np.arange(1.0, 9.0, dtype=np.float32)[:, None]
    mask = np.isin(x, [3.0, 4.0, 6.0, 8.0])

    def part(x: jax.Array, mask: jax.Array) -> jax.Array:
        counted = transforms.count_masks(mask, DATA)
        return transforms.device_mean(transforms.masked_mean(x, *counted), DATA)

    parts = PartitionSpec(DATA)
    shared = jax.shard_map(part, mesh=mesh_of(4), in_specs=(parts, parts), out_specs=PartitionSpec(), check_vma=False)
    mean = jax.jit(shared)
    assert float(mean(x, mask)) == (3.0 + 4.0 + 6.0 + 8.0) / 4
    assert float(mean(x, np.zeros((8, 1), bool))) == 0.0


def test_an_update_on_shared_devices_equals_that_on_one() -> None:
    """Nothing is sampled here, so that only the sharing is compared."""
    config, model, learner, state = make(
        train={"num_envs": 4, "batch_sequences": 12}, sc={"update": "direct", "rollout_policy": "original"}
    )
    batch, key, hyper = batch_of(jax.random.key(1)), jax.random.key(2), hyper_of(config)
    one, metrics = jax.jit(learner.update)(state, batch, key, hyper)
    part = make_learner(config, model, SPEC, axis=DATA)
    by_time, by_row = PartitionSpec(None, DATA), PartitionSpec(DATA)
    specs = jax.tree.map(lambda _: by_time, batch)._replace(carry=jax.tree.map(lambda _: by_row, batch.carry))
    whole = PartitionSpec()
    shared = jax.shard_map(
        part.update, mesh=mesh_of(2), in_specs=(whole, specs, whole, whole), out_specs=whole, check_vma=False
    )
    lowered = jax.jit(shared).lower(state, batch, key, hyper)
    assert "all_reduce" in lowered.as_text()
    many, shared_metrics = lowered.compile()(state, batch, key, hyper)
    assert_close(one.moment, many.moment, rtol=1e-5)
    assert_close(one.params, many.params, rtol=1e-4, atol=1e-6)
    assert_close(metrics, shared_metrics, rtol=1e-3, atol=1e-5)


def test_seeds_on_shared_devices_equal_a_single_run_on_shared_devices() -> None:
    """Five seeds on three pairs of devices: two rows each, of which the very last is only there to fill up."""
    config = small(train={"data_shards": 2}, muesli={"unroll": 1}, sc={"update": "none"})
    assert dict(make_layout(5, 2).mesh.shape) == {SEED: 3, DATA: 2}
    many, metrics, frames = trained(config, list(range(3, 8)), 3)
    one, single, frames_of_one = trained(config, [6], 3)
    assert_close(jax.tree.map(lambda x: x[3], many.params), jax.tree.map(lambda x: x[0], one.params), **CLOSE)
    assert_close(metrics["episode_return_sum"][3], single["episode_return_sum"][0])
    assert many.updates.tolist() == [3] * 5 + [0]
    assert np.isfinite(metrics["loss"][:5]).all()
    np.testing.assert_array_equal(frames[3], frames_of_one[0])
    assert frames.shape[:2] == (6, config.train.num_envs)
    assert len(np.unique(frames[:5].reshape(5 * config.train.num_envs, -1), axis=0)) > 4  # games differ


@pytest.mark.parametrize(
    ("seeds", "shards", "groups", "rows"),
    [(1, 1, 1, 1), (8, 1, 8, 8), (9, 1, 5, 10), (16, 1, 8, 16), (5, 4, 2, 6), (1, 8, 1, 1)],
)
def test_layouts_finish_as_soon_as_they_can_on_as_few_devices(seeds: int, shards: int, groups: int, rows: int) -> None:
    layout = make_layout(seeds, shards)
    assert dict(layout.mesh.shape) == {SEED: groups, DATA: shards}
    assert layout.rows == rows
    assert sharding.fill_rows(list(range(seeds)), layout)[:seeds] == list(range(seeds))
    assert len(sharding.fill_rows(list(range(seeds)), layout)) == rows


def test_too_few_devices_are_one_line() -> None:
    with pytest.raises(ConfigError, match=r"train\.data_shards=9, but there are 8 device"):
        make_layout(1, 9)
    with pytest.raises(ConfigError, match=r"train\.data_shards=3 cannot share the 8 fresh"):
        load("smoke", ["train.data_shards=3"])


def test_seeds_on_the_cores_of_a_cpu_share_its_memory() -> None:
    """One seed's replay fits into two thirds of the free memory; two seeds on two devices do not fit."""
    config = small()
    env = make_env(config)
    model = make_model(config, env.spec)
    steps = config.replay_capacity_sequences * config.train.sequence_length
    one = config.replay_capacity_sequences * tree_bytes(sequence_shapes(config, env, model)) / steps
    large = small(replay={"capacity": int(free_on_host() * 2 / 3 / one)})
    make_local_trainer(large, make_layout(1))
    with pytest.raises(ConfigError, match=r"lower replay\.capacity"):
        make_local_trainer(large, make_layout(2))


def test_a_shard_is_a_part_of_everything_and_lasts_as_long() -> None:
    config = load("minatar_breakout", ["train.data_shards=2"])
    part = config.shard()
    assert part.train.num_envs * 2 == config.train.num_envs
    assert (part.fresh_sequences * 2, part.replay_sequences * 2) == (config.fresh_sequences, config.replay_sequences)
    assert part.replay_capacity_sequences * 2 == config.replay_capacity_sequences
    assert (part.num_iterations, part.num_updates) == (config.num_iterations, config.num_updates)
