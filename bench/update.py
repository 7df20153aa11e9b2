"""One update of the learner at full size, without acting: compile time, run time, arithmetic, memory.

    python bench/update.py atari
    python bench/update.py minatar_breakout --repeats 50 --parts

The batch is random and of the size that the configuration states; `SPECS` holds what an environment would show that
need not be installed. Where training is one program, so are eight updates here: a program of one takes its memory
anew at each call, page by page, which is up to a third of its time. A host calls one update at a time, and so is it
timed.

`--parts` tells where the time goes: what each part of the update takes, forwards and backwards, and what products,
convolutions' windows and the rest take. (CPU only: it reads the profiler's events of XLA's kernels.)
"""

import argparse
import collections
import itertools
import re
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import plan

from purejax_sc import config as configs
from purejax_sc import networks
from purejax_sc.agent import muesli
from purejax_sc.agent.muesli import Metrics
from purejax_sc.config import Config, Hyper
from purejax_sc.envs import is_host, network_spec
from purejax_sc.training.train_state import as_arrays
from purejax_sc.types import EnvSpec, Key, LearnerState, Model, Observation, Sequence

SPECS = {
    "atari": EnvSpec(num_actions=18, obs_shape=(96, 96, 3), obs_dtype=jnp.dtype("uint8"), two_player=False),
    "sokoban": EnvSpec(num_actions=4, obs_shape=(10, 10, 7), obs_dtype=jnp.dtype("bool"), two_player=False),
    "go_9x9": EnvSpec(num_actions=82, obs_shape=(9, 9, 17), obs_dtype=jnp.dtype("bool"), two_player=True),
}


def random_batch(config: Config, spec: EnvSpec, model: Model, key: Key) -> Sequence:
    """A batch [T, B] of random frames, actions and rewards in one endless episode."""
    t, b = config.train.sequence_length, config.train.batch_sequences
    key_frame, key_action, key_reward = jax.random.split(key, 3)
    every = (t + 1, b)
    obs = Observation(
        frame=jax.random.bits(key_frame, (*every, *spec.obs_shape), jnp.uint8).astype(spec.obs_dtype),
        legal=jnp.ones((*every, spec.num_actions), bool),
        prev_action=jnp.zeros(every, jnp.int32),
        prev_reward=jnp.zeros(every),
        first=jnp.zeros(every, bool),
        valid=jnp.ones(every, bool),
    )
    action = jax.random.randint(key_action, (t, b), 0, spec.num_actions)
    discount = jnp.full((t, b), -1.0 if spec.two_player else 1.0)
    reward = jax.random.normal(key_reward, (t, b))
    return Sequence(obs, action, jnp.zeros((t, b, spec.num_actions)), reward, discount, model.initial_carry(b))


def in_one_program(learner: muesli.Learner, num: int) -> Callable[..., tuple[LearnerState, Metrics]]:
    """(state, batch, key, hyper) -> (state, metrics [num]) of `num` updates on the same batch."""

    def updates(state: LearnerState, batch: Sequence, key: Key, hyper: Hyper) -> tuple[LearnerState, Metrics]:
        if num == 1:  # not in a loop, where a CPU's convolutions are slow
            state, metrics = learner.update(state, batch, key, hyper)
            return state, jax.tree.map(lambda x: x[None], metrics)
        return jax.lax.scan(lambda x, k: learner.update(x, batch, k, hyper), state, jax.random.split(key, num))

    return updates


def kernels(run: Callable[[], Any], repeats: int) -> Iterator[tuple[str, float]]:
    """Name and milliseconds of every kernel that `repeats` calls start; on a CPU of every HLO operation but loops."""
    options = jax.profiler.ProfileOptions()
    options.host_tracer_level = 3  # the level that tells of every kernel of a CPU
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            for _ in range(repeats):
                run()
        [path] = Path(folder).glob("**/*.xplane.pb")
        for plane in jax.profiler.ProfileData.from_file(str(path)).planes:
            for line in plane.lines:
                on_device = plane.name.startswith("/device:")
                if on_device and not line.name.startswith("Stream"):
                    continue  # sums of the streams' kernels
                for event in line.events:
                    name = event.name if on_device else dict(event.stats).get("hlo_op")
                    if name is not None and not re.match(r"(while|call|conditional)\b", name):
                        yield name, event.duration_ns / 1e6


