"""Plans: sizes that can be added up by hand, and a device whose numbers are round."""

import jax
import pytest
from helpers.configs import small, small_host

from purejax_sc.config import ConfigError, load
from purejax_sc.envs import make_env
from purejax_sc.networks import make_model
from purejax_sc.training import accelerators, anakin, plan
from purejax_sc.training.accelerators import ACCELERATORS, Accelerator
from purejax_sc.training.compiled import tree_bytes
from purejax_sc.training.host_rows import row_shapes

# 1 TFLOP/s, 1 GB/s, and half of 2 GiB
ROUND = Accelerator("round", memory=2, bandwidth=1, float32=1, bfloat16=2, share=0.5)


@pytest.fixture(scope="module", autouse=True)
def nothing_is_compiled():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "FOR_A_CPU", 0)
        yield


@pytest.fixture(scope="module")
def planned(nothing_is_compiled) -> plan.Plan:
    return plan.make_plan(small())


def by_hand(**numbers) -> plan.Plan:
    """A batch of 12 sequences of 4 steps, of which 4 are fresh from 4 environments: an update per 16 steps."""
    config = small(train={"env_steps": 1_600})
    sizes = {"state": 1, "replay": 0, "row": 0, "envs": 0, "update": 0, "acting": 0, "update_flops": 0, "act_flops": 0}
    return plan.Plan(config=config, shards=1, num_params=0, here=None, **(sizes | numbers))


@pytest.mark.parametrize("env", ["garnet", "gymnax/Breakout-MinAtar", "pgx/tic_tac_toe"])
def test_rows_by_arithmetic_are_those_of_the_actor(env: str) -> None:
    config = small(env=env)
    made = make_env(config)
    model = make_model(config, made.spec)
    assert row_shapes(config, made.spec, model) == anakin.sequence_shapes(config, made, model)


def test_sizes_are_those_that_training_makes(planned) -> None:
    config = small()
    state = jax.eval_shape(anakin.make_trainer(config).init, jax.random.key(0))
    # one network: hidden 20 -> 16, latent 16 -> 16; dynamics 16, 4 and 16 to 16; heads of 11, 11, 11, 4 and 4
    layers = [(20, 16), (16, 16), (16, 16), (16, 16), *[(16, 11)] * 3, *[(16, 4)] * 2]
    count = sum(inputs * outputs + outputs for inputs, outputs in layers) + 4 * 16
    assert planned.num_params == count
    assert planned.state == tree_bytes(state.learner)
    # parameters, target and two moments; Adam's count, the moment of advantages and the number of updates
    assert planned.state == 4 * 4 * count + 4 * 4
    assert planned.replay == tree_bytes(state.replay.data)
    assert planned.envs == tree_bytes((state.driver, state.carry)) + config.train.num_envs * planned.row
    assert planned.resident == planned.state + planned.envs + planned.replay
    assert planned.update > tree_bytes(state.replay.data) / 64 * 12  # the batch at least: 12 of 64 rows
    assert planned.here is None


def test_products_are_counted_by_hand(planned) -> None:
    # acting: 20 -> 16 -> 16 -> 4 for 4 environments
    assert planned.act_flops == 4 * 2 * (20 * 16 + 16 * 16 + 16 * 4)
    assert planned.iteration_flops == 4 * planned.act_flops + planned.update_flops


def test_the_update_compiled_here_is_near_its_estimate(monkeypatch) -> None:
    monkeypatch.setattr(plan, "FOR_A_CPU", 10**9)
    planned = plan.make_plan(small(sc={"update": "none"}))
    assert planned.here is not None
    assert planned.here / 2 < planned.update < 2 * planned.here


