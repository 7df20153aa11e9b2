"""One update of a configuration by shapes: to be lowered or counted, where nothing is to be made or run."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from purejax_sc import envs, networks
from purejax_sc.agent import muesli
from purejax_sc.agent.muesli import Metrics
from purejax_sc.config import Config
from purejax_sc.training.host_rows import as_batch, row_shapes
from purejax_sc.training.iteration import as_arrays
from purejax_sc.types import LearnerState, Model, Sequence


class AbstractUpdate(NamedTuple):
    """run: (state, rows, key, hyper) -> (state, metrics), one update on batch-major rows.

    arguments: shapes of what it takes.   row: shapes of one row, as it is stored.   model: of the configuration.
    """

    run: Callable[..., tuple[LearnerState, Metrics]]
    arguments: tuple[Any, ...]
    row: Sequence
    model: Model


def abstract_update(config: Config) -> AbstractUpdate:
    """The update that `config` describes, on one device. Raises ConfigError."""
    spec = envs.network_spec(config)
    model = networks.make_model(config, spec)
    learner = muesli.make_learner(config, model, spec)
    row = row_shapes(config, envs.make_spec(config), model)

    def run(state: LearnerState, rows: Sequence, key: Any, hyper: Any) -> tuple[LearnerState, Metrics]:
        return learner.update(state, as_batch(rows, config.atari.stack), key, hyper)

    batch = config.train.batch_sequences
    rows = jax.tree.map(lambda x: jax.ShapeDtypeStruct((batch, *x.shape), x.dtype), row)
    key = jax.eval_shape(lambda: jax.random.key(0))
    state, hyper = jax.eval_shape(learner.init, key), jax.eval_shape(lambda: as_arrays(config.hyper))
    return AbstractUpdate(run, (state, rows, key, hyper), row, model)
