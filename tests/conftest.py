"""Settings of all tests: silent broadcasting between ranks is an error, nothing is cached on disk, eight devices."""

import jax

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_enable_compilation_cache", False)
jax.config.update("jax_num_cpu_devices", 8)
