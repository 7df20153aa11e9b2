"""Compiled programs are shared by workers: one may read what another one still writes."""

from pathlib import Path

import jax
import jax.numpy as jnp


def test_a_program_that_is_not_yet_written_whole_is_compiled_again() -> None:
    def thrice_and_one_is_shared(x: jax.Array) -> jax.Array:
        return 3.0 * x + 1.0

    program = jax.jit(thrice_and_one_is_shared)
    x = jnp.arange(3.0)
    program(x)
    (path,) = Path(jax.config.jax_compilation_cache_dir).glob(f"*{thrice_and_one_is_shared.__name__}*")
    path.write_bytes(path.read_bytes()[:100])
    program.clear_cache()
    assert program(x).tolist() == [1.0, 4.0, 7.0]
