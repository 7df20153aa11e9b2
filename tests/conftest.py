"""Settings of all tests: silent broadcasting between ranks is an error, and nothing is cached on disk."""

import jax

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_enable_compilation_cache", False)
