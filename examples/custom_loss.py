"""Self-consistency with a target of your own: lambda-returns in imagination instead of (K - k)-step returns.

`sc_errors` says what L_sc compares with what (paper Eq. 7). Yours may wrap the library's, as here, or return other
predictions and targets. Everything else stays: rollouts, gates, losses, the whole compiled trainer.
"""

import jax

from purejax_sc import Gates, Model, Params, load, make_train
from purejax_sc.agent.consistency import Rollout, ScErrors, sc_errors

LAMBDA = 0.7  # 1 bootstraps from v(z^K) alone, as in the paper; 0 from the next imagined state


def lambda_errors(
    model: Model, params: Params, rollout: Rollout, discount: jax.Array, gates: Gates, include_last: bool = False
) -> ScErrors:
    """Compare v(z^k) with the lambda-return of the rollout's own rewards and values."""
    return sc_errors(model, params, rollout, discount, gates, lambda_=LAMBDA, include_last=include_last)


if __name__ == "__main__":
    config = load("catch", ["train.env_steps=16_000", "sc.update=direct"])
    _, metrics = jax.jit(make_train(config, sc_errors=lambda_errors))(jax.random.key(0))
    mean = metrics["episode_return_sum"][-20:].sum() / metrics["episode_count"][-20:].sum()
    print(f"lambda-returns: mean return {mean:.2f}, L_sc {metrics['loss_sc'][-1]:.3f}")
