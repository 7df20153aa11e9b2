"""Weights & Biases: what `train --track` sends there, live. It is an extra of the package."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from purejax_sc.config import Config, ConfigError, to_tree
from purejax_sc.runs.logging import tag
from purejax_sc.training.compiled import Point


@contextmanager
def tracked(config: Config, out: Path, show: Callable[[Point], None]) -> Iterator[Callable[[Point], None]]:
    """Context manager: an `on_log` callback that shows a log point and sends it. Raises ConfigError without wandb.

    A resumed run continues there. WANDB_MODE, WANDB_PROJECT and the like count.
    """
    try:
        import wandb
    except ImportError:
        raise ConfigError("--track needs the package wandb: pip install wandb") from None
    name = re.sub(r"\W+", "-", str(out.resolve()))[-64:]  # of its own, wherever it is resumed from
    with wandb.init(name=out.name, id=name, resume="allow", config=to_tree(config)) as sent:

        def send(point: Point) -> None:
            show(point)
            rows = [(name, *row) for name, xs in point.metrics.items() for row in zip(point.seeds, xs, strict=True)]
            sent.log({f"{tag(name)}/seed_{seed}": x for name, seed, x in rows}, step=point.env_steps)

        yield send