def parts_of(run: Callable[[], Any], text: str, repeats: int, num: int) -> tuple[dict[str, float], dict[str, float]]:
    """Milliseconds of an update by its part and by kind of kernel. text: of the compiled program of `num` updates."""
    names = dict(re.findall(r'%?([\w.\-]+) = .*?op_name="([^"]*)"', text))
    parts, kinds = collections.Counter[str](), collections.Counter[str]()
    for kernel, milliseconds in kernels(run, repeats):
        name = re.sub(r"^jit\(updates\)/(while/body/(closed_call/)?)?", "", names.get(kernel, "?"))
        parts[part_of(name)] += milliseconds / repeats / num
        kinds[kind_of(kernel, name)] += milliseconds / repeats / num
    return dict(parts.most_common(12)), dict(kinds.most_common())


def part_of(name: str) -> str:
    """`transpose(jvp(Head))/Dense_0/add` is of `Head, backwards`."""
    inner = re.sub(r"jit\((\w+)\)", r"\1", name.split("/")[0])
    way = "backwards" if inner.startswith("transpose(") else "forwards" if "jvp(" in inner else "of the targets"
    module = re.sub(r"transpose\(|jvp\(|vmap\(|\)", "", inner)
    return f"{module}, {way}" if module[:1].isupper() else f"the rest, {way}"


def kind_of(kernel: str, name: str) -> str:
    if kernel.startswith(("ynn", "dot", "custom-call")) or "dot_general" in name:
        return "products"
    return "windows of convolutions" if "/Conv" in name and ("slice" in name or "concat" in name) else "the rest"


class Timed(NamedTuple):
    """An update of a configuration, compiled and run.

    run: () -> metrics [num] of `num` updates in one program.   text: of that program.
    num_params: of one network.   trace, compile, best, median: seconds; the last two of one update.
    flops: of its products.   temporaries: bytes, None where XLA does not say.   loss: of the last update.
    """

    run: Callable[[], Metrics]
    text: Callable[[], str]
    num: int
    num_params: int
    trace: float
    compile: float
    best: float
    median: float
    flops: int
    temporaries: int | None
    loss: float


def timed(config: Config, spec: EnvSpec, repeats: int) -> Timed:
    """Compile and run an update on a random batch."""
    model = networks.make_model(config, spec)
    learner = muesli.make_learner(config, model, spec)
    key_init, key_batch, key_update = jax.random.split(jax.random.key(0), 3)
    state, batch = jax.jit(learner.init)(key_init), random_batch(config, spec, model, key_batch)
    arguments, num = (state, batch, key_update, as_arrays(config.hyper)), 1 if is_host(config) else 8
    times = [time.perf_counter()]
    lowered = jax.jit(in_one_program(learner, num)).lower(*arguments)
    times.append(time.perf_counter())
    compiled = lowered.compile()
    times.append(time.perf_counter())

    def run() -> Metrics:
        metrics: Metrics = jax.block_until_ready(compiled(*arguments))[1]
        return metrics

    for _ in range(repeats):
        metrics = run()
        times.append(time.perf_counter())
    trace, compile_, *seconds = (after - before for before, after in itertools.pairwise(times))
    memory = compiled.memory_analysis()
    return Timed(
        run=run,
        text=compiled.as_text,
        num=num,
        num_params=sum(x.size for x in jax.tree.leaves(state.params)),
        trace=trace,
        compile=compile_,
        best=min(seconds) / num,
        median=sorted(seconds)[repeats // 2] / num,
        flops=plan.flops(jax.make_jaxpr(learner.update)(*arguments)),
        temporaries=None if memory is None else memory.temp_size_in_bytes,
        loss=float(metrics["loss"][-1]),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--parts", action="store_true")
    args = parser.parse_args()
    config = configs.load(args.config, args.overrides)
    update = timed(config, SPECS.get(args.config) or network_spec(config), args.repeats)
    sizes = f"batch {config.train.sequence_length} x {config.train.batch_sequences}"
    print(f"{args.config}: {update.num_params:,} parameters, {sizes}")
    print(f"trace {update.trace:.1f} s, compile {update.compile:.1f} s")
    print(f"update {update.best * 1e3:.1f} ms at best, {update.median * 1e3:.1f} ms median, loss {update.loss:.3f}")
    print(f"{update.flops / 1e9:.2f} GFLOP of products, {update.flops / update.best / 1e9:.0f} GFLOP/s")
    if args.parts:
        for table in parts_of(update.run, update.text(), args.repeats, update.num):
            print("\n".join(f"{ms:8.2f} ms  {name}" for name, ms in table.items()), end="\n\n")
    if update.temporaries is not None:
        print(f"the program's temporaries {update.temporaries / 2**30:.2f} GiB")
    print(f"peak memory of the process {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")


if __name__ == "__main__":
    main()
