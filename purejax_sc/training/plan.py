"""What a run needs and how fast it can be at most, by arithmetic on shapes and on vendors' data sheets."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from purejax_sc import envs
from purejax_sc.agent import muesli
from purejax_sc.config import Config, Hyper
from purejax_sc.config.sections import MOST
from purejax_sc.envs import base
from purejax_sc.training import costs
from purejax_sc.training.accelerators import Accelerator
from purejax_sc.training.compiled import tree_bytes
from purejax_sc.training.devices import Placement
from purejax_sc.training.host_rows import as_batch
from purejax_sc.training.iteration import check_num_seeds
from purejax_sc.training.update import AbstractUpdate, abstract_update
from purejax_sc.types import Key, LearnerState, Sequence

PLATFORM = "cuda"  # whose branches a plan counts; those of TPUs are the same
FOR_A_CPU = 10**11  # operations of an update that a CPU does in about a second


class Plan(NamedTuple):
    """One seed of a run, on each of the `train.data_shards` devices that share it. Sizes in bytes.

    config: one device's part of the run.   shards: how many parts there are.   num_params: of one network.
    state:  parameters, target and what Adam keeps.   replay: 0 where a batch is all fresh.   row: one sequence of it.
    envs:   environments, what is carried from step to step, and the sequences that were just made.
    update: temporaries of an update, an estimate.   here: the same as compiled for the machine at hand, or None.
    acting: parameters that acting reads at every step.
    update_flops, act_flops: of the products of an update, and of acting for one step of all environments.
    """

    config: Config
    shards: int
    num_params: int
    state: int
    replay: int
    row: int
    envs: int
    update: int
    here: int | None
    acting: int
    update_flops: int
    act_flops: int

    @property
    def replay_on_device(self) -> bool:
        """Whether the replay lies beside the parameters, and not in main memory or in a file."""
        return not envs.is_host(self.config)

    @property
    def resident(self) -> int:
        """What a seed takes of its device between two updates."""
        return self.state + self.envs + (self.replay if self.replay_on_device else 0)

    @property
    def iteration_flops(self) -> int:
        """Of acting once, and of the updates that follow."""
        return self.config.train.sequence_length * self.act_flops + (
            self.config.updates_per_iteration * self.update_flops
        )


class Estimate(NamedTuple):
    """A plan on a device. Times are lower bounds: every product at the peak rate, every number read and written once.

    rate: of products in the precision of the network, TFLOP/s.
    update: seconds.   env_steps: of a run, per second.   hours: of all seeds, on as many devices as share one.
    seeds: that fit on a device.   replay_steps: per seed, that fit beside all seeds; None where they lie elsewhere.
    """

    device: Accelerator
    rate: float
    update: float
    env_steps: float
    hours: float
    seeds: int
    replay_steps: int | None


def make_plan(config: Config, num_seeds: int = 1) -> Plan:
    """The plan of a run. Raises ConfigError as training does, but for sizes beyond this machine."""
    check_num_seeds(config, num_seeds)
    shards = config.train.data_shards
    part = config.shard() if shards > 1 else config
    update = abstract_update(part)
    state, rows = update.arguments[:2]
    row, program = tree_bytes(update.row), jax.make_jaxpr(update.run)(*update.arguments)
    flops = costs.flops(program, PLATFORM)
    return Plan(
        config=part,
        shards=shards,
        num_params=sum(x.size for x in jax.tree.leaves(state.params)),
        state=tree_bytes(state),
        replay=row * part.replay_capacity_sequences if part.replay_sequences else 0,
        row=row,
        envs=_environments(part, update) + row * part.train.num_envs,
        update=costs.peak_bytes(program, PLATFORM) + tree_bytes(rows),
        here=_compiled_bytes(update) if flops <= FOR_A_CPU or jax.devices()[0].platform != "cpu" else None,
        acting=tree_bytes((state.params.encoder, state.params.root_policy)),
        update_flops=flops,
        act_flops=_act_flops(part, update),
    )


def on_device(plan: Plan, device: Accelerator, num_seeds: int = 1, placement: Placement | None = None) -> Estimate:
    """What a device can do of a plan. placement: of the seeds within it; None is vmap."""
    config = plan.config
    batch = plan.row * config.train.batch_sequences
    rate = device.bfloat16 if config.network.precision == "bfloat16" else device.float32

    def seconds(flops: float, num_bytes: float) -> float:
        """The least that the device needs: the roofline."""
        return max(flops / (rate * 1e12), num_bytes / (device.bandwidth * 1e9))

    update = seconds(plan.update_flops, 2 * plan.state + batch)
    iteration = config.updates_per_iteration * update
    if not config.host.actor_devices:  # which have the acting to themselves
        iteration += config.train.sequence_length * seconds(plan.act_flops, plan.acting)
    room = device.share * device.memory * 2**30
    one_by_one = placement == "map"
    beside = plan.update * (1 if one_by_one else num_seeds) + (plan.resident - plan.replay) * num_seeds
    return Estimate(
        device=device,
        rate=rate,
        update=update,
        env_steps=plan.shards * config.steps_per_iteration / iteration,
        hours=num_seeds * config.num_iterations * iteration / 3600,
        seeds=_seeds(plan, room, one_by_one),
        replay_steps=_steps(plan, (room - beside) / num_seeds) if plan.replay and plan.replay_on_device else None,
    )


def _seeds(plan: Plan, room: float, one_by_one: bool) -> int:
    """How many fit into so many bytes, if their updates run one by one, or else at once."""
    together = (room - plan.update) / plan.resident if one_by_one else room / (plan.resident + plan.update)
    return min(max(0, int(together)), 1 if envs.is_host(plan.config) else MOST)


def _steps(plan: Plan, room: float) -> int:
    """Of a run's replay, if each of its devices has so many bytes for its part."""
    return max(0, int(room / plan.row)) * plan.config.train.sequence_length * plan.shards


def _environments(config: Config, update: AbstractUpdate) -> int:
    """Bytes of environments and of what is carried from step to step, and of the parameters of an earlier opponent."""
    carry = jax.eval_shape(lambda: update.model.initial_carry(config.train.num_envs))
    if envs.is_host(config):
        return tree_bytes(carry)
    env = envs.make_env(config)
    driver = jax.eval_shape(lambda key: base.init(env, key, config.train.num_envs), jax.random.key(0))
    earlier = update.arguments[0].params if env.spec.two_player and config.arena.games else ()
    return tree_bytes((driver, carry, earlier))


def _act_flops(config: Config, update: AbstractUpdate) -> int:
    """Of the products of acting once in every environment."""
    state, rows, key, hyper = update.arguments
    batch = jax.eval_shape(lambda rows: as_batch(rows, config.atari.stack), rows)

    def act(learner: LearnerState, batch: Sequence, key: Key, hyper: Hyper) -> Any:
        rows = jnp.zeros(config.train.num_envs, jnp.int32)  # of which kind each observation is
        obs, carry = jax.tree.map(lambda x: x[rows], (jax.tree.map(lambda x: x[0], batch.obs), batch.carry))
        return muesli.act(update.model, learner.target, obs, carry, key, hyper)

    return costs.flops(jax.make_jaxpr(act)(state, batch, key, hyper), PLATFORM)


def _compiled_bytes(update: AbstractUpdate) -> int | None:
    """Temporaries of the update as XLA compiles it for the machine at hand; None where it does not say."""
    stats = jax.jit(update.run, donate_argnums=0).lower(*update.arguments).compile().memory_analysis()
    return None if stats is None else int(stats.temp_size_in_bytes)
