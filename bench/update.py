"""One update of the learner at full size, without an environment: compile time, run time, memory.

    python bench/update.py atari

The batch is random and of the size that the configuration states; `SPECS` holds what its environment would show.
"""

import argparse
import resource
import time

import jax
import jax.numpy as jnp

from purejax_sc import config as configs
from purejax_sc import networks
from purejax_sc.agent import muesli
from purejax_sc.config import Config
from purejax_sc.training.iteration import as_arrays
from purejax_sc.types import EnvSpec, Key, Model, Observation, Sequence

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", choices=SPECS)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--repeats", type=int, default=2)
    args = parser.parse_args()
    config, spec = configs.load(args.config, args.overrides), SPECS[args.config]
    model = networks.make_model(config, spec)
    learner = muesli.make_learner(config, model, spec)
    key_init, key_batch, key_update = jax.random.split(jax.random.key(0), 3)
    state, hyper = jax.jit(learner.init)(key_init), as_arrays(config.hyper)
    batch = random_batch(config, spec, model, key_batch)
    count = sum(x.size for x in jax.tree.leaves(state.params))
    print(f"{args.config}: {count:,} parameters, batch {config.train.sequence_length} x {config.train.batch_sequences}")
    start = time.perf_counter()
    update = jax.jit(learner.update, donate_argnums=0).lower(state, batch, key_update, hyper).compile()
    print(f"compile {time.perf_counter() - start:.1f} s", flush=True)
    for _ in range(args.repeats):
        start = time.perf_counter()
        state, metrics = jax.block_until_ready(update(state, batch, key_update, hyper))
        print(f"update {time.perf_counter() - start:.2f} s, loss {float(metrics['loss']):.3f}", flush=True)
    analysis = update.memory_analysis()
    if analysis:
        print(f"the program's temporaries {analysis.temp_size_in_bytes / 2**30:.2f} GiB")
    print(f"peak memory of the process {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")


if __name__ == "__main__":
    main()