def test_devices_that_share_a_seed_have_a_part_each(planned) -> None:
    part = plan.make_plan(small(train={"data_shards": 2}))
    assert (part.shards, part.state, part.replay) == (2, planned.state, planned.replay // 2)
    assert part.update_flops == planned.update_flops // 2
    assert part.act_flops == planned.act_flops // 2


def test_replay_on_the_host_takes_nothing_of_the_device() -> None:
    config = small_host(atari={"full_actions": True})
    planned = plan.make_plan(config)
    assert planned.replay > 0
    assert planned.resident == planned.state + planned.envs
    estimate = plan.on_device(planned, ROUND)
    assert (estimate.seeds, estimate.replay_steps) == (1, None)  # however small
    with pytest.raises(ConfigError, match="one seed at a time"):
        plan.make_plan(config, num_seeds=2)


def test_time_is_that_of_products_or_of_memory_whichever_is_more() -> None:
    # 0.2 s of products, and 4 s of acting steps of 0.01 s: 0.24 s for 16 steps, and 100 iterations
    busy = plan.on_device(by_hand(update_flops=2 * 10**11, act_flops=10**10), ROUND, num_seeds=3)
    assert busy.update == pytest.approx(0.2)
    assert busy.env_steps == pytest.approx(16 / 0.24)
    assert busy.hours == pytest.approx(3 * 100 * 0.24 / 3600)
    rounded = by_hand(update_flops=2 * 10**11)
    network = rounded.config.network.model_copy(update={"precision": "bfloat16"})
    rounded = rounded._replace(config=rounded.config.model_copy(update={"network": network}))
    assert plan.on_device(rounded, ROUND)[1:3] == pytest.approx((2.0, 0.1))  # TFLOP/s, seconds
    # a state of 0.4 GB is read and written, 12 rows of 0.01 GB are read; 0.1 GB of parameters at each of 4 steps
    waiting = plan.on_device(by_hand(state=4 * 10**8, row=10**7, acting=10**8), ROUND)
    assert waiting.update == pytest.approx(0.92)
    assert waiting.env_steps == pytest.approx(16 / (0.92 + 4 * 0.1))


def test_seeds_that_fit_and_the_replay_beside_them() -> None:
    mib = 2**20
    planned = by_hand(state=60 * mib, envs=4 * mib, replay=64 * mib, row=mib // 4, update=72 * mib)
    # of 1,024 MiB: 200 each at once; one by one 72 once, and 128 each
    at_once, one_by_one = (plan.on_device(planned, ROUND, 3, placement) for placement in (None, "map"))
    assert (at_once.seeds, one_by_one.seeds) == (1024 // 200, (1024 - 72) // 128)
    # three seeds leave 1,024 - 3 * 136 = 616 MiB or 1,024 - 72 - 3 * 64 = 760; a row of 4 steps takes 1/4 MiB
    assert at_once.replay_steps == int(616 / 3 * 4) * 4
    assert one_by_one.replay_steps == int(760 / 3 * 4) * 4
    assert plan.on_device(planned, ROUND, 8).replay_steps == 0
    assert plan.on_device(by_hand(state=2**31), ROUND).seeds == 0
    assert plan.on_device(by_hand(state=2**20), ROUND).replay_steps is None


@pytest.mark.slow
def test_plans_of_paper_size() -> None:
    plans = {name: plan.make_plan(load(name)) for name in ("atari", "sokoban", "go_9x9")}
    assert plans["atari"].num_params == 10_650_991
    # the first convolution of every frame, forward and back: 27 * 64 products for each of 96 x 96 pixels
    assert plans["atari"].update_flops > 3 * 2 * 27 * 64 * 96 * 96 * 60 * 31
    (h100,) = accelerators.find("h100")
    assert {name: plan.on_device(each, h100).seeds for name, each in plans.items()} == {
        "atari": 1, "sokoban": 5, "go_9x9": 0,
    }  # fmt: skip


def test_devices_have_names_and_sensible_numbers() -> None:
    assert accelerators.find("H100")[0].float32 == 494.7
    assert accelerators.find(None) == ACCELERATORS
    assert len({x.name for x in ACCELERATORS}) == len(ACCELERATORS)
    assert all(x.name == x.name.lower() and 0 < x.share < 1 and x.bfloat16 >= x.float32 for x in ACCELERATORS)
    with pytest.raises(ConfigError, match=r"--device 'h10': did you mean 'h100'\?"):
        accelerators.find("h10")
