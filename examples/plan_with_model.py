"""Search over the learned model of a trained agent, in tic-tac-toe.

Search does not use the rules of the game: it (mctx) steps through its learned model, and the learned policy and
value guide it. `load_agent` takes the name of a shipped agent or a run directory.
"""

from functools import partial

import jax
import jax.numpy as jnp

from purejax_sc import load_agent
from purejax_sc.envs import base

MOVES = (0, 3, 1, 4)  # X, O, X, O in the rows below; X wins by 2, and otherwise O wins by 5
BOARD = "X X .\nO O .\n. . ."


def main() -> None:
    """Compare the policy with searches of increasing length in one position."""
    agent, key = load_agent("tic_tac_toe"), jax.random.key(0)
    step = jax.jit(partial(base.step, agent.make_env()))
    state, carry = base.init(agent.make_env(), key, 1), agent.initial_carry(1)  # a batch of one game
    for move in MOVES:
        state, *_ = step(key, state, jnp.array([move]))

    print(f"{BOARD}\n\nX is to move, on cells 0 to 8.")
    action, _ = agent.act(state.obs, carry, key)
    print(f"without search: cell {action[0]}")
    for simulations in (4, 32):
        search = jax.jit(partial(agent.search, simulations=simulations, kind="gumbel"))
        found, _ = search(state.obs, carry, key)
        print(
            f"{simulations} simulations: cell {found.action[0]}, value {found.value[0]:+.2f},"
            f" visits {found.visits[0].tolist()}"
        )


if __name__ == "__main__":
    main()
