"""Sweep seeds and a hyper-parameter: each sweep is one compiled program.

`train(key, hyper)` is a pure function, so `vmap` over keys trains many seeds side by side, and `vmap` over the numbers
in `Hyper` trains many settings. On an accelerator a hundred seeds take little longer than one.
"""

import jax
import jax.numpy as jnp

from purejax_sc import load, make_train

SEEDS = 3
WEIGHTS = (0.0, 0.25, 1.0)  # of the self-consistency loss


def final_return(metrics: dict[str, jax.Array]) -> jax.Array:
    """Average the returns of the episodes in the last fifth of training, over the last axis [..., iterations]."""
    last = metrics["episode_count"].shape[-1] // 5
    return metrics["episode_return_sum"][..., -last:].sum(-1) / metrics["episode_count"][..., -last:].sum(-1)


def main() -> None:
    """Print returns by seed, then by seed and weight."""
    config = load("catch", ["train.env_steps=8_000", "sc.update=direct"])
    train = make_train(config)
    keys = jax.vmap(jax.random.key)(jnp.arange(SEEDS))

    _, metrics = jax.jit(jax.vmap(train))(keys)
    print("by seed:", final_return(metrics).round(2))

    # Every field of a batch of settings has a leading axis.
    hypers = jax.tree.map(lambda x: jnp.full(len(WEIGHTS), x), config.hyper)._replace(sc_weight=jnp.array(WEIGHTS))
    grid = jax.vmap(jax.vmap(train, (None, 0)), (0, None))
    _, metrics = jax.jit(grid)(keys, hypers)
    for weight, returns in zip(WEIGHTS, final_return(metrics).T, strict=True):
        print(f"sc_weight {weight}, by seed:", returns.round(2))


if __name__ == "__main__":
    main()
